// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package recovery_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/branch/recovery"
	"github.com/kommit-dev/kommit/pkg/journal"
	"github.com/kommit-dev/kommit/pkg/storage/bolt"
	"github.com/kommit-dev/kommit/pkg/window"
)

var (
	start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	prod  = types.NamespacedName{Namespace: "shop", Name: "prod"}
	test  = types.NamespacedName{Namespace: "shop", Name: "test"}
)

func newDB(t *testing.T) *bolt.DB {
	t.Helper()
	db, err := bolt.Open(t.Context(), bolt.Config{Path: filepath.Join(t.TempDir(), "kommit.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// process is an engine with its journal, until it is killed.
type process struct {
	t       fataler
	rows    journal.Rows
	engine  *window.Engine
	journal *recovery.Journal
	writer  *journal.Writer
	kill    func()
	names   *int
}

// fataler is what rapid and testing have in common.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
	Fatal(args ...any)
}

// begin starts a process on what the one before left.
func begin(ctx context.Context, t fataler, rows journal.Rows, now time.Time, names *int) (*process, recovery.Recovered) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	p := &process{t: t, rows: rows, writer: journal.NewWriter(rows), names: names}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.writer.Run(ctx)
	}()
	p.kill = func() {
		cancel()
		<-done
	}
	p.journal = recovery.New(p.writer)
	left, err := p.journal.Load(ctx)
	if err != nil {
		t.Fatal(err)
	}
	engine, effects := window.Restore(window.Config{MaxBytes: 40, NewName: func(target types.NamespacedName, _ window.Author) string {
		*names++
		return fmt.Sprintf("%s-%d", target.Name, *names)
	}}, now, left.State)
	p.engine = engine
	p.happened(now, effects)
	return p, left
}

// happened keeps what the engine did, on disk.
func (p *process) happened(now time.Time, effects []window.Effect) {
	p.t.Helper()
	p.journal.Effects(now, effects, func(types.NamespacedName) bool { return false })
	if err := p.writer.Sync(context.Background()); err != nil {
		p.t.Fatal(err)
	}
}

// D1, D3: after each event the journal holds what is open, in order and with its
// requests, and the closed writes in the order in which they closed; a process that
// begins then goes on as the one before would have. What is over leaves nothing.
func TestD1TheJournalHoldsWhatIsOpen(t *testing.T) {
	db, runs := newDB(t), 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		rows := journal.NewRows(db, fmt.Sprintf("run-%d", runs))
		r := &randomRun{ctx: t.Context(), now: start, rows: rows}
		r.process, _ = begin(r.ctx, rt, rows, r.now, &r.names)
		for _, name := range []types.NamespacedName{prod, test} {
			r.does(rt, r.process.engine.SetTarget(r.now, window.Target{Name: name, IdleTimeout: 20 * time.Second, MaxDuration: time.Minute}))
		}
		rt.Repeat(map[string]func(*rapid.T){
			"change":       r.change,
			"change again": r.change,
			"request":      r.request,
			"caught up":    r.caughtUp,
			"resync":       r.resync,
			"push":         r.push,
			"wait":         func(rt *rapid.T) { r.now = r.now.Add(5 * time.Second); r.does(rt, r.process.engine.Wake(r.now)) },
			"kill":         r.restart,
		})
		r.end(rt)
	})
}

type randomRun struct {
	ctx      context.Context
	process  *process
	rows     journal.Rows
	now      time.Time
	names    int
	versions int
	asked    []types.UID
	// queued are the closed writes that are not pushed.
	queued []window.Write
}

func (r *randomRun) does(t *rapid.T, effects []window.Effect) {
	t.Helper()
	r.process.t = t
	r.process.happened(r.now, effects)
	for _, effect := range effects {
		switch e := effect.(type) {
		case window.Closed:
			r.queued = append(r.queued, e.Write)
		case window.Resolved:
			r.process.journal.End(e.Request, window.Progress{Reason: e.Reason})
			r.process.journal.Told(e.Request.UID)
		}
	}
}

