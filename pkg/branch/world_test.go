// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package branch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/generated/clientset/versioned/fake"
	"github.com/kommit-dev/kommit/generated/informers/externalversions"
	"github.com/kommit-dev/kommit/pkg/branch/recovery"
	"github.com/kommit-dev/kommit/pkg/journal"
	"github.com/kommit-dev/kommit/pkg/storage/bolt"
	"github.com/kommit-dev/kommit/pkg/window"
	"github.com/kommit-dev/kommit/test/gitserver"
)

const (
	namespace = "shop"
	patience  = 30 * time.Second
)

var prod = types.NamespacedName{Namespace: namespace, Name: "prod"}

// world is a Pool on a real Git server. The clientsets are in-memory object
// trackers: they stand for the API servers, whose real ones the end-to-end
// tests use.
type world struct {
	t          *testing.T
	ctx        context.Context
	server     *gitserver.Server
	repository *gitserver.TestRepository
	client     *fake.Clientset
	cluster    *kubefake.Clientset
	db         *bolt.DB
	pool       *Pool
	// kill ends the process as it is.
	kill     func()
	versions int
	// updating is held by update, which reads before it writes.
	updating sync.Mutex
	// muted: no CommitRequest is updated, as when the process ends before it can tell.
	muted atomic.Bool
	// received says that a push has been answered.
	received chan struct{}
	// recompared are the targets that capture was asked to compare again.
	recompared chan types.NamespacedName
	// lagging is what the catching-up proof answers, once proving is closed if there
	// is one.
	lagging string
	proving chan struct{}
	// asked says that the proof was asked for.
	asked chan struct{}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	received := make(chan struct{}, 100)
	server := gitserver.New(t, gitserver.Config{Username: "kommit", Password: "right", Wrap: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(writer http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(writer, r)
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/git-receive-pack") {
				received <- struct{}{}
			}
		})
	}})
	w := &world{
		t: t, ctx: ctx, server: server,
		repository: server.NewRepository(t, "shop.git"),
		client:     fake.NewClientset(),
		cluster: kubefake.NewClientset(&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "git"},
			Data:       map[string][]byte{"username": []byte("kommit"), "password": []byte("right")},
		}),
		db:         newDB(t),
		received:   received,
		recompared: make(chan types.NamespacedName, 10),
		asked:      make(chan struct{}, 1),
	}
	w.client.PrependReactor("update", "*", w.update)
	w.must(w.client.KommitV1alpha1().GitProviders(namespace).Create(ctx, &v1alpha1.GitProvider{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "git", UID: "provider", Generation: 1},
		Spec: v1alpha1.GitProviderSpec{
			URL: w.repository.URL, SecretRef: &v1alpha1.LocalObjectReference{Name: "git"},
			Commit: v1alpha1.CommitOptions{
				Committer: v1alpha1.GitIdentity{Name: "kommit", Email: "kommit@example.com"},
				Author:    v1alpha1.AuthorOptions{EmailDomain: "example.com"},
			},
		},
	}, metav1.CreateOptions{}))
	w.target("prod", "live", time.Unix(1000, 0))
	w.start()
	return w
}

// start begins a process on the world's file.
func (w *world) start() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.ctx)
	journal, written := journalOn(ctx, w.db)
	w.pool = NewPool(0, journal)
	w.kill = func() {
		cancel()
		<-written
	}
	factory := externalversions.NewSharedInformerFactory(w.client, 0)
	if err := w.pool.Start(ctx, Config{
		Client: w.client.KommitV1alpha1(), Informers: factory.Kommit().V1alpha1(), Cluster: w.cluster,
		CatchUp:        w.catchUp,
		Recompare:      func(name types.NamespacedName) { w.recompared <- name },
		Retry:          func(types.NamespacedName) {},
		CatchUpTimeout: time.Minute, AllowInsecureHTTP: true,
	}); err != nil {
		w.t.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
}

// newJournal returns a journal on a file of its own.
func newJournal(t *testing.T) *recovery.Journal {
	journal, _ := journalOn(t.Context(), newDB(t))
	return journal
}

