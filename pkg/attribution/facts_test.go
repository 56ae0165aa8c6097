// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// t0 is when the stories begin; at(n) is n milliseconds later.
var t0 = time.Date(2026, 11, 4, 10, 15, 30, 0, time.UTC)

func at(ms int) time.Time { return t0.Add(time.Duration(ms) * time.Millisecond) }

// wrote is a fact about version 7 of object u, whose request ran from..to.
func wrote(username string, e Evidence, from, to int) Fact {
	return Fact{
		UID: "u", ResourceVersion: "7", Username: username, Verb: verbPatch, Resource: "configmaps", Namespace: "shop", Name: "settings",
		Time: at(from), Completed: at(to), Evidence: e, Source: "10.0.0.1",
	}
}

func deleted(username string, from, to int) Fact {
	f := wrote(username, Likely, from, to)
	f.Verb, f.ResourceVersion = verbDelete, ""
	return f
}

func with(f Fact, change func(*Fact)) Fact {
	change(&f)
	return f
}

func settings(seen int) Version {
	return Version{UID: "u", ResourceVersion: "7", Resource: "configmaps", Namespace: "shop", Name: "settings", Seen: at(seen)}
}

func settingsDeleted(seen int) Version {
	v := settings(seen)
	v.Deleted, v.ResourceVersion = true, "9"
	return v
}

// permutations calls f with the facts in every order.
func permutations(facts []Fact, f func([]Fact)) {
	var permute func(n int)
	permute = func(n int) {
		if n <= 1 {
			f(facts)
			return
		}
		for i := range n {
			permute(n - 1)
			j := 0
			if n%2 == 0 {
				j = i
			}
			facts[j], facts[n-1] = facts[n-1], facts[j]
		}
	}
	permute(len(facts))
}

