// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package git writes commits to a branch of a remote repository, and reads its
// content and history, without a worktree, an index or a clone on disk (G1).
//
// Over HTTP a save is two requests when the tip is known: the advertisement of
// receive-pack, and the push itself (G2). Objects are immutable and named by
// their content, so they are kept in one bounded cache per Repository; whatever
// was evicted or never fetched is asked for by its hash.
//
// Log, Show and Preview answer what git log, git show and a dry run would. They
// ask for commits without trees, for trees a level of directories at a time, all
// commits together, and for files only to show what differs in them.
//
// # Concurrency
//
// A Repository is safe for concurrent use, and branches are independent of each
// other. Two pushes to one branch at the same time are correct (the remote's
// compare-and-swap decides, the loser is replayed) but slower than one after
// the other: callers keep one queue per branch (G6). A Tree is an immutable
// snapshot, safe for concurrent use as well.
//
// # Invariants
//
//   - No local refs: where a branch is, only the remote says.
//   - Every commit descends from the tip that the push names as the old value, so
//     nothing is ever forced (G2).
//   - The outcome of a push is our ref's own line in the report, or else what the
//     remote says when it is read again; no decision rests on a text (G4).
//   - Tree entries that an edit does not name are copied byte for byte (G8).
//   - Credentials live in Credentials, in the header of a request and, as an unlocked
//     SSH key, in the transport, nowhere else.
//   - Nothing is sent to an SSH server whose host key is not in the Secret (G9).
package git
