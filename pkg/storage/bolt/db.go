// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bolt keeps API objects in one bbolt file behind
// k8s.io/apiserver/pkg/storage.Interface (DESIGN 9).
//
// Revisions. Each resource has its own sequence; every write of one of its
// objects, deletes included, takes the next number. resourceVersions compare
// only within a resource, as the API promises, and never go back, across
// restarts either.
//
// History. A record in the log holds what a write replaced. A read at an older
// revision takes what is there now and lets the first later write to each key
// undo it; a watch reads the log forward. Compaction drops records and nothing
// else has to move.
//
// Concurrency. One goroutine commits; everybody else hands it operations (group
// commit, D4). A revision becomes visible, to reads as to watches, only when it
// is on disk. Nobody decodes, encodes or sends inside a transaction, and no
// watcher is ever waited for.
package bolt

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
)

// Config says where the file is and how much it remembers.
type Config struct {
	// Path of the file; created with mode 0600 when absent. Its directory must exist.
	Path string
	// LockTimeout is how long Open waits for another process to let go of the
	// file; default 5s.
	LockTimeout time.Duration
	// History bounds what watches, exact lists and continue tokens can reach back to.
	History History
	// BookmarkInterval is how often a watch that asked for bookmarks gets one;
	// default one minute.
	BookmarkInterval time.Duration
}

// History bounds the log of each resource: a record goes when either bound says so.
type History struct {
	// MaxAge of a record; default 10 minutes.
	MaxAge time.Duration
	// MaxEvents is the number of records; default 50,000.
	MaxEvents uint64
	// Interval between compactions; default 1 minute.
	Interval time.Duration
}

// lockTimeout is the default of Config.LockTimeout.
const lockTimeout = 5 * time.Second

