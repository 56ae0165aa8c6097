// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kommit-dev/kommit/pkg/window"
	"github.com/kommit-dev/kommit/test/recording"
)

// changeKey is what the truth is known by: a version, or the end of an object.
func changeKey(c window.Change) string {
	if c.Operation == window.Delete {
		return string(c.UID)
	}
	return string(c.UID) + "@" + c.ResourceVersion
}

func deedKey(d recording.Deed) string {
	if d.ResourceVersion == "" {
		return d.UID
	}
	return d.UID + "@" + d.ResourceVersion
}

// recorded is a recording with what the contract leaves unresolved in it, by the
// case of the script.
type recorded struct {
	name string
	// never are cases whose author cannot be found, maybe those that need luck.
	never, maybe sets.Set[string]
	// bodyless says that no write has a response, so that none has an author.
	bodyless bool
	// silent says that nothing at all has an author.
	silent bool
}

// recordings are the rows of the table; orders are its columns.
func recordings() []recorded {
	// A patch that changes nothing, while another user writes by the same program: no
	// event tells who of them it was.
	race := sets.New("race")
	return []recorded{
		{name: "recommended", maybe: race},
		{name: "batched", maybe: race},
		{name: "everything", maybe: race},
		{name: "no-managed-fields", maybe: race},
		// Deletions join by name and by scope; under a name that comes again, and for who
		// asked first, that says too little.
		{name: "request", maybe: sets.New("delete before recreate", "delete with finalizer"), bodyless: true},
		{name: "metadata", silent: true},
		// kube-apiserver cut the bodies of these; the list of all ConfigMaps holds the
		// large one.
		{name: "truncated", never: sets.New("large"), maybe: race.Union(sets.New("deletecollection of all"))},
	}
}

// unresolved reports whether the deed must, or may, stay without author in the order.
func (r recorded) unresolved(d recording.Deed, o order) (must, may bool) {
	write := d.ResourceVersion != ""
	must = r.silent || r.bodyless && write || r.never.Has(d.Case)
	may = must || r.maybe.Has(d.Case) ||
		// The answer to an eviction names no uid: it joins by name within two seconds.
		d.Case == "eviction" && o.watch != nil ||
		// So do all deletions without response; and a second collection of a scope within
		// half a minute is one too many.
		r.bodyless && (o.watch != nil || o.late > 0)
	return must, may
}

// TestRecordedStreams: whatever the order in which audit and watches of a real
// kube-apiserver come, every change of intent is captured once, in the order of its
// object, and has its author or, where the contract says so, none (C3, C4, C6-C8).
func TestRecordedStreams(t *testing.T) {
	for _, row := range recordings() {
		r, err := recording.Open(row.name)
		if err != nil {
			t.Fatal(err)
		}
		objects := decoded(t, r)
		for _, o := range orders() {
			t.Run(row.name+"/"+o.name, func(t *testing.T) {
				var sum tally
				for seed := range max(1, o.seeds) {
					check(t, row, r, o, replay(t, r, objects, o, seed), &sum)
				}
				t.Logf("%d changes: %d resolved, %d unresolved, %d wrong", sum.resolved+sum.unresolved+sum.wrong, sum.resolved, sum.unresolved, sum.wrong)
				switch {
				case sum.wrong != 0:
					t.Errorf("%d wrong authors", sum.wrong)
				case (sum.resolved == 0) != (row.silent || row.bodyless && o.beyond):
					t.Errorf("%d changes have an author", sum.resolved)
				case o.beyond && sum.unresolved == 0:
					t.Error("no event came beyond the grace: this shows nothing")
				}
			})
		}
	}
}

// tally counts the changes of an order.
type tally struct{ resolved, unresolved, wrong int }

// check compares one replay with the truth.
func check(t *testing.T, row recorded, r *recording.Recording, o order, got outcome, sum *tally) {
	truth := map[string]recording.Deed{}
	for _, d := range r.Truth {
		truth[deedKey(d)] = d
	}
	came := map[string]int{}
	last := map[window.Object]string{}
	for _, c := range got.changes {
		key := changeKey(c)
		came[key]++
		d, known := truth[key]
		if !known || d.Scripted && !d.Intent {
			t.Errorf("captured without intent: %s of %v, %q", c.ResourceVersion, c.Object, d.Case)
		}
		if compareVersions(last[c.Object], c.ResourceVersion) > 0 {
			t.Errorf("%v: version %s after %s", c.Object, c.ResourceVersion, last[c.Object])
		}
		last[c.Object] = c.ResourceVersion
		must, may := row.unresolved(d, o)
		switch {
		case c.Author.Unresolved:
			sum.unresolved++
			if !may && !(o.beyond && excused(r, d, got)) {
				t.Errorf("unresolved: %s by %s, %v version %s", d.Case, d.Author, c.Object, c.ResourceVersion)
			}
		case c.Author.Username != d.Author:
			sum.wrong++
			t.Errorf("wrong author: %s by %s, %v version %s, is said to be by %s", d.Case, d.Author, c.Object, c.ResourceVersion, c.Author.Username)
		default:
			sum.resolved++
			if must {
				t.Errorf("resolved by luck: %s by %s, %v version %s", d.Case, d.Author, c.Object, c.ResourceVersion)
			}
		}
	}
	for key, d := range truth {
		if n := came[key]; d.Intent && n != 1 || n > 1 {
			t.Errorf("captured %d times: %s by %s, %s", n, d.Case, d.Author, key)
		}
	}
}

// excused reports whether the events that tell of the deed came after its grace, or
// could not be believed: while facts come later than the grace, only those that prove
// something are.
func excused(r *recording.Recording, d recording.Deed, got outcome) bool {
	proving := d.ResourceVersion != "" && slices.ContainsFunc([]string{"create", "update", "generateName", "recreate", "apply creates"},
		func(name string) bool { return strings.HasPrefix(d.Case, name) })
	deadline := got.seen[deedKey(d)].Add(grace)
	for _, p := range got.audit {
		if proving && tells(p.event, d) && slices.ContainsFunc(p.at, func(at time.Time) bool { return at.Before(deadline) }) {
			return false
		}
	}
	return true
}

// tells reports whether the audit event says that the deed's author made its version.
func tells(event json.RawMessage, d recording.Deed) bool {
	var e struct {
		Stage            string
		User             struct{ Username string }
		ImpersonatedUser struct{ Username string }
		ResponseObject   struct {
			Metadata struct{ UID, ResourceVersion string }
		}
	}
	if err := json.Unmarshal(event, &e); err != nil {
		return false
	}
	made := e.ResponseObject.Metadata
	return e.Stage == "ResponseComplete" && made.UID == d.UID && made.ResourceVersion == d.ResourceVersion &&
		cmp.Or(e.ImpersonatedUser.Username, e.User.Username) == d.Author
}
