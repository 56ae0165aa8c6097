// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"time"
	"unique"
)

// maxClaims bounds the claims on one version. More than this many differ in user,
// source or evidence only if somebody plays with us.
const maxClaims = 16

// answering is how long a request may take to complete after its version can be
// seen. Its fact's lateness counts from then.
const answering = 50 * time.Millisecond

// claim is what one user's requests say about one version or one deletion. Times
// are by the clock of the source.
type claim struct {
	username  unique.Handle[string]
	source    unique.Handle[string]
	received  time.Time
	completed time.Time
	evidence  Evidence
	// ended says that the request was answered with the end of the object, which no
	// other deletion of it is.
	ended bool
	// aside says that the request was about something else than the intent (C3).
	aside bool
}

func claimOf(f *Fact) claim {
	c := claim{
		username:  unique.Make(f.Username),
		source:    unique.Make(f.Source),
		received:  f.Time,
		completed: f.Completed,
		evidence:  f.Evidence,

		ended: f.Verb == verbDelete && f.UID != "" && f.ResourceVersion == "",
		aside: f.Subresource != "" && f.Subresource != "scale",
	}
	if c.completed.Before(c.received) {
		c.completed = c.received
	}
	return c
}

// claims are all claims on one version or deletion.
type claims struct {
	list []claim
	// crowded says that claims were left out.
	crowded bool
	// unordered says that the claims need not be on one and the same write, so that an
	// earlier one does not rule a later one out.
	unordered bool
}

// add merges c with what the same user said with the same evidence by the same
// clock: the earliest request is the one that may have made the version, and the
// earliest completion is the one that rules later requests out.
func (cs *claims) add(c claim) {
	for i := range cs.list {
		old := &cs.list[i]
		if old.username != c.username || old.source != c.source || old.evidence != c.evidence || old.ended != c.ended {
			continue
		}
		if c.received.Before(old.received) {
			old.received = c.received
		}
		if c.completed.Before(old.completed) {
			old.completed = c.completed
		}
		old.aside = old.aside && c.aside
		return
	}
	if len(cs.list) == maxClaims {
		cs.crowded = true
		return
	}
	cs.list = append(cs.list, c)
}

// Cause is why a change stayed without author.
type Cause string

// The causes of an unresolved change, which are metric labels.
const (
	// CauseNoFact: no audit event claimed the version.
	CauseNoFact Cause = "no_fact"
	// CauseAmbiguous: several users claimed it, and nothing tells them apart.
	CauseAmbiguous Cause = "ambiguous"
	// CauseUnproven: the only claims may as well come from writes that changed
	// nothing.
	CauseUnproven Cause = "unproven"
)

// verdict is what the claims on a version amount to.
type verdict struct {
	username string
	// found says that username is the author.
	found    bool
	evidence Evidence
	// received is when a proven author's request came.
	received time.Time
	// settles is when a likely author becomes the author unless somebody else speaks
	// up; zero when there is none.
	settles time.Time
	// cause holds while nothing is found.
	cause Cause
}

// timing is how far times can be trusted.
type timing struct {
	// skew bounds how far the clocks of different sources, and ours, are apart.
	skew time.Duration
	// ahead is how far the sources' clocks are known to be ahead of ours.
	ahead time.Duration
	// delay is how late facts have been.
	delay time.Duration
	// around is how long after its completion a request may still explain a version
	// that it merely may have made.
	around time.Duration
	// now is ours, zero for what is known up to now; final says that nothing more will
	// be waited for.
	now   time.Time
	final bool
}

// decide names the author of the version that was seen at this time (zero: of any
// age), or nobody.
func (cs *claims) decide(seen time.Time, t timing) verdict {
	if cs == nil || len(cs.list) == 0 {
		return verdict{cause: CauseNoFact}
	}
	if v, ok := cs.proven(); ok {
		return v
	}
	var author *claim
	for i := range cs.list {
		c := &cs.list[i]
		switch {
		case c.tooLate(seen, t) || cs.existedBefore(c, t.skew):
		case author == nil:
			author = c
		case author.username != c.username:
			return verdict{cause: CauseAmbiguous}
		case c.evidence < author.evidence:
			author = c
		}
	}
	switch {
	case cs.crowded:
		return verdict{cause: CauseAmbiguous}
	case author == nil || author.stale(seen, t):
		return verdict{cause: CauseUnproven}
	}
	v := verdict{username: author.username.Value(), evidence: author.evidence, cause: CauseUnproven}
	settled := seen.Add(t.delay + answering)
	switch {
	case seen.IsZero() || t.now.IsZero(), author.ended && !author.received.After(seen):
		v.found = true
	case t.final:
		// Where facts are known to come later than that, its silence says nothing.
		v.found = !t.now.Before(settled)
	case !author.received.After(seen.Add(t.ahead)):
		v.settles = settled
		v.found = !t.now.Before(settled)
	}
	return v
}

// proven looks for the user whose request alone can have made the version. Two such
// users contradict each other.
func (cs *claims) proven() (verdict, bool) {
	var author *claim
	for i := range cs.list {
		c := &cs.list[i]
		if c.evidence != Proven {
			continue
		}
		if author != nil && author.username != c.username {
			return verdict{cause: CauseAmbiguous}, true
		}
		author = c
	}
	if author == nil {
		return verdict{}, false
	}
	return verdict{username: author.username.Value(), found: true, received: author.received}, true
}

// existedBefore reports whether somebody had been shown the version before c's
// request was received, so that c cannot have made it.
func (cs *claims) existedBefore(c *claim, skew time.Duration) bool {
	if cs.unordered {
		return false
	}
	for i := range cs.list {
		other := &cs.list[i]
		margin := skew
		if other.source == c.source {
			margin = 0
		}
		if other.completed.Add(margin).Before(c.received) {
			return true
		}
	}
	return false
}

// tooLate reports whether c's request was received only after the version had
// been seen. A claim that is merely possible gets no allowance for clocks but what
// is known of them.
func (c *claim) tooLate(seen time.Time, t timing) bool {
	if seen.IsZero() {
		return false
	}
	allowance := t.skew
	if c.evidence == Possible {
		allowance = t.ahead
	}
	return c.received.After(seen.Add(allowance))
}

// stale reports whether c is merely possible, and the version was seen too long
// after c's request, or nobody knows when.
func (c *claim) stale(seen time.Time, t timing) bool {
	return c.evidence == Possible && (seen.IsZero() || seen.After(c.completed.Add(t.around)))
}