func newDB(t *testing.T) *bolt.DB {
	t.Helper()
	db, err := bolt.Open(t.Context(), bolt.Config{Path: filepath.Join(t.TempDir(), "kommit.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// journalOn returns the journal of a process that ends with ctx; written is closed
// when nothing more comes of it.
func journalOn(ctx context.Context, db *bolt.DB) (kept *recovery.Journal, written <-chan struct{}) {
	rows, done := journal.NewWriter(journal.NewRows(db, "saving")), make(chan struct{})
	go func() {
		defer close(done)
		rows.Run(ctx)
	}()
	return recovery.New(rows), done
}

func (w *world) catchUp(ctx context.Context, _ types.NamespacedName) string {
	select {
	case w.asked <- struct{}{}:
	default:
	}
	if w.proving != nil {
		select {
		case <-w.proving:
		case <-ctx.Done():
		}
	}
	return w.lagging
}

// update does what the server does and an object tracker does not: one update is
// after the other, a status update leaves the spec as it is, any other one leaves the
// status, and none takes a deletion back.
func (w *world) update(action clienttesting.Action) (bool, runtime.Object, error) {
	w.updating.Lock()
	defer w.updating.Unlock()
	update := action.(clienttesting.UpdateAction)
	if w.muted.Load() && update.GetResource().Resource == "commitrequests" {
		return true, nil, errors.New("no storage")
	}
	given, err := apimeta.Accessor(update.GetObject())
	if err != nil {
		return true, nil, err
	}
	tracker, resource := w.client.Tracker(), update.GetResource()
	current, err := tracker.Get(resource, update.GetNamespace(), given.GetName())
	if err != nil {
		return true, nil, err
	}
	object, statusOf := update.GetObject().DeepCopyObject(), current
	if update.GetSubresource() == "status" {
		object, statusOf = current.DeepCopyObject(), update.GetObject()
	}
	switch object := object.(type) {
	case *v1alpha1.GitProvider:
		object.Status = statusOf.(*v1alpha1.GitProvider).Status
	case *v1alpha1.GitTarget:
		object.Status = statusOf.(*v1alpha1.GitTarget).Status
	case *v1alpha1.CommitRequest:
		object.Status = statusOf.(*v1alpha1.CommitRequest).Status
	}
	before, err := apimeta.Accessor(current)
	if err != nil {
		return true, nil, err
	}
	if after, err := apimeta.Accessor(object); err == nil && before.GetDeletionTimestamp() != nil {
		after.SetDeletionTimestamp(before.GetDeletionTimestamp())
	}
	return true, object, tracker.Update(resource, object, update.GetNamespace())
}

func (w *world) must(_ any, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) target(name, path string, created time.Time) {
	w.t.Helper()
	w.must(w.client.KommitV1alpha1().GitTargets(namespace).Create(w.ctx, &v1alpha1.GitTarget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), Generation: 1, CreationTimestamp: metav1.NewTime(created)},
		Spec: v1alpha1.GitTargetSpec{
			GitProviderRef: v1alpha1.LocalObjectReference{Name: "git"}, Branch: "main", Path: path,
			Window: v1alpha1.WindowOptions{IdleTimeout: &metav1.Duration{Duration: time.Hour}, MaxDuration: &metav1.Duration{Duration: time.Hour}},
		},
	}, metav1.CreateOptions{}))
}

// touchTarget bumps the generation as a spec change does.
func (w *world) touchTarget(name string) {
	w.t.Helper()
	w.changeTarget(name, func(*v1alpha1.GitTargetSpec) {})
}

// suspend suspends the target that all edits are of.
func (w *world) suspend() {
	w.t.Helper()
	w.changeTarget(prod.Name, func(spec *v1alpha1.GitTargetSpec) { spec.Suspend = true })
}

func (w *world) changeTarget(name string, change func(*v1alpha1.GitTargetSpec)) {
	w.t.Helper()
	targets := w.client.KommitV1alpha1().GitTargets(namespace)
	target, err := targets.Get(w.ctx, name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	target.Generation++
	change(&target.Spec)
	w.must(targets.Update(w.ctx, target, metav1.UpdateOptions{}))
}

func (w *world) edit(user, name, content string) {
	w.versions++
	w.change(window.Change{
		Target: prod, Object: window.Object{Resource: "configmaps", Namespace: namespace, Name: name},
		UID: types.UID(name), ResourceVersion: fmt.Sprint(w.versions), Author: window.Author{Username: user}, Operation: window.Update,
		Manifest: []byte(manifestOf(name, content)),
	})
}

// change is handed in as capture does.
func (w *world) change(change window.Change) {
	w.t.Helper()
	if err := w.pool.Change(w.ctx, change); err != nil && !errors.Is(err, ErrStopping) {
		w.t.Error(err)
	}
}

func manifestOf(name, content string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\n  namespace: %s\ndata:\n  content: %s\n", name, namespace, content)
}

// save stores a request the way the strategy stamps it, one that closes its
// window at once.
func (w *world) save(user, name, message string) *v1alpha1.CommitRequest {
	w.t.Helper()
	return w.saveFor(user, name, message, 0)
}

// saveFor is save of a window that stays open for that long after the attach.
func (w *world) saveFor(user, name, message string, open time.Duration) *v1alpha1.CommitRequest {
	w.t.Helper()
	request := &v1alpha1.CommitRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), Generation: 1},
		Spec: v1alpha1.CommitRequestSpec{
			GitTargetRef: v1alpha1.LocalObjectReference{Name: "prod"}, Message: message,
			Window: v1alpha1.RequestWindow{
				Attach: v1alpha1.AttachCurrentOrNext, MaxDuration: &metav1.Duration{Duration: open},
				AttachTimeout: &metav1.Duration{Duration: open},
			},
			RequestedBy: v1alpha1.UserInfo{Username: user},
		},
		Status: v1alpha1.CommitRequestStatus{AttachDeadline: &metav1.MicroTime{Time: time.Now().Add(open)}},
	}
	w.must(w.client.KommitV1alpha1().CommitRequests(namespace).Create(w.ctx, request, metav1.CreateOptions{}))
	return request
}

