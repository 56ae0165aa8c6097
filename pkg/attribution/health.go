// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

const (
	// healthWindow is how far Health looks back.
	healthWindow = 10 * time.Minute
	// delayWindow is how long a lateness is remembered at least, while facts come.
	delayWindow = time.Minute
	// firstDelay is assumed at least until the lateness is known: facts have come for
	// delayWindow, or promptPosts POSTs came promptly one after the other.
	firstDelay  = time.Second
	prompt      = 100 * time.Millisecond
	promptPosts = 8
	// slowDelay is assumed at least once a fact was later than firstDelay, until more is
	// known: kube-apiserver's default batch wait.
	slowDelay = 30 * time.Second
	// A batch goes out at an interval, so the oldest fact of a POST is late by any part
	// of it: of knownPosts, the latest is hardly ever (1 in 256) less than half an interval
	// late. Twice the latest is assumed from then on, until facts have come for
	// delayWindow.
	knownPosts = 8
	// maxSources bounds the senders that are told apart.
	maxSources = 64
	// maxTallied bounds the resources that are told apart.
	maxTallied = 1024
)

// Degradation is why attribution cannot work (C12).
type Degradation string

// The degradations, which are condition reasons.
const (
	// NoAuditEvents: changes waited in vain, and no fact came at all.
	NoAuditEvents Degradation = v1alpha1.ReasonNoAuditEvents
	// NoResponseBodies: events come, but the audit policy leaves the response out.
	NoResponseBodies Degradation = v1alpha1.ReasonNoResponseBodies
	// AuditEventsLate: facts come after their changes were given up.
	AuditEventsLate Degradation = v1alpha1.ReasonAuditEventsLate
)

// Health is what attribution looks like from here.
type Health struct {
	// LastFact is when the last fact came; zero means never.
	LastFact time.Time
	// Delay is how late facts have lately been at most, from the response to us.
	Delay time.Duration
	// ClocksAhead is how far kube-apiservers' clocks are known to be ahead of ours.
	ClocksAhead time.Duration
	// WithoutBodies are resources whose events lately came without response bodies
	// only, sorted. Those of aggregated APIs always do.
	WithoutBodies []schema.GroupResource
	// WithoutEvents are resources with changes that lately waited in vain, and of which
	// no event came at all, sorted.
	WithoutEvents []schema.GroupResource

	lateAfter time.Duration
	// heard says that facts came lately.
	heard bool
}

// Health reports on the last ten minutes.
func (f *Facts) Health(now time.Time) Health {
	f.mu.RLock()
	defer f.mu.RUnlock()
	since := now.Add(-healthWindow)
	return Health{
		LastFact:      f.tally.lastFact,
		Delay:         f.delays.max(),
		ClocksAhead:   f.delays.clocks,
		WithoutBodies: f.tally.without(func(r resourceTally) bool { return r.bodyless.After(since) && !r.fact.After(since) }),
		WithoutEvents: f.tally.without(func(r resourceTally) bool {
			return r.inVain.After(since) && !r.fact.After(since) && !r.bodyless.After(since)
		}),
		lateAfter: f.lateAfter,
		heard:     f.tally.lastFact.After(since),
	}
}

// Degradation says why changes of these resources cannot find their authors, and
// what to set. Both are empty when they can, or when there was nothing to do.
func (h Health) Degradation(resources []schema.GroupResource) (why Degradation, cure string) {
	affected := func(list []schema.GroupResource) string {
		var names []string
		for _, gr := range list {
			if slices.Contains(resources, gr) {
				names = append(names, gr.String())
			}
		}
		return strings.Join(names, ", ")
	}
	bodyless, silent := affected(h.WithoutBodies), affected(h.WithoutEvents)
	switch {
	case bodyless != "":
		return NoResponseBodies, "audit events come without response bodies of " + bodyless +
			": set level RequestResponse for them in the policy of kube-apiserver's --audit-policy-file"
	case silent != "" && !h.heard:
		return NoAuditEvents, "changes come, but no audit events: set kube-apiserver's --audit-webhook-config-file and --audit-policy-file"
	case silent != "":
		return NoAuditEvents, "audit events come, but none about " + silent +
			": set level RequestResponse for them in the policy of kube-apiserver's --audit-policy-file"
	case h.heard && h.Delay > h.lateAfter:
		return AuditEventsLate, "audit events come up to " + h.Delay.Round(time.Second).String() +
			" late: lower kube-apiserver's --audit-webhook-batch-max-wait, or raise --attribution-grace above it"
	}
	return "", ""
}

// tally is what Health counts by. The owner of Facts.mu uses it.
type tally struct {
	lastFact  time.Time
	resources map[schema.GroupResource]resourceTally
}

// resourceTally is when a fact, an event without body, and a change without fact came
// last.
type resourceTally struct{ fact, bodyless, inVain time.Time }