func (c *Config) setDefaults() {
	setDefault(&c.LockTimeout, lockTimeout)
	setDefault(&c.BookmarkInterval, time.Minute)
	setDefault(&c.History.MaxAge, 10*time.Minute)
	setDefault(&c.History.MaxEvents, 50_000)
	setDefault(&c.History.Interval, time.Minute)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// DB is one open file. Safe for concurrent use.
type DB struct {
	path   string
	config Config
	bolt   *bbolt.DB

	operations chan *operation
	expiryWake chan struct{}
	closing    chan struct{}
	closeOnce  sync.Once
	closeErr   error
	stop       context.CancelFunc
	loops      sync.WaitGroup

	cache *decodedCache

	health atomic.Pointer[health]
	stats  *statistics

	mu        sync.Mutex // protects resources
	resources map[string]*resource
}

// health is what the last commit taught.
type health struct {
	err    error
	sticky bool // only a restart helps
}

// resource is one GroupResource of the file.
type resource struct {
	db        *DB
	name      string
	feed      *feed
	compacted atomic.Uint64
	counters  atomic.Pointer[counters]
}

// Open opens or creates the file and starts its loops, which run until ctx ends
// or Close is called. Errors: *LockedError, *VersionError (before anything is
// written), *CorruptFileError, and those of the file system.
func Open(ctx context.Context, config Config) (*DB, error) {
	config.setDefaults()
	path, err := filepath.Abs(config.Path)
	if err != nil {
		return nil, fmt.Errorf("storage file %s: %w", config.Path, err)
	}
	file, err := openFile(path, config.LockTimeout)
	if err != nil {
		return nil, err
	}
	db := &DB{
		path:       path,
		config:     config,
		bolt:       file,
		operations: make(chan *operation),
		expiryWake: make(chan struct{}, 1),
		closing:    make(chan struct{}),
		stats:      newStatistics(time.Now()),
		resources:  map[string]*resource{},
		cache:      newCache(),
	}
	db.health.Store(&health{})
	if err := db.prepare(ctx); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	ctx, db.stop = context.WithCancel(ctx)
	db.loops.Go(db.commitLoop)
	db.loops.Go(func() { db.compactLoop(ctx) })
	db.loops.Go(func() { db.expiryLoop(ctx) })
	return db, nil
}

func openFile(path string, lockTimeout time.Duration) (*bbolt.DB, error) {
	if err := verifyFile(path, lockTimeout); err != nil {
		return nil, err
	}
	return openBolt(path, &bbolt.Options{
		Timeout: lockTimeout,
		// The list of free pages is derived from the tree at open, so no
		// commit pays for a long one after a purge.
		NoFreelistSync: true,
		FreelistType:   bbolt.FreelistMapType,
	})
}

func openBolt(path string, options *bbolt.Options) (file *bbolt.DB, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	var opened *os.File
	options.OpenFile = func(name string, flag int, mode os.FileMode) (*os.File, error) {
		opened, err = os.OpenFile(name, flag, mode)
		return opened, err
	}
	defer func() {
		if p := recover(); p != nil { // bbolt panics on pages it cannot make sense of
			file, err = nil, &CorruptFileError{Path: path, Err: fmt.Errorf("%v", p)}
			_ = opened.Close() // else this process would keep the lock
		}
	}()
	file, err = bbolt.Open(path, 0o600, options)
	var errno syscall.Errno
	switch {
	case err == nil:
		return file, nil
	case errors.Is(err, berrors.ErrTimeout):
		return nil, &LockedError{Path: path, Waited: options.Timeout, Holder: lockHolder(path)}
	case errors.As(err, &errno):
		return nil, fmt.Errorf("opening storage file %s: %w", path, err)
	}
	return nil, &CorruptFileError{Path: path, Err: err} // what is not the system's word is about the content
}

// prepare checks the format before it writes anything, then creates what is
// missing and reads every resource's revision.
func (db *DB) prepare(ctx context.Context) error {
	var found uint64
	var empty bool
	if err := db.read(func(tx *bbolt.Tx) error {
		first, _ := tx.Cursor().First()
		found, empty = formatOf(tx), first == nil
		return nil
	}); err != nil {
		return err
	}
	switch {
	case found > formatVersion:
		return &VersionError{Path: db.path, Found: found, Supported: formatVersion}
	case found == 0 && !empty:
		return &CorruptFileError{Path: db.path, Err: errors.New("it is the database of another program, or its format version is damaged")}
	}
	if err := os.Chmod(db.path, 0o600); err != nil {
		return fmt.Errorf("storage file %s: %w", db.path, err)
	}
	if found != formatVersion {
		if err := db.bolt.Update(func(tx *bbolt.Tx) error {
			for _, name := range [][]byte{metaBucket, resourcesBucket, expiryBucket} {
				if _, err := tx.CreateBucketIfNotExists(name); err != nil {
					return err
				}
			}
			return tx.Bucket(metaBucket).Put(formatKey, binary.BigEndian.AppendUint64(nil, formatVersion))
		}); err != nil {
			return commitError(db.path, err)
		}
	}
	return db.read(func(tx *bbolt.Tx) error { return db.load(ctx, tx) })
}

// load checks the content and reads every resource's revision.
func (db *DB) load(ctx context.Context, tx *bbolt.Tx) error {
	resources := tx.Bucket(resourcesBucket)
	if resources == nil || tx.Bucket(expiryBucket) == nil {
		return &CorruptFileError{Path: db.path, Err: errors.New("a bucket is missing")}
	}
	c := contents{tx: tx}
	if err := resources.ForEachBucket(func(name []byte) error {
		buckets, err := openResource(tx, string(name))
		if err != nil {
			return err
		}
		if err := c.resource(string(name), buckets); err != nil {
			return err
		}
		r, err := db.newResource(string(name), buckets.root)
		db.resources[string(name)] = r
		return err
	}); err != nil {
		return err
	}
	if len(c.damaged) > 0 {
		klog.FromContext(ctx).Error(errChecksum, "Objects in storage are damaged: delete them with ignoreStoreReadErrorWithClusterBreakingPotential, or restore a backup",
			"path", db.path, "count", len(c.damaged), "first", c.damaged[:min(len(c.damaged), maxListedCorruptions)])
	}
	return c.expiries()
}

// formatOf is the format version of a file, 0 for a new one.
func formatOf(tx *bbolt.Tx) uint64 {
	meta := tx.Bucket(metaBucket)
	if meta == nil {
		return 0
	}
	return parseRevision(meta.Get(formatKey))
}

func (db *DB) newResource(name string, root *bbolt.Bucket) (*resource, error) {
	s, err := readSummary(root, name)
	if err != nil {
		return nil, err
	}
	r := &resource{db: db, name: name, feed: newFeed(root.Sequence())}
	r.compacted.Store(s.compacted)
	r.counters.Store(&s.counters)
	return r, nil
}

// resource returns gr's part of the file, created at first use.
func (db *DB) resource(gr schema.GroupResource) (*resource, error) {
	if gr.Resource == "" {
		return nil, fmt.Errorf("storage file %s: a resource needs a name", db.path)
	}
	name := gr.String()
	if r := db.lookup(name); r != nil {
		return r, nil
	}
	// Not under mu, which the committer takes as well.
	var created *resource
	if err := db.submit(0, func(b *batch) error {
		root, err := createResource(b.tx, name)
		if err != nil {
			return err
		}
		b.dirty = true
		created, err = db.newResource(name, root)
		return err
	}); err != nil {
		return nil, err
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if r, ok := db.resources[name]; ok {
		return r, nil
	}
	db.resources[name] = created
	return created, nil
}

func (db *DB) lookup(name string) *resource {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.resources[name]
}

func (db *DB) allResources() []*resource {
	db.mu.Lock()
	defer db.mu.Unlock()
	all := make([]*resource, 0, len(db.resources))
	for _, r := range db.resources {
		all = append(all, r)
	}
	return all
}

type resourceBuckets struct{ root, objects, log, history *bbolt.Bucket }

func openResource(tx *bbolt.Tx, name string) (resourceBuckets, error) {
	var b resourceBuckets
	if resources := tx.Bucket(resourcesBucket); resources != nil {
		b.root = resources.Bucket([]byte(name))
	}
	if b.root != nil {
		b.objects, b.log, b.history = b.root.Bucket(objectsBucket), b.root.Bucket(logBucket), b.root.Bucket(historyBucket)
	}
	if b.objects == nil || b.log == nil || b.history == nil {
		return b, &CorruptFileError{Path: tx.DB().Path(), Err: fmt.Errorf("resource %s: a bucket is missing", name)}
	}
	return b, nil
}

// createResource starts the sequence at 1: an empty list has a revision, too,
// and 0 means "any" to clients.
func createResource(tx *bbolt.Tx, name string) (*bbolt.Bucket, error) {
	root, err := tx.Bucket(resourcesBucket).CreateBucketIfNotExists([]byte(name))
	if err != nil {
		return nil, err
	}
	for _, child := range [][]byte{objectsBucket, logBucket, historyBucket} {
		if _, err := root.CreateBucketIfNotExists(child); err != nil {
			return nil, err
		}
	}
	if root.Sequence() == 0 {
		return root, summary{}.write(root, name, 1)
	}
	return root, nil
}

// Update runs f in a transaction that shares its fsync with other writers, and
// returns once it is on disk. f may run more than once, so it only touches the
// transaction; whatever it returns undoes its part and comes back unchanged.
// Callers keep to top-level buckets of their own. Errors besides f's:
// *DiskFullError, *WriteError, *CorruptFileError, *ClosedError.
func (db *DB) Update(f func(*bbolt.Tx) error) error {
	return db.submit(0, func(b *batch) error {
		b.dirty = true
		return f(b.tx)
	})
}

// View runs f in a read transaction. f copies what it needs and returns: a
// transaction that stays open keeps the file from being remapped.
func (db *DB) View(f func(*bbolt.Tx) error) error {
	return db.beginError(db.bolt.View(f))
}

// beginError types why bbolt began no transaction.
func (db *DB) beginError(err error) error {
	switch {
	case errors.Is(err, berrors.ErrDatabaseNotOpen):
		return &ClosedError{Path: db.path}
	case errors.Is(err, berrors.ErrInvalidMapping):
		return &UnmappedError{Path: db.path}
	}
	return err
}

// Ready returns nil when the next write is expected to succeed, else why not:
// *DiskFullError, *WriteError, *CorruptFileError or *ClosedError.
func (db *DB) Ready() error {
	select {
	case <-db.closing:
		return &ClosedError{Path: db.path}
	default:
		return db.health.Load().err
	}
}

func (db *DB) broken() error {
	if h := db.health.Load(); h.sticky {
		return h.err
	}
	return nil
}

// Close ends all watches, waits for the batch under way and closes the file.
// Writes not yet taken into a batch get a *ClosedError.
func (db *DB) Close() error {
	db.closeOnce.Do(func() {
		close(db.closing)
		for _, r := range db.allResources() {
			r.feed.wake() // watchers end
		}
		db.stop()
		db.loops.Wait()
		db.closeErr = db.bolt.Close()
	})
	return db.closeErr
}
