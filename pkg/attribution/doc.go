// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package attribution says who made a change. kube-apiserver posts audit events
// to the Handler; each event becomes facts ("user U caused version V of object
// O"), Facts keeps them for a while, and the Joiner gives every captured change
// its author, or says after a grace that nobody is known (DESIGN C5–C8).
//
// # Invariant
//
// A wrong author is worse than none. State never comes from here: a missing,
// late or lying event costs an author, never a change.
//
// # What an event proves
//
// An answer that carries (uid, resourceVersion) proves that this version existed
// when the request completed. It does not prove that the request made it: a write
// that changes nothing is answered with the version of somebody else's write. So
// each fact says how much it proves:
//
//   - Proven: a create, an apply that created (201), or an update whose body named
//     another resourceVersion than the answer has. No other request can have made
//     that version. Found at once.
//   - Likely: the answer's managedFields have an entry of this request's field
//     manager from within the request, and nobody else's is as new; or a deletion
//     that names the uid. A deletion that was answered with the object's end is
//     believed at once when it was received before the end was seen. All else
//     settles: users share managers, and a second holds many requests.
//   - Possible: everything else, such as a patch that only removes something, a
//     scale, or an answer without managedFields. The request must have been received
//     before the version was seen, and completed around that time. It always settles.
//
// An update whose answer has the resourceVersion that its body named changed
// nothing, and makes no fact; nor does a deletion of what was being deleted before.
// When two users claim one version, a claim that was received after another one had
// completed is out, because the version existed already. If several users are left,
// nobody is named.
//
// Settling is waiting as long after the version was seen as facts have lately been
// late, so that another claim that is still under way can speak up: some
// milliseconds with the recommended audit flags, up to the batch wait with others.
// A likely request that seems to have been received after its version was seen
// (clocks differ) waits for the end of the grace instead, unless kube-apiserver's
// clock is known to be ahead. While facts come later than the grace, nothing that
// has to settle is believed.
//
// What is left: if the writer's event is lost for good, or later than any before it,
// a request of another user that changed nothing, and that was under way at that very
// moment, may be taken for the write that it asked for, too.
//
// # Concurrency
//
// Facts, Joiner and Handler are safe for concurrent use. Lock order is Joiner, then
// Facts; neither lock is held while a keeper writes, while listeners are told, or
// while a change is delivered.
package attribution