// TestFind is what the facts about one version amount to once all are there, in
// every order and with every fact twice (C7). Empty want is unresolved.
func TestFind(t *testing.T) {
	other := func(f Fact) Fact { return with(f, func(f *Fact) { f.Source = "10.0.0.2" }) }
	list := Version{UID: "u", ResourceVersion: "7"}
	listDeleted := Version{UID: "u", Deleted: true}
	unnamed := func(f Fact) Fact { return with(f, func(f *Fact) { f.UID, f.Evidence = "", Possible }) }
	collection := func(f Fact, selector string) Fact {
		return with(f, func(f *Fact) { f.UID, f.Name, f.Verb, f.LabelSelector = "", "", verbDeleteCollection, selector })
	}
	tests := []struct {
		name    string
		version Version
		facts   []Fact
		want    string
	}{
		{"nobody", settings(20), nil, ""},
		{"C7 exact version", settings(20), []Fact{wrote("alice", Likely, 0, 10)}, "alice"},
		{"C7 another version", settings(20), []Fact{with(wrote("alice", Proven, 0, 10), func(f *Fact) { f.ResourceVersion = "6" })}, ""},
		{"C26 another incarnation", settings(20), []Fact{with(wrote("alice", Proven, 0, 10), func(f *Fact) { f.UID = "v" })}, ""},
		{"C27 each version has its author", settings(20), []Fact{wrote("alice", Likely, 0, 10), with(wrote("operator", Likely, 11, 15), func(f *Fact) { f.ResourceVersion = "8" })}, "alice"},
		{"a deletion makes no version", settings(20), []Fact{deleted("bob", 0, 10)}, ""},
		{"a fact without user", settings(20), []Fact{wrote("", Proven, 0, 10)}, ""},

		{"C3 no-op after the write", settings(20), []Fact{wrote("alice", Likely, 0, 10), wrote("bob", Possible, 30, 40)}, "alice"},
		{"C3 no-op before the watch event", settings(50), []Fact{wrote("alice", Likely, 0, 10), wrote("bob", Likely, 11, 20)}, "alice"},
		{"C3 no-op of the same tool in the same second", settings(20), []Fact{wrote("alice", Likely, 0, 10), wrote("bob", Likely, 30, 40)}, "alice"},
		{"C3 many no-ops", settings(20), []Fact{wrote("alice", Possible, 0, 10), wrote("bob", Possible, 30, 40), wrote("carol", Possible, 35, 45)}, "alice"},
		{"C3 no-op during the write", settings(20), []Fact{wrote("alice", Likely, 0, 10), wrote("bob", Likely, 5, 15)}, ""},
		{"C3 no-op during a proven write", settings(20), []Fact{wrote("alice", Proven, 0, 10), wrote("bob", Likely, 5, 15)}, "alice"},
		{"C3 only the no-op's fact came", settings(20), []Fact{wrote("bob", Possible, 30, 40)}, ""},
		{"C3 only the no-op's fact came, an hour later", settings(20), []Fact{wrote("bob", Likely, 3_600_000, 3_600_010)}, ""},
		{"the writer's own no-op", settings(20), []Fact{wrote("alice", Likely, 0, 10), wrote("alice", Possible, 5, 15), wrote("alice", Possible, 40, 50)}, "alice"},
		{"two proofs contradict each other", settings(20), []Fact{wrote("alice", Proven, 0, 10), wrote("bob", Proven, 11, 20)}, ""},

		{"two kube-apiservers within the clock skew", settings(20), []Fact{wrote("alice", Likely, 0, 10), other(wrote("bob", Likely, 15, 20))}, ""},
		{"two kube-apiservers beyond the clock skew", settings(20), []Fact{wrote("alice", Likely, 0, 10), other(wrote("bob", Likely, 1500, 1600))}, "alice"},
		{"a clock that is ahead within the skew", settings(20), []Fact{wrote("alice", Likely, 500, 510)}, "alice"},

		{"a removal only, live", settings(20), []Fact{wrote("alice", Possible, 0, 10)}, "alice"},
		{"a removal only, seen late", settings(60_000), []Fact{wrote("alice", Possible, 0, 10)}, ""},
		{"C9 listed", list, []Fact{wrote("alice", Likely, 0, 10)}, "alice"},
		{"C9 listed, create", list, []Fact{wrote("alice", Proven, 0, 10), wrote("bob", Possible, 60_000, 60_010)}, "alice"},
		{"C9 listed, a removal or a no-op", list, []Fact{wrote("flux", Possible, 0, 10)}, ""},

		{"C4 deletion by uid", settingsDeleted(20), []Fact{deleted("alice", 0, 10)}, "alice"},
		{"C4 the first who asked", settingsDeleted(20), []Fact{deleted("alice", 0, 10), deleted("bob", 12, 15)}, "alice"},
		{"C4 not who finished it", settingsDeleted(20), []Fact{deleted("alice", 0, 10), deleted("kubelet", 500, 510)}, "alice"},
		{"C4 not who cleared the finalizer", settingsDeleted(20), []Fact{with(wrote("controller", Possible, 0, 10), func(f *Fact) { f.ResourceVersion = "9" })}, ""},
		{"C4 two at once", settingsDeleted(20), []Fact{deleted("alice", 0, 10), deleted("bob", 5, 15)}, ""},
		{"C26 deletion of another incarnation", settingsDeleted(20), []Fact{with(deleted("alice", 0, 10), func(f *Fact) { f.UID = "v" })}, ""},
		{"C7 deletion listed as gone", listDeleted, []Fact{deleted("alice", 0, 10)}, "alice"},
		{"C7 collection by listed uids", settingsDeleted(20), []Fact{with(deleted("alice", 0, 10), func(f *Fact) { f.Verb = verbDeleteCollection })}, "alice"},

		{"C13 eviction by name", settingsDeleted(20), []Fact{unnamed(deleted("alice", 0, 10))}, "alice"},
		{"C13 by name, much later", settingsDeleted(10_000), []Fact{unnamed(deleted("alice", 0, 10))}, ""},
		{"C26 by name, of an earlier incarnation", settingsDeleted(100), []Fact{unnamed(deleted("alice", 0, 10)), wrote("bob", Proven, 50, 60)}, ""},
		{"by name, twice", settingsDeleted(100), []Fact{unnamed(deleted("alice", 0, 10)), unnamed(deleted("bob", 70, 80))}, ""},
		{"by uid before by name", settingsDeleted(20), []Fact{deleted("alice", 0, 10), unnamed(deleted("bob", 0, 10))}, "alice"},
		{"by name, of a list", listDeleted, []Fact{unnamed(deleted("alice", 0, 10))}, ""},

		{"C7 scope", settingsDeleted(20), []Fact{collection(deleted("alice", 0, 10), "")}, "alice"},
		{"C7 scope, all namespaces", settingsDeleted(20), []Fact{with(collection(deleted("alice", 0, 10), ""), func(f *Fact) { f.Namespace = "" })}, "alice"},
		{"C7 scope, another namespace", settingsDeleted(20), []Fact{with(collection(deleted("alice", 0, 10), ""), func(f *Fact) { f.Namespace = "kitchen" })}, ""},
		{"C7 scope, another resource", settingsDeleted(20), []Fact{with(collection(deleted("alice", 0, 10), ""), func(f *Fact) { f.Resource = "secrets" })}, ""},
		{"C7 scope, 31 s later", settingsDeleted(31_011), []Fact{collection(deleted("alice", 0, 10), "")}, ""},
		{"C9 second collection of the scope", settingsDeleted(20), []Fact{collection(deleted("alice", 0, 10), ""), collection(deleted("bob", 5000, 5010), "")}, "alice"},
		{"C9 what the first collection left", settingsDeleted(5020), []Fact{collection(deleted("alice", 0, 10), ""), collection(deleted("bob", 5000, 5010), "")}, ""},
		{"C9 what was made after the first collection", settingsDeleted(5020), []Fact{collection(deleted("alice", 0, 10), ""), collection(deleted("bob", 5000, 5010), ""), wrote("carol", Proven, 100, 110)}, "bob"},
		{"C7 scope with selector, labels unknown", settingsDeleted(20), []Fact{collection(deleted("alice", 0, 10), "app=web")}, ""},
		{"C7 scope with selector", labelled(settingsDeleted(20), "web"), []Fact{collection(deleted("alice", 0, 10), "app in (web, api)")}, "alice"},
		{"C7 scope with another selector", labelled(settingsDeleted(20), "db"), []Fact{collection(deleted("alice", 0, 10), "app in (web, api)")}, ""},
		{"C7 scope with a broken selector", settingsDeleted(20), []Fact{collection(deleted("alice", 0, 10), "app in (")}, ""},
		{"C7 scope by name", settingsDeleted(20), []Fact{with(collection(deleted("alice", 0, 10), ""), func(f *Fact) { f.FieldSelector = "metadata.name=settings" })}, "alice"},
		{"C7 scope by another name", settingsDeleted(20), []Fact{with(collection(deleted("alice", 0, 10), ""), func(f *Fact) { f.FieldSelector = "metadata.name!=settings" })}, ""},
		{"C7 scope by a field we do not know", settingsDeleted(20), []Fact{with(collection(deleted("alice", 0, 10), ""), func(f *Fact) { f.FieldSelector = "spec.nodeName!=n1" })}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			twice := slices.Concat(tt.facts, tt.facts)
			if len(twice) > 6 {
				twice = twice[:6]
			}
			permutations(twice, func(facts []Fact) {
				f := NewFacts(FactsConfig{})
				for _, fact := range facts {
					if err := f.Add(at(60_000), fact); err != nil {
						t.Fatal(err)
					}
				}
				if username, ok := f.Find(tt.version); username != tt.want || ok != (tt.want != "") {
					t.Fatalf("got %q, %v, want %q of %v", username, ok, tt.want, facts)
				}
			})
		})
	}
}

