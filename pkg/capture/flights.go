// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kommit-dev/kommit/pkg/window"
)

// leg is one version of an object whose changes are on their way to the sink.
type leg struct {
	sequence uint64
	uid      types.UID
	version  string
	targets  []types.NamespacedName
	// after is the source's position before the version came: from there it comes again.
	after string
	// compared: it was found by a comparison with Git, and does not.
	compared bool
}

// hand gives changes of one version to the sink, by way of the joiner those of
// targets with attribution, and those that must not overtake what waits there.
// anonymous: whoever the joiner names did not make them.
// Runs on the worker only, which keeps the order; holds no lock while it may block.
func (s *source) hand(ctx context.Context, seen sight, changes []window.Change, anonymous bool) {
	var direct, joined []window.Change
	s.mu.Lock()
	for _, change := range changes {
		switch t, ok := s.capture.target(change.Target); {
		case !ok: // deleted meanwhile
		case t.attributed:
			change.Author = window.Unresolved
			joined = append(joined, change)
		case s.inFlight(seen.object.Name, change.Target): // attribution was switched off
			joined = append(joined, change)
		default:
			direct = append(direct, change)
		}
	}
	// Both are on their way from here on: a catch-up must not look between them.
	directLeg, joinedLeg := s.depart(seen, direct), s.depart(seen, joined)
	s.mu.Unlock()

	if len(direct) > 0 {
		for _, change := range direct {
			if s.capture.Sink.Change(ctx, change) != nil {
				return // it stays under way: the next process begins before it
			}
		}
		s.capture.Metrics.handedOn(seen.arrived)
		s.delivered(seen.object.Name, directLeg)
	}
	if len(joined) == 0 {
		return
	}
	version := seen.joinVersion()
	s.capture.Joiner.Submit(ctx, version, func(username string, ok bool) {
		// A wrong author is worse than none.
		named := ok && !anonymous && (!seen.listed() || s.capture.Facts.Sole(version, seen.after, username))
		for _, change := range joined {
			if named && change.Author.Unresolved {
				change.Author = window.Author{Username: username}
			}
			if s.capture.Sink.Change(ctx, change) != nil {
				return // as above
			}
		}
		s.capture.Metrics.handedOn(seen.arrived)
		s.delivered(seen.object.Name, joinedLeg)
	})
}

// listed says whether a list showed it as it is, and not an event as it became so.
func (v sight) listed() bool { return v.arrived.IsZero() && !v.deleting }

// depart notes that changes of one version are on their way, if there are any.
// Caller must hold mu.
func (s *source) depart(seen sight, changes []window.Change) (sequence uint64) {
	if len(changes) == 0 {
		return 0
	}
	s.sequence++
	l := leg{sequence: s.sequence, uid: seen.uid, version: seen.version, after: s.position, compared: seen.compared}
	for _, change := range changes {
		l.targets = append(l.targets, change.Target)
	}
	s.flights[seen.object.Name] = append(s.flights[seen.object.Name], l)
	return l.sequence
}

// inFlight reports whether a change of an object of this name is on its way to the
// target. Caller must hold mu.
func (s *source) inFlight(name string, target types.NamespacedName) bool {
	return slices.ContainsFunc(s.flights[name], func(l leg) bool { return slices.Contains(l.targets, target) })
}

func (v sight) joinVersion() Version {
	return Version{
		UID: v.uid, ResourceVersion: v.version, Deleted: v.deleting, Labels: v.labels, Seen: v.arrived,
		Group: v.object.Group, Resource: v.object.Resource, Namespace: v.object.Namespace, Name: v.object.Name,
	}
}

// delivered notes that changes of an object of this name reached the sink.
func (s *source) delivered(name string, sequence uint64) {
	s.mu.Lock()
	legs := slices.DeleteFunc(s.flights[name], func(l leg) bool { return l.sequence == sequence })
	if s.flights[name] = legs; len(legs) == 0 {
		delete(s.flights, name)
	}
	s.mu.Unlock()
	s.capture.changed.wake()
}