func (t *tally) fact(now time.Time, f *Fact) {
	t.lastFact = now
	t.update(schema.GroupResource{Group: f.Group, Resource: f.Resource}, func(r *resourceTally) { r.fact = now })
}

func (t *tally) bodyless(now time.Time, gr schema.GroupResource) {
	t.update(gr, func(r *resourceTally) { r.bodyless = now })
}

func (t *tally) update(gr schema.GroupResource, set func(*resourceTally)) {
	r, known := t.resources[gr]
	if !known && len(t.resources) >= maxTallied {
		return
	}
	if t.resources == nil {
		t.resources = map[schema.GroupResource]resourceTally{}
	}
	set(&r)
	t.resources[gr] = r
}

// without are the resources of which that is so, sorted.
func (t *tally) without(so func(resourceTally) bool) []schema.GroupResource {
	var list []schema.GroupResource
	for gr, r := range t.resources {
		if so(r) {
			list = append(list, gr)
		}
	}
	slices.SortFunc(list, func(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) })
	return list
}

// noteBodyless counts events that would have been facts, had the policy recorded
// the response.
func (f *Facts) noteBodyless(now time.Time, list map[schema.GroupResource]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for gr := range list {
		f.tally.bodyless(now, gr)
	}
}

// noteInVain counts a change of the resource that waited for a fact that never came.
func (f *Facts) noteInVain(now time.Time, gr schema.GroupResource) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tally.update(gr, func(r *resourceTally) { r.inVain = now })
}

// noteProven learns from a version that was seen before the only request that can
// have made it was received, by the clock of its sender.
func (f *Facts) noteProven(received, seen time.Time) {
	if received.IsZero() || !received.After(seen) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.delays.noteAhead(min(received.Sub(seen), f.skew))
}

// ServedSince says from when on the audit endpoint answered. Facts of requests that
// were answered earlier come late because nobody was there to take them, which is no
// reason to wait longer for those of later ones.
func (f *Facts) ServedSince(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.delays.served = now
}

// delays remembers how late facts have lately been. The owner of Facts.mu uses it.
type delays struct {
	// served is when we began to take events. What was answered before had nobody to
	// come to, and says nothing about how late facts are.
	served time.Time
	// from is when the current window began. Windows in which nothing came do not
	// count.
	from              time.Time
	current, previous time.Duration
	// warm says that previous is of a whole window.
	warm bool
	// inTime counts the prompt POSTs since the last that was not.
	inTime int
	// posts counts those of each sender, up to knownPosts.
	posts map[string]int
	// clocks is how far the senders' clocks have been ahead of ours.
	clocks time.Duration
}

// posted notes how late the oldest fact of a POST is.
func (d *delays) posted(now time.Time, facts []Fact) {
	for i := range facts {
		completed := facts[i].completedAt()
		if completed.IsZero() || completed.Before(d.served) {
			return
		}
	}
	if d.posts == nil {
		d.posts = map[string]int{}
	}
	if source := facts[0].Source; len(d.posts) < maxSources || d.posts[source] > 0 {
		d.posts[source] = min(d.posts[source]+1, knownPosts)
	}
	for i := range facts {
		completed := facts[i].completedAt()
		if now.Sub(completed) > prompt {
			d.inTime = 0
			return
		}
	}
	d.inTime++
}

func (d *delays) note(now, completed time.Time) {
	if completed.IsZero() || completed.Before(d.served) {
		return
	}
	if d.from.IsZero() {
		d.from = now
	}
	if now.Sub(d.from) >= delayWindow {
		d.from, d.previous, d.current, d.warm = now, d.current, 0, true
	}
	late := now.Sub(completed)
	d.current = max(d.current, late)
	d.noteAhead(-late)
}

// noteAhead learns that a sender's clock is ahead of ours by this much, at least.
func (d *delays) noteAhead(by time.Duration) {
	d.clocks = max(d.clocks, by)
}

// max is the lateness noted.
func (d *delays) max() time.Duration {
	return max(d.current, d.previous)
}

// settling is the lateness to reckon with. kube-apiserver sends its batches at
// intervals, so a fact that came soon says little about the next one: what few facts
// say is not believed to be the worst.
func (d *delays) settling() time.Duration {
	switch {
	case d.warm || d.inTime >= promptPosts:
		return d.max()
	case d.current <= firstDelay/2:
		return firstDelay
	case d.known():
		return min(2*d.current, max(slowDelay, d.current))
	case d.current > firstDelay:
		return max(slowDelay, d.current)
	}
	return firstDelay
}

// known says whether each sender has posted often enough.
func (d *delays) known() bool {
	for _, n := range d.posts {
		if n < knownPosts {
			return false
		}
	}
	return len(d.posts) > 0
}