func labelled(v Version, app string) Version {
	v.Labels = map[string]string{"app": app}
	return v
}

// TestFindNow is when an author is known while more facts may come.
func TestFindNow(t *testing.T) {
	tests := []struct {
		name    string
		fact    Fact
		found   bool
		settles time.Time
	}{
		{"proven", wrote("alice", Proven, 0, 10), true, time.Time{}},
		{"proven, by a clock that is ahead", wrote("alice", Proven, 5000, 5010), true, time.Time{}},
		{"likely", wrote("alice", Likely, 0, 10), false, at(70).Add(firstDelay)},
		{"likely, received after it was seen", wrote("bob", Likely, 30, 40), false, time.Time{}},
		{"possible", wrote("alice", Possible, 0, 10), false, at(70).Add(firstDelay)},
		{"possible, received after it was seen", wrote("bob", Possible, 30, 40), false, time.Time{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := NewFacts(FactsConfig{})
			f.Restore(at(50), tt.fact) // without a lateness
			v := settings(20)
			got := f.find(&v, at(50), false)
			if got.found != tt.found || !tt.found && !got.settles.Equal(tt.settles) {
				t.Errorf("got %+v", got)
			}
			if tt.settles.IsZero() {
				return
			}
			if got := f.find(&v, tt.settles.Add(-1), false); got.found {
				t.Errorf("found before it settled: %+v", got)
			}
			if got := f.find(&v, tt.settles, false); !got.found || got.username != tt.fact.Username {
				t.Errorf("not found after it settled: %+v", got)
			}
		})
	}
}

