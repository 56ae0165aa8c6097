// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

// machine drives a database and its model through the same steps.
type machine struct {
	newFile   func() string
	db        *DB
	resources []*modelled
	ctx       context.Context
}

// modelled is one resource, what it should be, and who reads it for long.
type modelled struct {
	*modelStore
	s        *store
	watchers []*modelWatcher
	page     *modelPage
}

// TestModel runs random creates, updates, deletes, rejected writes, expiries,
// compactions, restarts and crashes on 50 keys of two resources in one file. After
// each step lists at random revisions, with limits and selectors, reads of single
// objects, and watches, new and old ones, show what a model shows.
func TestModel(t *testing.T) {
	dir, files := t.TempDir(), 0
	newFile := func() string { // of all runs: none opens another one's
		files++
		return filepath.Join(dir, fmt.Sprintf("%d.db", files))
	}
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(bubbled{t}, func(t *rapid.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			m := &machine{newFile: newFile, ctx: ctx}
			for range 2 {
				m.resources = append(m.resources, &modelled{modelStore: newModelStore()})
			}
			m.open(t, m.newFile())
			defer func() { _ = m.db.Close() }()
			t.Repeat(rapid.StateMachineActions(m))
		})
	})
}

// bubbled hides the test's deadline from rapid: there is none in a bubble.
type bubbled struct{ testing.TB }

func (m *machine) open(t *rapid.T, path string) {
	var err error
	// Nothing goes by age or number: the model decides what is compacted.
	if m.db, err = Open(m.ctx, Config{Path: path, History: History{MaxAge: 1e6 * time.Hour, MaxEvents: 1 << 40}}); err != nil {
		t.Fatal(err)
	}
	for i, gr := range []schema.GroupResource{pods, otherPods} {
		config := podStoreConfig()
		config.groupResource = gr
		if m.resources[i].s, err = m.db.newStore(config); err != nil {
			t.Fatal(err)
		}
	}
	m.settle()
}

// settle lets expire what is due, here and in the model.
func (m *machine) settle() {
	synctest.Wait()
	for _, r := range m.resources {
		r.expire(time.Now())
	}
}

func (m *machine) resource(t *rapid.T) *modelled {
	return rapid.SampledFrom(m.resources).Draw(t, "resource")
}

// modelNames are 50 names, among them some that begin alike and sort oddly.
var modelNames = func() []string {
	names := []string{"a", "a-b", "a.b", "ab", "a0", "b", "ba"}
	for i := len(names); i < 50; i++ {
		names = append(names, fmt.Sprintf("n%02d", i))
	}
	return names
}()

// name draws one of 50, every other time one that exists.
func (r *modelled) name(t *rapid.T) string {
	if existing := slices.Sorted(maps.Keys(r.current())); len(existing) > 0 && rapid.Bool().Draw(t, "existing") {
		return rapid.SampledFrom(existing).Draw(t, "name")
	}
	return rapid.SampledFrom(modelNames).Draw(t, "name")
}

func drawLabel(t *rapid.T) string { return rapid.SampledFrom([]string{"x", "y"}).Draw(t, "label") }

// drawTTL is a time to live in seconds, mostly none, and when that is over.
func drawTTL(t *rapid.T) (ttl uint64, expires time.Time) {
	if ttl = rapid.SampledFrom([]uint64{0, 0, 0, 10, 25}).Draw(t, "ttl"); ttl > 0 {
		expires = time.Now().Add(time.Duration(ttl) * time.Second)
	}
	return ttl, expires
}

func (m *machine) Create(t *rapid.T) {
	r := m.resource(t)
	name, label := r.name(t), drawLabel(t)
	ttl, expires := drawTTL(t)
	p, out := pod(name), &example.Pod{}
	p.Labels, p.UID = map[string]string{"l": label}, types.UID(fmt.Sprintf("%s-%d", name, len(r.states)))
	_, exists := r.current()[name]
	switch err := r.s.Create(m.ctx, podKey(name), p, out, ttl); {
	case exists != storage.IsExist(err), !exists && err != nil:
		t.Fatalf("create %s: %v", name, err)
	case !exists:
		r.put(name, label, expires)
		m.answered(t, r, out.ResourceVersion)
	}
}

func (m *machine) Update(t *rapid.T) {
	r := m.resource(t)
	name, label := r.name(t), drawLabel(t)
	ttl, expires := drawTTL(t)
	was, exists := r.current()[name]
	out := &example.Pod{}
	err := r.s.GuaranteedUpdate(m.ctx, podKey(name), out, false, nil, func(obj runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
		obj.(*example.Pod).Labels = map[string]string{"l": label}
		return obj, &ttl, nil
	}, nil)
	switch {
	case exists == storage.IsNotFound(err), exists && err != nil:
		t.Fatalf("update %s: %v", name, err)
	case exists && was.label != label:
		r.put(name, label, expires)
		m.answered(t, r, out.ResourceVersion)
	case exists && out.ResourceVersion != fmt.Sprint(was.rev): // nothing changes
		t.Fatalf("an update of %s that changes nothing is at %s, was %d", name, out.ResourceVersion, was.rev)
	}
}

