// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package window decides what a save means: which changes belong together, in
// whose name and under which message they are committed, and what becomes of
// each CommitRequest (DESIGN 5, rules W1 to W20).
//
// The Engine is a pure state machine. Events and the time go in, effects come
// out; it starts no goroutine, does no I/O, reads no clock and rolls no dice.
// Same events, same effects.
//
// # The life of a window
//
//	    a change of an author without an open window (W1, W2)
//	                          │
//	                          ▼
//	┌────────────────────── open ──────────────────────┐
//	│ target's timers: idle since the last change,     │
//	│ max duration since it opened                     │
//	└───┬───────────────────────────────────┬──────────┘
//	    │ a request of its author           │ idle, max duration
//	    │ (W7 now, or W9 as it opened)      │
//	    ▼                                   │
//	┌── collecting for the request ────┐    │
//	│ no timer until caught up (5.5),  │    │
//	│ then the request's own (W11)     │    │
//	└───┬──────────────────────────────┘    │
//	    │ its timers                        │
//	    ▼                                   ▼
//	  close (W5) ◀── Next, object taken, size, resync, target, shutdown
//	    │
//	    ├──▶ Closed: one write, with the request and its message
//	    └──▶ Discarded: the target was suspended (W18)
//
// # The life of a request
//
//	Register ─▶ waiting ─▶ attached ─▶ gone with its window's write
//	   │           ├─▶ Resolved NoOpenWindow, WindowMismatch, TargetSuspended, TargetDeleted
//	   │           ├─▶ Closed with an EmptyWrite (W14)
//	   │           └─▶ withdrawn (W17)
//	   └─▶ Resolved SaveInProgress, TargetSuspended, TargetDeleted
//
// What becomes of a write is for Git to say; Outcome turns Git's answer into
// the reason to report (W14, W15, W16), and Status turns every reason into
// conditions (DESIGN 4.4).
//
// # Invariants
//
//   - An author has at most one open window on a target, and a window at most
//     one request (W2). An open window without a request means that nobody who
//     could have it waits (W7, W9).
//   - An object is in at most one open window of its target (W3).
//   - Every change handed in comes out in exactly one Closed or Discarded, unless
//     a later write to the same object replaced it in its window (W4).
//   - Every request that was registered is let go of exactly once: by a Closed
//     that carries it, by a Resolved, or silently by Withdraw while it waits.
//   - A requester has at most one request per target that waits or collects
//     (W10); so those of one requester are let go of in the order in which they
//     were registered (W19). Writes are committed in the order of their Closed
//     effects, so this is also the order of their commits.
//   - A write whose request had not caught up when its window was closed says so
//     (CutShort): what its author did before the save may be in a later one.
//   - What is due is done before the event at hand, in the order in which it fell
//     due: a late wake has the same result as punctual ones (W8).
//
// # After a crash
//
// The effects say all that there is to know: whoever keeps them, Opened, Collected,
// Registered and Attached until what they are about is over, can go on from there
// with Restore (D1).
//
// # Concurrency
//
// An Engine is not safe for concurrent use: its owner holds a lock around each
// call, and carries the effects out in the order in which they were returned.
//
// # Cost
//
// An event costs the same however many windows are open and requests wait:
// state is found by maps, timers are a heap in which a deadline that only moved
// away is left where it is until it comes up. Only what says "all" (SetTarget
// with a changed target, RemoveTarget, Resync, Shutdown, Windows) looks at all
// windows of its target or engine, and only Window and Windows copy what windows
// hold: Touched, which says which of them to look at, has their names. A closed
// window leaves nothing behind but its name, and that only for who has seen it; a
// request leaves its UID, until Withdraw says that the object is gone (W6).
package window