// TestSettlingFollowsLateness: settling takes as long as facts have been late.
func TestSettlingFollowsLateness(t *testing.T) {
	f := NewFacts(FactsConfig{})
	another := func(from, to int) Fact {
		return with(wrote("carol", Proven, from, to), func(f *Fact) { f.UID = "v" })
	}
	add(t, f, at(-60_000), another(-60_010, -60_008))
	add(t, f, at(18), wrote("alice", Possible, 0, 10))
	v := settings(5)
	if got := f.find(&v, at(63), false); !got.found || !got.settles.Equal(at(63)) {
		t.Errorf("8 ms late: got %+v", got)
	}
	add(t, f, at(3010), another(0, 10))
	if got := f.find(&v, at(3054), false); got.found || !got.settles.Equal(at(3055)) {
		t.Errorf("3 s late: got %+v", got)
	}
	add(t, f, at(200_000), another(199_990, 199_995))
	add(t, f, at(300_000), another(299_990, 299_995))
	if late := f.Health(at(300_000)).Delay; late != 5*time.Millisecond {
		t.Errorf("minutes later the lateness is %v", late)
	}
}

// TestBacklogIsNotLateness: what was answered while nobody took events comes late,
// which says nothing about what is answered later.
func TestBacklogIsNotLateness(t *testing.T) {
	f := NewFacts(FactsConfig{})
	f.ServedSince(at(0))
	add(t, f, at(10_000), with(wrote("carol", Proven, -500, -400), func(f *Fact) { f.UID = "v" }))
	if late := f.Health(at(10_000)).Delay; late != 0 {
		t.Errorf("a backlog made the lateness %v", late)
	}
	add(t, f, at(10_000), with(wrote("carol", Proven, 6_900, 7_000), func(f *Fact) { f.UID = "v" }))
	if late := f.Health(at(10_000)).Delay; late != 3*time.Second {
		t.Errorf("a late fact made the lateness %v, want 3s", late)
	}
}

// TestClocksAhead: what is known of kube-apiserver's clock decides how long a request
// that seems to have come after its version is waited for.
func TestClocksAhead(t *testing.T) {
	f := NewFacts(FactsConfig{})
	v := settings(20)
	f.Restore(at(50), wrote("alice", Likely, 120, 130))
	if got := f.find(&v, at(3000), false); got.found || !got.settles.IsZero() {
		t.Errorf("before anything is known: got %+v", got)
	}
	if got := f.find(&v, at(3000), true); !got.found {
		t.Errorf("at the end of the grace: got %+v", got)
	}
	f.noteProven(at(5300), at(5200))
	if got := f.find(&v, at(3000), false); !got.found {
		t.Errorf("knowing that the clock is 100 ms ahead: got %+v", got)
	}
	f.noteProven(at(90_000), at(5200))
	if ahead := f.Health(at(0)).ClocksAhead; ahead != DefaultClockSkew {
		t.Errorf("a clock that is ahead beyond the skew: got %v", ahead)
	}
}

func add(t testing.TB, f *Facts, now time.Time, facts ...Fact) {
	t.Helper()
	if err := f.Add(now, facts...); err != nil {
		t.Fatal(err)
	}
}

type failingKeeper struct{ err error }

func (k *failingKeeper) Keep(time.Time, []Fact) error { return k.err }