// await returns the request once Ready has the reason.
func (w *world) await(name, reason string) *v1alpha1.CommitRequest {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	requests := w.client.KommitV1alpha1().CommitRequests(namespace)
	// Watch first: what is stored between the two is then seen twice, not never.
	events, err := requests.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	defer events.Stop()
	last, err := requests.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for {
		if ready := apimeta.FindStatusCondition(last.Status.Conditions, v1alpha1.ConditionReady); ready != nil && ready.Reason == reason {
			return last
		}
		select {
		case event := <-events.ResultChan():
			if next, ok := event.Object.(*v1alpha1.CommitRequest); ok && next.Name == name {
				last = next
			}
		case <-ctx.Done():
			w.t.Fatalf("%s did not become %s: %+v", name, reason, last.Status)
		}
	}
}

func (w *world) subjects() []string {
	w.t.Helper()
	if _, err := w.repository.Git(w.ctx, "rev-parse", "--verify", "--quiet", "refs/heads/main"); err != nil {
		return nil
	}
	return strings.Split(w.repository.Must("log", "--reverse", "--format=%an: %s", "main"), "\n")
}

func (w *world) wantSubjects(want ...string) {
	w.t.Helper()
	if got := w.subjects(); !slices.Equal(got, want) {
		w.t.Errorf("commits on the remote are %q, want %q", got, want)
	}
}

// awaitTarget waits until the GitTarget's Ready has the reason.
func (w *world) awaitTarget(name, reason string) {
	w.t.Helper()
	targets := w.client.KommitV1alpha1().GitTargets(namespace)
	w.awaitReason(targets.Watch, reason, func() []metav1.Condition {
		target, err := targets.Get(w.ctx, name, metav1.GetOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		return target.Status.Conditions
	})
}

// awaitProvider waits until the GitProvider's Ready has the reason.
func (w *world) awaitProvider(reason string) {
	w.t.Helper()
	providers := w.client.KommitV1alpha1().GitProviders(namespace)
	w.awaitReason(providers.Watch, reason, func() []metav1.Condition {
		provider, err := providers.Get(w.ctx, "git", metav1.GetOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		return provider.Status.Conditions
	})
}

func (w *world) awaitReason(start func(context.Context, metav1.ListOptions) (watch.Interface, error), reason string, conditions func() []metav1.Condition) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	events, err := start(ctx, metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	defer events.Stop()
	for {
		if ready := apimeta.FindStatusCondition(conditions(), v1alpha1.ConditionReady); ready != nil && ready.Reason == reason {
			return
		}
		select {
		case <-events.ResultChan():
		case <-ctx.Done():
			w.t.Fatalf("Ready's reason did not become %s: %+v", reason, conditions())
		}
	}
}

// awaitPush waits until the remote was pushed to.
func (w *world) awaitPush() {
	w.t.Helper()
	select {
	case <-w.received:
	case <-time.After(patience):
		w.t.Fatal("nothing was pushed")
	}
}