func (r *randomRun) change(t *rapid.T) {
	r.versions++
	c := window.Change{
		Target:          rapid.SampledFrom([]types.NamespacedName{prod, prod, test}).Draw(t, "target"),
		Object:          window.Object{Group: "apps", Resource: "deployments", Namespace: "shop", Name: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")},
		UID:             "uid",
		ResourceVersion: fmt.Sprint(r.versions),
		Author:          rapid.SampledFrom([]window.Author{{Username: "alice"}, {Username: "bob"}, window.Unresolved}).Draw(t, "author"),
		Operation:       rapid.SampledFrom([]window.Operation{window.Create, window.Update, window.Delete}).Draw(t, "operation"),
	}
	if c.Operation != window.Delete {
		c.Manifest = make([]byte, rapid.IntRange(0, 20).Draw(t, "bytes"))
	}
	r.does(t, r.process.engine.Change(r.now, c))
}

func (r *randomRun) request(t *rapid.T) {
	uid := types.UID(fmt.Sprintf("r%d", len(r.asked)))
	r.asked = append(r.asked, uid)
	r.does(t, r.process.engine.Register(r.now, window.Request{
		RequestRef: window.RequestRef{Namespace: "shop", Name: string(uid), UID: uid}, Target: prod,
		Author: rapid.SampledFrom([]window.Author{{Username: "alice"}, {Username: "bob"}}).Draw(t, "author"), Message: "Message of " + string(uid),
		Attach:         rapid.SampledFrom([]v1alpha1.AttachPolicy{v1alpha1.AttachCurrentOrNext, v1alpha1.AttachNext}).Draw(t, "attach"),
		AttachDeadline: r.now.Add(10 * time.Second), MaxDuration: 10 * time.Second,
		WhenNothingToCommit: rapid.SampledFrom([]v1alpha1.NothingToCommitPolicy{v1alpha1.NothingResolve, v1alpha1.NothingCommitEmpty}).Draw(t, "nothing"),
	}))
}

func (r *randomRun) caughtUp(t *rapid.T) {
	if len(r.asked) == 0 {
		return
	}
	uid := rapid.SampledFrom(r.asked).Draw(t, "request")
	r.process.journal.CaughtUp(uid, "")
	r.does(t, r.process.engine.CaughtUp(r.now, uid))
}

func (r *randomRun) resync(t *rapid.T) {
	r.versions++
	r.does(t, r.process.engine.Resync(r.now, test, []window.Change{{
		Target: test, Object: window.Object{Resource: "configmaps", Namespace: "shop", Name: "r"}, ResourceVersion: fmt.Sprint(r.versions),
		Operation: window.Update, Manifest: []byte("resync"),
	}}))
}

// push is the end of the oldest write, told or not.
func (r *randomRun) push(t *rapid.T) {
	if len(r.queued) == 0 {
		return
	}
	w := r.queued[0]
	r.process.journal.Attempted(w.Name, []recovery.Attempt{{Hash: "1234"}})
	if w.Request != nil {
		r.process.journal.End(w.Request.RequestRef, window.Progress{Reason: v1alpha1.ReasonCommitted, Commit: "1234"})
	}
	if rapid.Bool().Draw(t, "removed first") {
		r.process.journal.Over(w, false)
	}
	if w.Request != nil {
		r.process.journal.Told(w.Request.UID)
	}
	r.process.journal.Over(w, false)
	r.queued = r.queued[1:]
}

// restart holds a process that begins now to the one that ends.
func (r *randomRun) restart(t *rapid.T) {
	before := r.process
	r.does(t, before.engine.Wake(r.now))
	before.kill()
	next, left := begin(r.ctx, t, r.rows, r.now, &r.names)
	r.process = next
	for _, name := range []types.NamespacedName{prod, test} {
		r.does(t, next.engine.SetTarget(r.now, window.Target{Name: name, IdleTimeout: 20 * time.Second, MaxDuration: time.Minute}))
	}
	if diff := gocmp.Diff(before.engine.Windows(), next.engine.Windows()); diff != "" {
		t.Fatalf("open windows: -before +after\n%s", diff)
	}
	writes := make([]window.Write, 0, len(left.Writes))
	for _, w := range left.Writes {
		writes = append(writes, w.Write)
	}
	if diff := gocmp.Diff(slices.Concat(r.queued), slices.Concat(writes), equalTimes); diff != "" {
		t.Fatalf("closed writes: -before +after\n%s", diff)
	}
	if len(left.Ends) > 0 {
		t.Fatalf("ends that were told: %+v", left.Ends)
	}
	due, ok := before.engine.NextWake()
	if dueAgain, okAgain := next.engine.NextWake(); ok != okAgain || !due.Equal(dueAgain) {
		t.Fatalf("the next wake is at %v (%v), before at %v (%v)", dueAgain, okAgain, due, ok)
	}
}

var equalTimes = gocmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) })