// TestNothingIsUsedThatIsNotKept is C5.
func TestNothingIsUsedThatIsNotKept(t *testing.T) {
	full := errors.New("disk full")
	k := &failingKeeper{err: full}
	f := NewFacts(FactsConfig{Keeper: k})
	f.subscribe(func([]Fact) { t.Error("told of facts that are not kept") })
	err := f.Add(at(20), wrote("alice", Proven, 0, 10))
	var notKept *NotKeptError
	if !errors.As(err, &notKept) || !errors.Is(err, full) || notKept.Facts != 1 {
		t.Errorf("got %v", err)
	}
	if username, ok := f.Find(settings(20)); ok {
		t.Errorf("found %q", username)
	}
	f = NewFacts(FactsConfig{Keeper: k})
	k.err = nil
	add(t, f, at(20), wrote("alice", Proven, 0, 10))
	if username, ok := f.Find(settings(20)); !ok || username != "alice" {
		t.Errorf("got %q, %v", username, ok)
	}
}

func TestFactsAreForgotten(t *testing.T) {
	f := NewFacts(FactsConfig{TTL: time.Minute})
	add(t, f, at(0), wrote("alice", Proven, 0, 10), deleted("alice", 0, 10),
		with(deleted("alice", 0, 10), func(f *Fact) { f.UID = "" }), with(deleted("alice", 0, 10), func(f *Fact) { f.UID, f.Verb = "", verbDeleteCollection }))
	add(t, f, at(59_999), with(wrote("bob", Proven, 0, 10), func(f *Fact) { f.ResourceVersion = "8" }))
	if _, ok := f.Find(settings(20)); !ok {
		t.Error("forgotten too early")
	}
	add(t, f, at(60_011), with(wrote("bob", Proven, 0, 10), func(f *Fact) { f.UID = "v" }))
	for _, v := range []Version{settings(20), settingsDeleted(20)} {
		if username, ok := f.Find(v); ok {
			t.Errorf("found %q for %v", username, v)
		}
	}
	if username, _ := f.Find(with8(settings(20))); username != "bob" {
		t.Errorf("got %q for the later version", username)
	}
	add(t, f, at(300_000), with(wrote("bob", Proven, 0, 10), func(f *Fact) { f.UID = "w" }))
	if len(f.objects) != 1 || len(f.named) != 0 || len(f.scopes) != 0 || len(f.expiry)-f.head != 1 {
		t.Errorf("%d objects, %d names, %d scopes are left", len(f.objects), len(f.named), len(f.scopes))
	}
}

func with8(v Version) Version {
	v.ResourceVersion = "8"
	return v
}

func TestFactsAreBounded(t *testing.T) {
	f := NewFacts(FactsConfig{MaxFacts: 100})
	for i := range 10_000 {
		add(t, f, at(i), with(wrote("alice", Proven, i, i), func(f *Fact) {
			f.UID, f.ResourceVersion = types.UID(fmt.Sprint("u", i%7)), fmt.Sprint(i)
		}), with(deleted("alice", i, i), func(f *Fact) { f.UID, f.Name = "", fmt.Sprint(i) }),
			with(deleted("alice", i, i), func(f *Fact) { f.UID, f.Verb = "", verbDeleteCollection }))
	}
	versions := 0
	for _, o := range f.objects {
		versions += len(o.versions)
	}
	if versions+len(f.named) != 100 || len(f.expiry) > 400 || len(f.scopes) > maxScopes {
		t.Errorf("%d versions, %d names, %d to expire, %d scopes", versions, len(f.named), len(f.expiry), len(f.scopes))
	}
	if username, ok := f.Find(Version{UID: types.UID(fmt.Sprint("u", 9999%7)), ResourceVersion: "9999"}); !ok || username != "alice" {
		t.Errorf("the newest is gone: %q, %v", username, ok)
	}
}

// TestCrowdedClaims: so many users on one version name nobody, and take no memory.
func TestCrowdedClaims(t *testing.T) {
	f := NewFacts(FactsConfig{})
	for i := range 1000 {
		add(t, f, at(20), wrote(fmt.Sprint("user", i), Likely, 0, 10))
	}
	if username, ok := f.Find(settings(20)); ok {
		t.Errorf("found %q", username)
	}
	if n := len(f.objects["u"].versions[0].claims.list); n > maxClaims {
		t.Errorf("%d claims", n)
	}
}

