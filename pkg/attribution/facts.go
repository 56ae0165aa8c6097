// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Defaults of FactsConfig.
const (
	DefaultTTL       = 10 * time.Minute
	DefaultMaxFacts  = 200_000
	DefaultClockSkew = time.Second
)

const (
	// scopeWindow is how long a deletecollection without recorded response explains
	// deletions in its scope (C7).
	scopeWindow = 30 * time.Second
	// nameWindow is the same for a deletion that named no uid: a new object of that name
	// may be deleted soon after.
	nameWindow = 2 * time.Second
	// watchLag is how long after a request completed the version that it may have made
	// can still be its work.
	watchLag = 10 * time.Second
	// maxScopes bounds the collections kept; they are compared one by one.
	maxScopes = 1024
)

// keeper makes facts durable. Keep returns nil only when they are on disk (C5).
type keeper interface {
	Keep(now time.Time, facts []Fact) error
}

// FactsConfig configures Facts. Zero fields take the defaults.
type FactsConfig struct {
	// TTL is how long a fact is found after it came.
	TTL time.Duration
	// MaxFacts bounds the facts in memory; the oldest go first, which costs their
	// changes the author.
	MaxFacts int
	// ClockSkew bounds how far apart the clocks of kube-apiservers, and ours, may be.
	// A larger value leaves more changes of two users at the same moment unresolved, a
	// smaller one than true may mistake who of them was first.
	ClockSkew time.Duration
	// LateAfter is the lateness that Health complains about; default DefaultGrace.
	LateAfter time.Duration
	// Keeper keeps facts before Add returns; nil keeps them in memory only.
	Keeper keeper
	// Metrics may be nil.
	Metrics *Metrics
}

// Facts is the index of what is known about who wrote what. It is safe for
// concurrent use.
type Facts struct {
	ttl, skew time.Duration
	lateAfter time.Duration
	max       int
	keeper    keeper
	metrics   *Metrics

	// mu protects what follows.
	mu      sync.RWMutex
	objects map[types.UID]*objectFacts
	// named are deletions whose response named no uid, by object.
	named map[objectKey]*claims
	// scopes are collections whose response was not recorded, oldest first.
	scopes []scope
	// expiry lists what to forget, oldest first, from head on.
	expiry    []expiring
	head      int
	delays    delays
	tally     tally
	listeners []func([]Fact)
}

// objectFacts are the claims on one incarnation of an object.
type objectFacts struct {
	// versions are in the order of their first fact, which is the order of expiry.
	versions []versionFacts
	deletion *claims
	// touched is when the last write that is not a deletion was received.
	touched time.Time
}

type versionFacts struct {
	resourceVersion string
	claims          *claims
}

type scope struct {
	fact   Fact
	claim  claim
	labels labels.Selector
	fields fields.Selector
}

// expiring names one set of claims: those on the named object's deletion, those on
// the deletion of uid, or those on the oldest version of uid.
type expiring struct {
	at     time.Time
	uid    types.UID
	object *objectKey
	delete bool
}

// NewFacts makes an empty index.
func NewFacts(c FactsConfig) *Facts {
	return &Facts{
		ttl:       cmp.Or(c.TTL, DefaultTTL),
		skew:      cmp.Or(c.ClockSkew, DefaultClockSkew),
		lateAfter: cmp.Or(c.LateAfter, DefaultGrace),
		max:       cmp.Or(c.MaxFacts, DefaultMaxFacts),
		keeper:    c.Keeper,
		metrics:   c.Metrics,
		objects:   map[types.UID]*objectFacts{},
		named:     map[objectKey]*claims{},
	}
}

// NotKeptError says that facts were not made durable, so their sender must send
// them again.
type NotKeptError struct {
	Facts int
	Err   error
}

func (e *NotKeptError) Error() string {
	return fmt.Sprintf("%d facts could not be kept, send them again: %v", e.Facts, e.Err)
}

func (e *NotKeptError) Unwrap() error { return e.Err }

