// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chaos proves DESIGN 8 on real parts: kommit-apiserver is killed at random
// instants and at every named one, with faults around it, while three authors edit and
// save; afterwards the repository holds what the cluster holds, each edit once, in its
// author's name, and every request has one end.
//
// The authors remember what was accepted (History), Verify compares that with what is in
// Git (Repository), in the cluster, and in the requests. Verify is pure, so that it can
// be tested with histories that were tampered with.
package chaos
