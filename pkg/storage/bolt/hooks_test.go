// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"

	"go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/api/apitesting"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/apiserver/pkg/storage/value"
)

const storedPrefix = "test!"

var pods = schema.GroupResource{Resource: "pods"}

func testScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	utilruntime.Must(example.AddToScheme(scheme))
	utilruntime.Must(examplev1.AddToScheme(scheme))
	return scheme
}

func testCodec() runtime.Codec {
	return apitesting.TestCodec(serializer.NewCodecFactory(testScheme()), examplev1.SchemeGroupVersion)
}

// switchedTransformer lets a test replace the transformer while watches run.
type switchedTransformer struct {
	value.Transformer // unused, for the methods not overridden
	current           atomic.Pointer[value.Transformer]
}

func newSwitchedTransformer(t value.Transformer) *switchedTransformer {
	s := &switchedTransformer{}
	s.current.Store(&t)
	return s
}

func (s *switchedTransformer) get() value.Transformer { return *s.current.Load() }

func (s *switchedTransformer) set(t value.Transformer) func() {
	before := s.current.Swap(&t)
	return func() { s.current.Store(before) }
}

func (s *switchedTransformer) TransformFromStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, bool, error) {
	return s.get().TransformFromStorage(ctx, data, dataCtx)
}

func (s *switchedTransformer) TransformToStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, error) {
	return s.get().TransformToStorage(ctx, data, dataCtx)
}

// failingReads can make every read fail.
type failingReads struct {
	value.Transformer
	on atomic.Bool
}

func (f *failingReads) TransformFromStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, bool, error) {
	if f.on.Load() {
		return nil, false, errors.New("cannot be decrypted")
	}
	return f.Transformer.TransformFromStorage(ctx, data, dataCtx)
}

// failingDecodes can make every decode fail.
type failingDecodes struct {
	runtime.Codec
	on atomic.Bool
}

func (f *failingDecodes) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if f.on.Load() {
		return nil, nil, errors.New("cannot be decoded")
	}
	return f.Codec.Decode(data, defaults, into)
}

// testStore is a store on a database of its own, with the hooks that the suite
// asks for.
type testStore struct {
	*store
	db       *DB
	switched *switchedTransformer
	prefix   *storagetesting.PrefixTransformer
	// transactions is bbolt's count at the last call of reads.
	transactions int
}

func openDB(t testing.TB, config Config) *DB {
	t.Helper()
	db, err := Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeChecked(t, db) })
	return db
}

// closeChecked fails the test when the file is not consistent at its end.
func closeChecked(t testing.TB, db *DB) {
	t.Helper()
	select {
	case <-db.closing: // the test closed it
	default:
		check(t, db)
	}
	if err := db.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func check(t testing.TB, db *DB) {
	t.Helper()
	if err := db.View(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			t.Errorf("Check: %v", err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func newTestStore(t testing.TB, change ...func(*Config, *storeConfig)) *testStore {
	t.Helper()
	prefix := storagetesting.NewPrefixTransformer([]byte(storedPrefix), false)
	switched := newSwitchedTransformer(prefix)
	config := Config{Path: filepath.Join(t.TempDir(), "kommit.db")}
	sc := storeConfig{
		groupResource:  pods,
		codec:          testCodec(),
		transformer:    switched,
		newFunc:        func() runtime.Object { return &example.Pod{} },
		resourcePrefix: "/pods/",
	}
	for _, f := range change {
		f(&config, &sc)
	}
	db := openDB(t, config)
	s, err := db.newStore(sc)
	if err != nil {
		t.Fatal(err)
	}
	ts := &testStore{store: s, db: db, switched: switched, prefix: prefix}
	ts.reads()
	return ts
}

// UpdatePrefixTransformer implements storagetesting.InterfaceWithPrefixTransformer.
func (s *testStore) UpdatePrefixTransformer(modify storagetesting.PrefixTransformerModifier) func() {
	transformer := *s.prefix
	return s.switched.set(modify(&transformer))
}

// UpdateTransformer implements storagetesting.InterfaceWithTransformerOverride.
func (s *testStore) UpdateTransformer(modify storagetesting.TransformerModifier) func() {
	return s.switched.set(modify(s.switched.get()))
}

// increaseRV uses up exactly one revision, with no event under the resource.
func (s *testStore) increaseRV(_ context.Context, t *testing.T) int64 {
	t.Helper()
	var rev uint64
	if err := s.db.submit(0, func(b *batch) error {
		p, err := b.resource(s.resource)
		if err == nil {
			rev = p.bump()
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return int64(rev)
}

// compact also uses up a revision: etcd's compaction writes a key of its own,
// and the suite counts on it.
func (s *testStore) compact(ctx context.Context, t *testing.T, resourceVersion string) {
	t.Helper()
	rev, err := s.versioner.ParseResourceVersion(resourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.db.Compact(ctx, s.groupResource, rev); err != nil {
		t.Fatal(err)
	}
	if got := s.CompactRevision(); got != int64(rev) {
		t.Fatalf("CompactRevision() = %d after compacting %d", got, rev)
	}
	s.increaseRV(ctx, t)
}

// checkStored looks at the bytes in the file: resourceVersion and selfLink are
// not stored.
func (s *testStore) checkStored(_ context.Context, t *testing.T, key string) {
	t.Helper()
	o, _, err := s.load(key)
	if err != nil || o.rev == 0 {
		t.Fatalf("reading %s: revision %d, %v", key, o.rev, err)
	}
	obj, err := runtime.Decode(s.codec, o.value[len(storedPrefix):])
	if err != nil {
		t.Fatal(err)
	}
	pod := obj.(*example.Pod)
	if pod.ResourceVersion != "" || pod.GetSelfLink() != "" {
		t.Errorf("stored resourceVersion %q, selfLink %q, want none", pod.ResourceVersion, pod.GetSelfLink())
	}
}

// reads are the read transactions begun and the objects decrypted since the
// store was made, or since the last call. bbolt counts the transactions.
func (s *testStore) reads() (transactions, objects uint64) {
	before := s.transactions
	s.transactions = s.db.bolt.Stats().TxN
	return uint64(s.transactions - before), s.prefix.GetReadsAndReset()
}

// checkReads bounds what one list costs, in place of upstream's bound on calls to
// etcd: as many objects are decrypted as upstream allows, no more, in at most as
// many read transactions as it allows calls. A page whose objects the selector
// drops is followed by one of twice its size, so n objects take about log2(n).
func (s *testStore) checkReads(t *testing.T, pageSize, objects uint64) {
	t.Helper()
	calls := uint64(1)
	if pageSize != 0 {
		for limit, read := pageSize, pageSize; read < objects; calls++ {
			limit = min(2*limit, maxChunkItems)
			read += limit
		}
	}
	transactions, decrypted := s.reads()
	if decrypted != objects {
		t.Errorf("decrypted %d objects, want %d", decrypted, objects)
	}
	if transactions < 1 || transactions > calls {
		t.Errorf("%d read transactions, want 1 to %d", transactions, calls)
	}
}