// Add keeps the facts that arrived now, and returns when they are kept and found by
// Find (C5). Facts may come late, twice and in any order (C7). When it fails with a
// *NotKeptError, none of them is used.
func (f *Facts) Add(now time.Time, facts ...Fact) error {
	if len(facts) == 0 {
		return nil
	}
	if f.keeper != nil {
		if err := f.keeper.Keep(now, facts); err != nil {
			return &NotKeptError{Facts: len(facts), Err: err}
		}
	}
	f.mu.Lock()
	f.delays.posted(now, facts)
	for i := range facts {
		if !f.knows(&facts[i]) { // one that comes again says nothing about how late the first was
			f.delays.note(now, facts[i].completedAt())
		}
		f.tally.fact(now, &facts[i])
		f.metrics.fact(now, &facts[i])
	}
	f.mu.Unlock()
	f.Restore(now, facts...)
	return nil
}

// Restore puts facts back that a keeper kept, as if they had arrived at that time.
// It neither keeps nor counts them.
func (f *Facts) Restore(at time.Time, facts ...Fact) {
	f.mu.Lock()
	f.forget(at)
	for i := range facts {
		f.index(at, &facts[i])
	}
	listeners := f.listeners
	f.mu.Unlock()
	for _, told := range listeners {
		told(facts)
	}
}

// Find names the user who made the version, by what is known up to now: it takes no
// account of facts that may still come. The Joiner does. ok is false when nobody,
// or more than one user, is left.
func (f *Facts) Find(v Version) (username string, ok bool) {
	found := f.find(&v, time.Time{}, true)
	return found.username, found.found
}

// find decides at this time. final says that nothing more is waited for.
func (f *Facts) find(v *Version, now time.Time, final bool) verdict {
	f.mu.RLock()
	defer f.mu.RUnlock()
	t := timing{
		skew: f.skew, ahead: min(f.delays.clocks, f.skew), delay: f.delays.settling(), around: watchLag, now: now, final: final,
	}
	o := f.objects[v.UID]
	if !v.Deleted {
		return o.version(v.ResourceVersion).decide(v.Seen, t)
	}
	if o != nil && o.deletion != nil {
		return o.deletion.decide(v.Seen, t)
	}
	if named := f.nameClaims(v, o); named != nil {
		t.around = nameWindow
		return named.decide(v.Seen, t)
	}
	t.around = scopeWindow
	return f.scopeClaims(v, o).decide(v.Seen, t)
}

// subscribe has told called with all facts that are added from now on. It is
// called after they can be found, without locks.
func (f *Facts) subscribe(told func([]Fact)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listeners = append(f.listeners, told)
}

// index adds one fact. Caller must hold mu (write).
func (f *Facts) index(now time.Time, fact *Fact) {
	switch {
	case fact.Username == "":
	case fact.UID != "" && fact.isDeletion():
		o := f.objectOf(fact.UID)
		if o.deletion == nil {
			o.deletion = &claims{}
			f.expire(now, expiring{uid: fact.UID, delete: true})
		}
		o.deletion.add(claimOf(fact))
	case fact.UID != "" && fact.ResourceVersion != "":
		o := f.objectOf(fact.UID)
		if fact.Time.After(o.touched) {
			o.touched = fact.Time
		}
		cs := o.version(fact.ResourceVersion)
		if cs == nil {
			cs = &claims{}
			o.versions = append(o.versions, versionFacts{fact.ResourceVersion, cs})
			f.expire(now, expiring{uid: fact.UID})
		}
		cs.add(claimOf(fact))
	case fact.UID == "" && fact.Verb == verbDelete && fact.Name != "":
		key := fact.object()
		if f.named[key] == nil {
			f.named[key] = &claims{}
			f.expire(now, expiring{object: &key})
		}
		f.named[key].add(possible(claimOf(fact)))
	case fact.UID == "" && fact.Verb == verbDeleteCollection:
		f.addScope(fact)
	}
}

// knows reports whether the same fact came before. Caller must hold mu.
func (f *Facts) knows(fact *Fact) bool {
	o := f.objects[fact.UID]
	if o == nil || fact.UID == "" {
		return false
	}
	cs := o.deletion
	if !fact.isDeletion() {
		cs = o.version(fact.ResourceVersion)
	}
	return cs != nil && slices.Contains(cs.list, claimOf(fact))
}

// possible lowers the evidence of what does not name a uid.
func possible(c claim) claim {
	c.evidence = Possible
	return c
}

// addScope keeps a collection. Selectors that do not parse match nothing. Caller
// must hold mu (write).
func (f *Facts) addScope(fact *Fact) {
	byLabel, err := labels.Parse(fact.LabelSelector)
	if err != nil {
		return
	}
	byField, err := fields.ParseSelector(fact.FieldSelector)
	if err != nil {
		return
	}
	if len(f.scopes) == maxScopes {
		f.scopes = f.scopes[1:]
	}
	f.scopes = append(f.scopes, scope{*fact, possible(claimOf(fact)), byLabel, byField})
}