// end lets all come to its end.
func (r *randomRun) end(t *rapid.T) {
	for _, uid := range r.asked {
		r.process.journal.CaughtUp(uid, "")
		r.does(t, r.process.engine.CaughtUp(r.now, uid))
	}
	r.now = r.now.Add(time.Hour)
	r.does(t, r.process.engine.Wake(r.now))
	for len(r.queued) > 0 {
		r.push(t)
	}
	r.process.journal.Passed(recovery.Source{Group: "apps", Resource: "deployments", Namespace: "shop"}, fmt.Sprint(r.versions), []byte("place"))
	r.process.journal.Forget(recovery.Source{Resource: "configmaps", Namespace: "shop"})
	r.process.kill()
	var left []string
	if err := r.rows.Scan(r.ctx, "", func(key string, _ []byte) error {
		left = append(left, key)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(left)
	for _, key := range left {
		if !strings.HasPrefix(key, "target/") && !strings.HasPrefix(key, "place/") {
			t.Fatalf("left in the journal: %q", left)
		}
	}
}

// A version that was taken is told as long as it may come again, also after its
// write is gone, and a later one is not.
func TestTakenVersionsAreToldUntilTheirSourceHasPassed(t *testing.T) {
	rows, names := journal.NewRows(newDB(t), "saving"), 0
	change := func(name, version string) window.Change {
		return window.Change{
			Target: prod, Object: window.Object{Resource: "configmaps", Namespace: "shop", Name: name}, ResourceVersion: version,
			Author: window.Author{Username: "alice"}, Operation: window.Update, Manifest: []byte(version),
		}
	}
	source := recovery.Source{Resource: "configmaps", Namespace: "shop"}
	p, _ := begin(t.Context(), t, rows, start, &names)
	p.engine.SetTarget(start, window.Target{Name: prod})
	p.happened(start, p.engine.Change(start, change("a", "9")))
	p.happened(start, p.engine.Change(start, change("b", "10")))
	effects := p.engine.Shutdown(start)
	p.happened(start, effects)
	p.journal.Over(effects[0].(window.Closed).Write, false)
	p.happened(start, p.engine.Change(start, change("b", "12")))
	if p.journal.Again(change("a", "9")) {
		t.Error("a version of this process is taken as one that comes again")
	}
	p.kill()

	p, _ = begin(t.Context(), t, rows, start, &names)
	tests := []struct {
		name, version string
		again         bool
	}{{"a", "8", true}, {"a", "9", true}, {"a", "10", false}, {"b", "10", true}, {"b", "12", true}, {"b", "13", false}, {"c", "1", false}, {"a", "", false}}
	for _, test := range tests {
		if got := p.journal.Again(change(test.name, test.version)); got != test.again {
			t.Errorf("%s at %s comes again: %v, want %v", test.name, test.version, got, test.again)
		}
	}
	p.journal.Passed(source, "9", []byte("at 9"))
	if p.journal.Again(change("a", "9")) || !p.journal.Again(change("b", "12")) {
		t.Error("what the source has passed is told, or what it has not is not")
	}
	p.kill()

	p, _ = begin(t.Context(), t, rows, start, &names)
	if place, ok := p.journal.Place(source); !ok || string(place) != "at 9" {
		t.Errorf("the place is %q (%v)", place, ok)
	}
	if p.journal.Again(change("a", "9")) || !p.journal.Again(change("b", "12")) {
		t.Error("another process tells it otherwise")
	}
	p.journal.Forget(source)
	if p.journal.Again(change("b", "12")) {
		t.Error("a source that begins anew brings nothing again")
	}
	p.kill()
	p, _ = begin(t.Context(), t, rows, start, &names)
	defer p.kill()
	if _, ok := p.journal.Place(source); ok {
		t.Error("a forgotten place is there")
	}
}

// D3: the end of a request is there until it was told, and what it was about is over
// even if its rows were not removed.
func TestD3EndsAreKeptUntilTheyAreTold(t *testing.T) {
	rows, names := journal.NewRows(newDB(t), "saving"), 0
	request := window.Request{RequestRef: window.RequestRef{Namespace: "shop", Name: "save", UID: "1"}, Target: prod, Author: window.Author{Username: "alice"}}
	p, _ := begin(t.Context(), t, rows, start, &names)
	p.engine.SetTarget(start, window.Target{Name: prod})
	p.happened(start, p.engine.Register(start, request))
	p.happened(start, p.engine.Change(start, window.Change{Target: prod, Object: window.Object{Name: "a"}, Author: request.Author, ResourceVersion: "1", Operation: window.Update, Manifest: []byte("a")}))
	p.journal.CaughtUp("1", "configmaps")
	p.happened(start, p.engine.CaughtUp(start, "1"))
	p.kill()

	p, left := begin(t.Context(), t, rows, start, &names)
	if len(left.Writes) != 1 || left.Writes[0].Request == nil || left.Writes[0].Request.UID != "1" || left.CaughtUp["1"] != "configmaps" || len(left.Requests) > 0 {
		t.Fatalf("left are %+v", left)
	}
	progress := window.Progress{Reason: v1alpha1.ReasonCommitted, Branch: "main", Commit: "1234"}
	p.journal.End(request.RequestRef, progress) // and the kill comes before Over
	p.kill()

	p, left = begin(t.Context(), t, rows, start, &names)
	want := []recovery.End{{RequestRef: request.RequestRef, Progress: progress}}
	if len(left.Writes) > 0 || !gocmp.Equal(left.Ends, want) {
		t.Fatalf("left are %+v, want the end alone", left)
	}
	p.journal.Told("1")
	p.kill()
	p, left = begin(t.Context(), t, rows, start, &names)
	defer p.kill()
	if len(left.Ends)+len(left.Writes) > 0 {
		t.Errorf("left are %+v", left)
	}
}

// D5: what makes no sense is named and left out; the rest is there.
func TestD5DamageIsNamedAndTheRestIsThere(t *testing.T) {
	db, names := newDB(t), 0
	rows := journal.NewRows(db, "saving")
	p, _ := begin(t.Context(), t, rows, start, &names)
	p.engine.SetTarget(start, window.Target{Name: prod})
	for _, name := range []string{"a", "b"} {
		p.happened(start, p.engine.Change(start, window.Change{Target: prod, Object: window.Object{Name: name}, Author: window.Author{Username: "alice"}, ResourceVersion: "1", Operation: window.Update, Manifest: []byte("x")}))
	}
	p.kill()
	if err := db.Update(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket([]byte("journal/saving"))
		key, row := bucket.Cursor().First()
		row = slices.Clone(row)
		row[len(row)-1] ^= 1
		return bucket.Put(slices.Clone(key), row)
	}); err != nil {
		t.Fatal(err)
	}
	if err := rows.Commit(t.Context(), []journal.Step{journal.Put("request/odd", []byte("{")), journal.Put("change/x/y", []byte{1, 0, 5}), journal.Put("place/odd", nil), journal.Put("target/odd", []byte("{}"))}); err != nil {
		t.Fatal(err)
	}
	left, err := recovery.New(journal.NewWriter(rows)).Load(t.Context())
	if !recovery.IsDamage(err) {
		t.Fatalf("got %v, want damage", err)
	}
	if _, ok := errors.AsType[*journal.DamagedError](err); !ok {
		t.Errorf("the damaged row is not named: %v", err)
	}
	if len(left.Windows) != 1 || len(left.Windows[0].Changes) != 1 || left.Windows[0].Changes[0].Object.Name != "b" {
		t.Errorf("windows are %+v, want one with b", left.Windows)
	}
	if recovery.IsDamage(errors.New("the disk")) {
		t.Error("an error of the disk is taken as damage")
	}
}
