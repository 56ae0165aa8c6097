// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package branch is the shell around the window engine: changes and
// CommitRequests go in, commits on remote branches and request statuses come
// out.
//
// # Who owns what
//
//   - [Pool] owns the one [window.Engine], behind a mutex. Events are applied in
//     the order in which their calls return; effects are carried out under the
//     same lock, so a write is queued before the event after it is seen.
//   - A backlog holds the closed writes of one target, in order. A worker owns all
//     pushes to one (remote URL, branch): one session at a time, for all backlogs
//     that lead there (G6). It exists only while there is something to push (G7).
//   - requests owns what is known of each CommitRequest and is the only writer of
//     their status. Its updates are latest-wins: a status that was overtaken
//     before it was stored is never stored.
//
// # Invariants
//
//   - No lock is held while talking to a remote or to the API server.
//   - A write leaves its backlog only when its commit is on the remote (W16), when it
//     changes nothing there (W15), when it can never be committed, or when its target
//     is suspended (W18).
//   - Writes to one object are pushed in the order in which their windows closed.
package branch