// nameClaims are the claims of deletions of an object of this name that can have
// meant this incarnation of it. Caller must hold mu.
func (f *Facts) nameClaims(v *Version, o *objectFacts) *claims {
	named := f.named[v.object()]
	if named == nil {
		return nil
	}
	cs := &claims{crowded: named.crowded, unordered: true}
	for _, c := range named.list {
		if o.outlived(c) {
			continue
		}
		cs.add(c)
	}
	if len(cs.list) == 0 {
		return nil
	}
	return cs
}

// scopeClaims are the claims of collections that the object was in. Caller must
// hold mu.
func (f *Facts) scopeClaims(v *Version, o *objectFacts) *claims {
	cs := &claims{unordered: true}
	for i := range f.scopes {
		s := &f.scopes[i]
		if !s.covers(v) || o.outlived(s.claim) || v.Seen.After(s.claim.completed.Add(scopeWindow)) {
			continue
		}
		cs.add(s.claim)
	}
	return cs
}

func (s *scope) covers(v *Version) bool {
	if s.fact.Group != v.Group || s.fact.Resource != v.Resource || s.fact.Namespace != "" && s.fact.Namespace != v.Namespace {
		return false
	}
	if !s.labels.Empty() && (v.Labels == nil || !s.labels.Matches(labels.Set(v.Labels))) {
		return false
	}
	for _, r := range s.fields.Requirements() {
		if r.Field != "metadata.name" && r.Field != "metadata.namespace" {
			return false
		}
	}
	return s.fields.Matches(fields.Set{"metadata.name": v.Name, "metadata.namespace": v.Namespace})
}

// version are the claims on one resourceVersion, or nil. The newest are asked for
// most.
func (o *objectFacts) version(resourceVersion string) *claims {
	if o == nil {
		return nil
	}
	for _, v := range slices.Backward(o.versions) {
		if v.resourceVersion == resourceVersion {
			return v.claims
		}
	}
	return nil
}

// outlived reports whether the object was written after the deletion had completed,
// so that the deletion was another incarnation's.
func (o *objectFacts) outlived(c claim) bool {
	return o != nil && o.touched.After(c.completed)
}

// Caller must hold mu (write).
func (f *Facts) objectOf(uid types.UID) *objectFacts {
	o := f.objects[uid]
	if o == nil {
		o = &objectFacts{}
		f.objects[uid] = o
	}
	return o
}

// expire notes when to forget what was just made. Caller must hold mu (write).
func (f *Facts) expire(now time.Time, e expiring) {
	e.at = now.Add(f.ttl)
	f.expiry = append(f.expiry, e)
	if len(f.expiry)-f.head > f.max {
		f.metrics.evicted()
		f.forgetOldest()
	}
}

// forget drops what is too old. Caller must hold mu (write).
func (f *Facts) forget(now time.Time) {
	for f.head < len(f.expiry) && !now.Before(f.expiry[f.head].at) {
		f.forgetOldest()
	}
	n := 0
	for n < len(f.scopes) && now.After(f.scopes[n].claim.completed.Add(f.ttl)) {
		n++
	}
	f.scopes = f.scopes[n:]
}

// forgetOldest drops one set of claims. Caller must hold mu (write), and there must
// be one.
func (f *Facts) forgetOldest() {
	e := f.expiry[f.head]
	f.expiry[f.head] = expiring{}
	f.head++
	if f.head > len(f.expiry)/2 && f.head > 64 {
		f.expiry = append(f.expiry[:0:0], f.expiry[f.head:]...)
		f.head = 0
	}
	if e.object != nil {
		delete(f.named, *e.object)
		return
	}
	o := f.objects[e.uid]
	if e.delete {
		o.deletion = nil
	} else {
		o.versions[0] = versionFacts{}
		o.versions = o.versions[1:]
	}
	if o.deletion == nil && len(o.versions) == 0 {
		delete(f.objects, e.uid)
	}
}

// completedAt is when the request was done, as far as the fact says.
func (f *Fact) completedAt() time.Time {
	if f.Completed.Before(f.Time) {
		return f.Time
	}
	return f.Completed
}
