// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package branch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/journal"
	"github.com/kommit-dev/kommit/pkg/window"
)

// crash ends the process once all that happened is on disk.
func (w *world) crash() {
	w.t.Helper()
	if err := w.pool.journal.Sync(w.ctx); err != nil {
		w.t.Fatal(err)
	}
	w.kill()
}

// restart is crash, and another process.
func (w *world) restart() {
	w.t.Helper()
	w.crash()
	w.start()
	<-w.pool.begun
}

// down takes the remote away until up.
func (w *world) down() (up func()) {
	w.t.Helper()
	if err := w.server.Down(); err != nil {
		w.t.Fatal(err)
	}
	return func() {
		w.t.Helper()
		if err := w.server.Up(w.ctx); err != nil {
			w.t.Fatal(err)
		}
		w.pool.mu.Lock()
		defer w.pool.mu.Unlock()
		w.pool.retry(func(types.NamespacedName) bool { return true })
	}
}

// rows are the keys in the journal, by their kind.
func (w *world) rows() map[string]int {
	w.t.Helper()
	if err := w.pool.journal.Sync(w.ctx); err != nil {
		w.t.Fatal(err)
	}
	kinds := map[string]int{}
	if err := journal.NewRows(w.db, "saving").Scan(w.ctx, "", func(key string, _ []byte) error {
		kind, _, _ := strings.Cut(key, "/")
		kinds[kind]++
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
	return kinds
}

// wantNothingLeft: the journal's space is reclaimed, but for what Restore has to know
// of the target and what might come again.
func (w *world) wantNothingLeft() {
	w.t.Helper()
	rows := w.rows()
	if left := rows["window"] + rows["change"] + rows["request"]; left > 0 {
		w.t.Errorf("left in the journal: %v", rows)
	}
}

// D1: what was collected is saved after a kill, under its authors and the message, in
// one commit each, although nothing of it is told again.
func TestD1OpenWindowsSurvive(t *testing.T) {
	w := newWorld(t)
	w.edit("alice", "a", "one")
	w.edit("bob", "b", "one")
	w.edit("alice", "c", "one")
	w.edit("alice", "a", "two")
	w.restart()
	w.edit("bob", "d", "one")
	w.save("alice", "first", "Hers")
	w.await("first", v1alpha1.ReasonCommitted)
	w.restart()
	w.save("bob", "second", "His")
	w.await("second", v1alpha1.ReasonCommitted)
	w.wantSubjects("alice: Hers", "bob: His")
	if got := w.repository.Must("show", "main:live/shop/configmaps/a.yaml"); got != strings.TrimSpace(manifestOf("a", "two")) {
		t.Errorf("a is %q", got)
	}
	if files := w.repository.Must("show", "--name-only", "--format=", "main"); files != "live/shop/configmaps/b.yaml\nlive/shop/configmaps/d.yaml" {
		t.Errorf("bob's commit has %q", files)
	}
	w.wantNothingLeft()
}

// D1: a request that holds a window has its message, and the rest of its time.
func TestD1AttachedRequestsSurvive(t *testing.T) {
	w := newWorld(t)
	w.edit("alice", "a", "one")
	w.saveFor("alice", "first", "Hers", 3*time.Second)
	w.await("first", v1alpha1.ReasonCollectingWindow)
	w.restart()
	w.edit("alice", "b", "one")
	request := w.await("first", v1alpha1.ReasonCommitted)
	w.wantSubjects("alice: Hers")
	if caughtUp := apimeta.FindStatusCondition(request.Status.Conditions, v1alpha1.ConditionCaughtUp); caughtUp == nil || caughtUp.Status != metav1.ConditionTrue {
		t.Errorf("CaughtUp is %+v", caughtUp)
	}
	if files := w.repository.Must("ls-tree", "-r", "--name-only", "main"); files != "live/shop/configmaps/a.yaml\nlive/shop/configmaps/b.yaml" {
		t.Errorf("files are %q", files)
	}
	w.wantNothingLeft()
}

// A request whose deadline passed while nobody was there is settled at once, by the
// rules: what comes later is not its.
func TestD1WaitingRequestsSurvive(t *testing.T) {
	w := newWorld(t)
	w.proving = make(chan struct{}) // so that it does not expire before the end
	w.edit("bob", "b", "one")       // foreign, and noted (W12)
	w.saveFor("alice", "late", "Hers", 0)
	<-w.asked
	w.pool.journal.CaughtUp("late", "") // and no more: the end came between the two
	w.restart()
	w.edit("alice", "a", "one")
	w.await("late", v1alpha1.ReasonWindowMismatch)
	w.wantSubjects()
}

// awaitCaughtUp waits until catching up with a request is over.
func (w *world) awaitCaughtUp(name string) {
	w.t.Helper()
	requests := w.client.KommitV1alpha1().CommitRequests(namespace)
	w.awaitReason(requests.Watch, v1alpha1.ReasonCaughtUp, func() []metav1.Condition {
		request, err := requests.Get(w.ctx, name, metav1.GetOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		// awaitReason looks at Ready.
		if caughtUp := apimeta.FindStatusCondition(request.Status.Conditions, v1alpha1.ConditionCaughtUp); caughtUp != nil {
			return []metav1.Condition{{Type: v1alpha1.ConditionReady, Reason: caughtUp.Reason}}
		}
		return nil
	})
}

// D2: closed writes are pushed after the kill, in their order and as the same commits.
func TestD2ClosedWritesSurvive(t *testing.T) {
	w := newWorld(t)
	up := w.down()
	w.edit("alice", "a", "one")
	w.save("alice", "first", "One")
	w.await("first", v1alpha1.ReasonWaitingForPush)
	w.edit("alice", "a", "two")
	w.save("alice", "second", "Two")
	w.await("second", v1alpha1.ReasonWaitingForPush)
	if err := w.pool.Resync(w.ctx, prod, []window.Change{{Target: prod, Object: window.Object{Resource: "configmaps", Namespace: namespace, Name: "r"}, Operation: window.Create, Manifest: []byte(manifestOf("r", "x"))}}); err != nil {
		t.Fatal(err)
	}
	w.restart()
	up()
	w.await("second", v1alpha1.ReasonCommitted)
	first := w.await("first", v1alpha1.ReasonCommitted)
	if err := w.pool.Shutdown(w.ctx); err != nil {
		t.Fatal(err)
	}
	got := w.subjects()
	if len(got) != 3 || got[0] != "alice: One" || got[1] != "alice: Two" || !strings.HasPrefix(got[2], "kommit: ") {
		t.Errorf("commits are %q", got)
	}
	if want := w.repository.Must("rev-parse", "main~2"); first.Status.Commit != want {
		t.Errorf("first is %s, want %s", first.Status.Commit, want)
	}
	w.wantNothingLeft()
}

// D2, D3: a commit that is on the remote although nobody was told is recognised, not
// made again, also when others have come after it.
func TestD2PushedCommitIsRecognised(t *testing.T) {
	w := newWorld(t)
	w.edit("alice", "a", "one")
	w.muted.Store(true)
	w.save("alice", "first", "One")
	w.awaitPush()
	pushed := w.repository.Must("rev-parse", "main")
	w.restart()
	w.repository.MustCommit("main", map[string]string{"live/shop/configmaps/a.yaml": manifestOf("a", "theirs")})
	w.muted.Store(false)
	request := w.await("first", v1alpha1.ReasonCommitted)
	if request.Status.Commit != pushed {
		t.Errorf("commit is %s, want %s", request.Status.Commit, pushed)
	}
	if err := w.pool.Shutdown(w.ctx); err != nil {
		t.Fatal(err)
	}
	if got := w.repository.Must("show", "main:live/shop/configmaps/a.yaml"); got != strings.TrimSpace(manifestOf("a", "theirs")) {
		t.Errorf("a is %q: it was turned back", got)
	}
	w.wantNothingLeft()
}

// The watch goes on from before the kill, so changes come again: once is enough, and
// what came after is taken.
func TestReplayedChangesAreNotDoubled(t *testing.T) {
	w := newWorld(t)
	change := func(version int, user, content string) {
		w.change(window.Change{
			Target: prod, Object: window.Object{Resource: "configmaps", Namespace: namespace, Name: "a"}, UID: "a",
			ResourceVersion: fmt.Sprint(version), Author: window.Author{Username: user}, Operation: window.Update, Manifest: []byte(manifestOf("a", content)),
		})
	}
	change(10, "alice", "one")
	change(12, "bob", "two") // closes alice's
	w.awaitPush()
	w.save("bob", "his", "His")
	w.await("his", v1alpha1.ReasonCommitted)
	change(14, "bob", "three")
	w.restart()
	change(10, "alice", "one")
	change(12, "bob", "two")
	change(14, "bob", "three")
	change(16, "carol", "four")
	w.save("carol", "hers", "Hers")
	w.await("hers", v1alpha1.ReasonCommitted)
	w.wantSubjects("alice: Update configmaps/a in shop", "bob: His", "bob: Update configmaps/a in shop", "carol: Hers")
	if rows := w.rows(); rows["taken"] != 1 {
		t.Errorf("rows are %v, want one about the version that was taken last", rows)
	}
}

// W17, W18: what happened to a request and to the target while nobody was there
// counts.
func TestRequestAndTargetThatWentMeanwhile(t *testing.T) {
	w := newWorld(t)
	requests := w.client.KommitV1alpha1().CommitRequests(namespace)
	w.edit("alice", "a", "one")
	w.saveFor("alice", "attached", "Kept", 3*time.Second)
	w.await("attached", v1alpha1.ReasonCollectingWindow)
	w.saveFor("bob", "waiting", "Dropped", time.Hour)
	w.awaitCaughtUp("waiting")
	w.crash()
	for _, name := range []string{"attached", "waiting"} {
		if err := requests.Delete(w.ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.start()
	w.edit("bob", "b", "one") // no request waits for it any more
	w.awaitPush()
	w.wantSubjects("alice: Kept")

	w.saveFor("bob", "suspended", "His", time.Hour)
	w.await("suspended", v1alpha1.ReasonCollectingWindow)
	w.crash()
	w.suspend()
	w.start()
	w.await("suspended", v1alpha1.ReasonTargetSuspended)
	if name := <-w.recompared; name != prod {
		t.Errorf("%s is compared, want %s", name, prod)
	}
	w.wantSubjects("alice: Kept")
	w.wantNothingLeft()
	if rows := w.rows(); rows["uncompared"] != 1 {
		t.Errorf("rows are %v: that the target has to be compared is forgotten", rows)
	}
}

// C9: a comparison with Git leaves to their authors what is open, and what is closed
// and not pushed.
func TestC9WhatWaitsIsNotDifferent(t *testing.T) {
	w := newWorld(t)
	up := w.down()
	w.edit("alice", "closed", "one")
	w.save("alice", "first", "One")
	w.await("first", v1alpha1.ReasonWaitingForPush)
	w.edit("bob", "open", "one")
	w.edit("bob", "newer", "one")
	w.edit("bob", "gone", "one")
	w.restart()
	up()
	listed := func(name, content string) window.Change {
		return window.Change{
			Target: prod, Object: window.Object{Resource: "configmaps", Namespace: namespace, Name: name},
			Operation: window.Update, Manifest: []byte(manifestOf(name, content)),
		}
	}
	all := []window.Change{listed("closed", "one"), listed("open", "one"), listed("newer", "two"), listed("other", "one")}
	differing, orphans, err := w.pool.Differing(w.ctx, prod, []window.Object{{Resource: "configmaps", Namespace: namespace}}, all)
	if err != nil {
		t.Fatal(err)
	}
	if len(differing) != 2 || differing[0].Object.Name != "newer" || differing[1].Object.Name != "other" {
		t.Errorf("differing are %+v, want newer and other", differing)
	}
	if len(orphans) > 0 {
		t.Errorf("orphans are %+v of a target that does not prune", orphans)
	}
}

// W16, W18: what was pushed when the target was suspended is Committed, also when
// nobody saw the answer; what was not is dropped, and does not come with the resume.
func TestW18WhatWasPushedBeforeTheSuspensionIsCommitted(t *testing.T) {
	for name, test := range map[string]struct {
		reject bool
		reason string
		want   []string
	}{
		"pushed":   {false, v1alpha1.ReasonCommitted, []string{"alice: One"}},
		"rejected": {true, v1alpha1.ReasonTargetSuspended, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if test.reject {
				w.repository.MustHook("pre-receive", "echo no >&2; exit 1")
			}
			w.edit("alice", "a", "one")
			w.muted.Store(!test.reject)
			w.save("alice", "first", "One")
			if test.reject {
				w.await("first", v1alpha1.ReasonRemoteRejected)
			} else {
				w.awaitPush()
			}
			w.crash()
			w.suspend()
			w.muted.Store(false)
			w.start()
			w.await("first", test.reason)
			w.wantSubjects(test.want...)
			w.wantNothingLeft()
		})
	}
}
