// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package recovery keeps in the journal what branch workers and capture go on from
// after a kill -9 (DESIGN 8): windows with their changes, the requests that wait for
// them or hold them, closed writes with the commits that were made of them, the ends
// of requests whose status is not stored yet, and how far capture has come.
//
// # Rows
//
//	target/<namespace>/<name>          what the windows of a target were kept apart by
//	window/<name>                      an open window, or a closed write
//	change/<window>/<object>           one change of it
//	request/<uid>                      a request that is not over, or its end
//	taken/<source>/<object>/<target>   a version that was taken, ahead of the source's place
//	place/<source>                     how far a source of capture has come
//	uncompared/<namespace>/<name>      a target of which changes came to nothing
//
// # Invariants
//
//   - Rows are appended in the order in which things happen, under the lock of who
//     makes them happen, and written in that order; so what a crash leaves is a state
//     that there once was, and none of what came after it was seen by anybody: who
//     pushes or stores a status waits for Sync first (D2, D3).
//   - A place is appended after the changes that it covers: what is not in the
//     journal comes again from the watch. A version that is in it and comes again is
//     told by Taken.
//   - A write whose request has an end is over, whether its rows are gone or not.
package recovery