func (m *machine) Delete(t *rapid.T) {
	r := m.resource(t)
	name := r.name(t)
	was, exists := r.current()[name]
	out := &example.Pod{}
	err := r.s.Delete(m.ctx, podKey(name), out, nil, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
	switch {
	case exists == storage.IsNotFound(err), exists && err != nil:
		t.Fatalf("delete %s: %v", name, err)
	case exists:
		if r.remove(name); out.Labels["l"] != was.label {
			t.Fatalf("deleted %s with %v, want %s", name, out.Labels, was.label)
		}
		m.answered(t, r, out.ResourceVersion)
	}
}

// answered checks the revision a write was answered with.
func (m *machine) answered(t *rapid.T, r *modelled, version string) {
	if version != fmt.Sprint(r.revision()) {
		t.Fatalf("the write got resourceVersion %s, want %d", version, r.revision())
	}
}

// Rejected writes, whatever the reason, change nothing. (F50: nor do they bring
// back what is gone.)
func (m *machine) Reject(t *rapid.T) {
	r := m.resource(t)
	name := r.name(t)
	_, exists := r.current()[name]
	refused := errors.New("refused")
	other := &storage.Preconditions{UID: ptr.To(types.UID("another"))}
	versioned := pod(name)
	versioned.ResourceVersion = fmt.Sprint(r.revision())
	ended, cancel := context.WithCancel(m.ctx)
	cancel()
	for what, err := range map[string]error{
		"create with a resourceVersion": r.s.Create(m.ctx, podKey(name), versioned, nil, 0),
		"create of an ended request":    r.s.Create(ended, podKey(name), pod(name), nil, 0),
		"update that is refused": r.s.GuaranteedUpdate(m.ctx, podKey(name), &example.Pod{}, true, nil,
			storage.SimpleUpdate(func(runtime.Object) (runtime.Object, error) { return nil, refused }), nil),
		"delete that is refused": r.s.Delete(m.ctx, podKey(name), &example.Pod{}, nil,
			func(context.Context, runtime.Object) error { return refused }, nil, storage.DeleteOptions{}),
		"update of another uid": r.s.GuaranteedUpdate(m.ctx, podKey(name), &example.Pod{}, false, other, labelled("z"), nil),
		"delete of another uid": r.s.Delete(m.ctx, podKey(name), &example.Pod{}, other, storage.ValidateAllObjectFunc, nil, storage.DeleteOptions{}),
	} {
		if err == nil || (what == "update of another uid" && exists != storage.IsInvalidObj(err)) {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

func (m *machine) Compact(t *rapid.T) {
	r := m.resource(t)
	rev := rapid.IntRange(1, r.revision()).Draw(t, "revision")
	if err := m.db.Compact(m.ctx, r.s.groupResource, uint64(rev)); err != nil {
		t.Fatal(err)
	}
	r.compacted = max(r.compacted, rev)
}

func (m *machine) LetTimePass(*rapid.T) {
	time.Sleep(7 * time.Second)
	m.settle()
}

// Restart closes and opens the file; some time passes in between.
func (m *machine) Restart(t *rapid.T) {
	if err := m.db.Close(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Duration(rapid.IntRange(0, 12).Draw(t, "seconds")) * time.Second)
	m.open(t, m.db.path)
	m.reconnect(t)
}

// Crash goes on with the file as it is at this moment, not closed.
func (m *machine) Crash(t *rapid.T) {
	content, err := os.ReadFile(m.db.path)
	if err != nil {
		t.Fatal(err)
	}
	path := m.newFile()
	if err := errors.Join(m.db.Close(), os.WriteFile(path, content, 0o600)); err != nil {
		t.Fatal(err)
	}
	m.open(t, path)
	m.reconnect(t)
}

// Check runs after each step.
func (m *machine) Check(t *rapid.T) {
	for _, r := range m.resources {
		label := rapid.SampledFrom([]string{"", "x"}).Draw(t, "selected")
		r.checkList(m.ctx, t, rapid.IntRange(1, r.revision()).Draw(t, "at"), label)
		r.checkList(m.ctx, t, 0, label)
		r.checkGet(m.ctx, t, rapid.SampledFrom(modelNames).Draw(t, "get"))
		for _, w := range r.watchers {
			if rapid.Bool().Draw(t, "reads") {
				w.follow(m.ctx, t, r)
			}
		}
		if stats, _ := r.s.Stats(m.ctx); stats.ObjectCount != int64(len(r.current())) {
			t.Fatalf("%d objects counted, want %d", stats.ObjectCount, len(r.current()))
		}
	}
}

// checkList lists at exactly rev, 0 the present.
func (r *modelled) checkList(ctx context.Context, t *rapid.T, rev int, label string) {
	opts := storage.ListOptions{}
	if rev != 0 {
		opts = exactly(fmt.Sprint(rev))
	}
	opts.Recursive, opts.Predicate = true, selecting(label)
	list := &example.PodList{}
	err := r.s.GetList(ctx, "/pods/", opts, list)
	if rev != 0 && rev < r.compacted {
		if !apierrors.IsResourceExpired(err) {
			t.Fatalf("list at %d, compacted to %d: %v", rev, r.compacted, err)
		}
		return
	}
	if rev == 0 {
		rev = r.revision()
	}
	got, want := showList(list), r.list(rev, "", label)
	if err != nil || !slices.Equal(got, want) || list.ResourceVersion != fmt.Sprint(rev) {
		t.Fatalf("list of %q: %v at %s, %v, want %v at %d", label, got, list.ResourceVersion, err, want, rev)
	}
}

// checkGet also checks F52: an object is the same alone as in a list.
func (r *modelled) checkGet(ctx context.Context, t *rapid.T, name string) {
	want, exists := r.current()[name]
	out := &example.Pod{}
	err := r.s.Get(ctx, podKey(name), storage.GetOptions{}, out)
	switch {
	case !exists && !storage.IsNotFound(err), exists && err != nil:
		t.Fatalf("get %s: %v", name, err)
	case exists && show(out) != fmt.Sprintf("%s %s@%d", name, want.label, want.rev):
		t.Fatalf("get %s: %s, want %+v", name, show(out), want)
	}
}