// TestHealth is C12: who is told what, as time goes by.
func TestHealth(t *testing.T) {
	configMaps, widgets := schema.GroupResource{Resource: "configmaps"}, schema.GroupResource{Group: "example.com", Resource: "widgets"}
	f := NewFacts(FactsConfig{})
	expect := func(now int, ofConfigMaps, ofWidgets Degradation) {
		t.Helper()
		h := f.Health(at(now))
		for gr, want := range map[schema.GroupResource]Degradation{configMaps: ofConfigMaps, widgets: ofWidgets} {
			why, cure := h.Degradation([]schema.GroupResource{{Resource: "secrets"}, gr})
			if why != want || (cure == "") != (want == "") {
				t.Errorf("%v after %d ms: got %q %q, want %q", gr, now, why, cure, want)
			}
		}
		if why, _ := h.Degradation(nil); why != "" && why != AuditEventsLate {
			t.Errorf("nothing is captured: got %q", why)
		}
	}
	expect(0, "", "")
	f.noteInVain(at(45_000), configMaps)
	expect(46_000, NoAuditEvents, "")
	f.noteBodyless(at(50_000), resourceSet("configmaps"))
	expect(51_000, NoResponseBodies, "")
	add(t, f, at(60_000), with(wrote("alice", Likely, 59_980, 59_990), func(f *Fact) { f.Resource = "services" }))
	expect(61_000, NoResponseBodies, "") // facts of others do not help
	if h := f.Health(at(61_000)); len(h.WithoutBodies) != 1 || h.WithoutBodies[0] != configMaps || !h.LastFact.Equal(at(60_000)) || h.Delay != 10*time.Millisecond {
		t.Errorf("got %+v", h)
	}
	f.noteInVain(at(61_500), widgets) // left out of the policy
	expect(61_600, NoResponseBodies, NoAuditEvents)
	add(t, f, at(62_000), wrote("alice", Likely, 61_000, 61_001))
	expect(62_000, "", NoAuditEvents)
	add(t, f, at(63_000), with(wrote("alice", Likely, 62_900, 62_901), func(f *Fact) { f.Group, f.Resource = "example.com", "widgets" }))
	expect(63_000, "", "")
	add(t, f, at(120_000), with(wrote("alice", Likely, 70_000, 70_001), func(f *Fact) { f.ResourceVersion = "9" }))
	expect(120_001, AuditEventsLate, AuditEventsLate)
	expect(3_600_000, "", "")
}

func resourceSet(resources ...string) map[schema.GroupResource]bool {
	set := map[schema.GroupResource]bool{}
	for _, r := range resources {
		set[schema.GroupResource{Resource: r}] = true
	}
	return set
}

// TestSettlingIsLearntFromPosts: eight POSTs of each sender tell the interval of its
// batches, give or take a half.
func TestSettlingIsLearntFromPosts(t *testing.T) {
	post := func(f *Facts, second int, late time.Duration, source string) {
		t.Helper()
		now := at(1000 * second)
		if err := f.Add(now, Fact{UID: "v", ResourceVersion: "1", Username: "carol", Verb: verbUpdate, Time: now.Add(-late), Completed: now.Add(-late), Source: source}); err != nil {
			t.Fatal(err)
		}
	}
	f := NewFacts(FactsConfig{})
	want := func(when string, want time.Duration) {
		t.Helper()
		if got := f.delays.settling(); got != want {
			t.Errorf("%s it takes %v, want %v", when, got, want)
		}
	}
	want("at first", firstDelay)
	post(f, 1, 300*time.Millisecond, "a")
	want("after an early one", firstDelay)
	post(f, 2, 1100*time.Millisecond, "a")
	want("after a late one", slowDelay)
	for i := range knownPosts - 2 {
		post(f, 3+i, 500*time.Millisecond, "a")
	}
	want("once the sender is known", 2200*time.Millisecond)
	post(f, 10, 150*time.Millisecond, "b")
	want("when another sender comes", slowDelay)
	for i := range knownPosts - 1 {
		post(f, 11+i, 150*time.Millisecond, "b")
	}
	want("once both are known", 2200*time.Millisecond)
	post(f, 70, 900*time.Millisecond, "a")
	want("after a minute", 1100*time.Millisecond)
}
