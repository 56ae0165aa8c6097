// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package branch

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/window"
)

func TestW16CommittedIsOnTheRemoteWithThatHash(t *testing.T) {
	w := newWorld(t)
	w.edit("alice", "a", "one")
	w.edit("bob", "b", "one")
	w.save("alice", "first", "What alice did")
	request := w.await("first", v1alpha1.ReasonCommitted)
	if head := w.repository.MustHead("main"); request.Status.Commit != head || request.Status.Branch != "main" {
		t.Errorf("status says %s on %s, the remote's main is %s", request.Status.Commit, request.Status.Branch, head)
	}
	w.wantSubjects("alice: What alice did")
	if got, want := w.repository.MustShow("main", "live/shop/configmaps/a.yaml"), manifestOf("a", "one"); got != want {
		t.Errorf("the file is %q, want %q", got, want)
	}
	if caughtUp := apimeta.FindStatusCondition(request.Status.Conditions, v1alpha1.ConditionCaughtUp); caughtUp == nil || caughtUp.Status != metav1.ConditionTrue {
		t.Errorf("CaughtUp is %+v, want True", caughtUp)
	}
}

func TestCatchingUpNamesWhatLags(t *testing.T) {
	w := newWorld(t)
	w.lagging = "configmaps"
	w.edit("alice", "a", "one")
	w.save("alice", "first", "What alice did")
	request := w.await("first", v1alpha1.ReasonCommitted)
	caughtUp := apimeta.FindStatusCondition(request.Status.Conditions, v1alpha1.ConditionCaughtUp)
	if caughtUp == nil || caughtUp.Status != metav1.ConditionFalse || !strings.Contains(caughtUp.Message, "configmaps") {
		t.Errorf("CaughtUp is %+v, want False, naming configmaps", caughtUp)
	}
}

// W3, 5.5: what alice did before and comes late is in her next window.
func TestCutShortIsNotCaughtUp(t *testing.T) {
	w := newWorld(t)
	w.proving = make(chan struct{})
	w.edit("alice", "a", "one")
	w.save("alice", "first", "What alice did")
	w.await("first", v1alpha1.ReasonCollectingWindow)
	w.edit("bob", "a", "two")
	request := w.await("first", v1alpha1.ReasonCommitted)
	caughtUp := apimeta.FindStatusCondition(request.Status.Conditions, v1alpha1.ConditionCaughtUp)
	if caughtUp == nil || caughtUp.Status != metav1.ConditionFalse || caughtUp.Reason != v1alpha1.ReasonCutShort {
		t.Errorf("CaughtUp is %+v, want False, CutShort", caughtUp)
	}
	w.wantSubjects("alice: What alice did")
}

func TestW15AlreadyPresentMakesNoCommit(t *testing.T) {
	w := newWorld(t)
	w.edit("alice", "a", "one")
	w.save("alice", "first", "One")
	w.await("first", v1alpha1.ReasonCommitted)
	w.edit("alice", "a", "two")
	w.edit("alice", "a", "one")
	w.save("alice", "second", "Again")
	w.await("second", v1alpha1.ReasonAlreadyPresent)
	w.wantSubjects("alice: One")
}

// rejectBad is a hook that turns down a push with a commit whose message says
// Bad.
const rejectBad = `#!/bin/sh
while read -r old new ref; do
	case $old in 0000*) range=$new;; *) range=$old..$new;; esac
	if git log --format=%s "$range" | grep -q Bad; then
		echo "policy: no bad messages" >&2
		exit 1
	fi
done
`

// G6 and DESIGN 4.4: a refused write blocks only itself, keeps its changes, and
// becomes Committed when it is accepted later, without turning back what was
// saved since.
func TestG6RefusedBlocksOnlyItself(t *testing.T) {
	w := newWorld(t)
	w.repository.MustHook("pre-receive", rejectBad)
	w.edit("alice", "a", "one")
	w.edit("alice", "b", "one")
	w.save("alice", "refused", "Bad")
	rejected := w.await("refused", v1alpha1.ReasonRemoteRejected)
	ready := apimeta.FindStatusCondition(rejected.Status.Conditions, v1alpha1.ConditionReady)
	if !strings.Contains(ready.Message, "policy: no bad messages") {
		t.Errorf("message is %q, want the remote's own words", ready.Message)
	}
	if rejected.Status.CompletionTime != nil || rejected.Status.Commit != "" {
		t.Errorf("a refused request has completionTime %v and commit %q", rejected.Status.CompletionTime, rejected.Status.Commit)
	}
	w.edit("alice", "a", "two")
	w.save("alice", "good", "Good")
	w.await("good", v1alpha1.ReasonCommitted)
	w.wantSubjects("alice: Good")

	w.repository.MustHook("pre-receive", "#!/bin/sh\nexit 0\n")
	w.touchTarget("prod")
	accepted := w.await("refused", v1alpha1.ReasonCommitted)
	w.wantSubjects("alice: Good", "alice: Bad")
	if head := w.repository.MustHead("main"); accepted.Status.Commit != head {
		t.Errorf("status.commit is %s, want %s", accepted.Status.Commit, head)
	}
	if got, want := w.repository.MustShow("main", "live/shop/configmaps/a.yaml"), manifestOf("a", "two"); got != want {
		t.Errorf("the later save was turned back: %q", got)
	}
	if got, want := w.repository.MustShow("main", "live/shop/configmaps/b.yaml"), manifestOf("b", "one"); got != want {
		t.Errorf("the refused write's other object is %q, want %q", got, want)
	}
}

// G9: credentials are read for each session, so a mended Secret is enough.
func TestAuthenticationFailedIsTriedAgain(t *testing.T) {
	w := newWorld(t)
	w.server.SetPassword("changed")
	w.edit("alice", "a", "one")
	w.save("alice", "first", "One")
	w.await("first", v1alpha1.ReasonAuthenticationFailed)
	w.must(w.cluster.CoreV1().Secrets(namespace).Update(w.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "git"},
		Data:       map[string][]byte{"username": []byte("kommit"), "password": []byte("changed")},
	}, metav1.UpdateOptions{}))
	w.touchTarget("prod")
	w.await("first", v1alpha1.ReasonCommitted)
	w.wantSubjects("alice: One")
}

func TestUnreachableRemoteIsNotTheEnd(t *testing.T) {
	w := newWorld(t)
	if err := w.server.Down(); err != nil {
		t.Fatal(err)
	}
	w.edit("alice", "a", "one")
	w.save("alice", "first", "One")
	waiting := w.await("first", v1alpha1.ReasonWaitingForPush)
	if waiting.Status.CompletionTime != nil {
		t.Error("a waiting request has a completionTime")
	}
	if err := w.server.Up(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.await("first", v1alpha1.ReasonCommitted)
	w.wantSubjects("alice: One")
}

// DESIGN 4.2: the younger of two overlapping targets writes nothing, and its
// windows are not lost: they are written when the older one is gone.
func TestOverlappingTargetWaits(t *testing.T) {
	w := newWorld(t)
	w.target("older", "live/shop", time.Unix(500, 0))
	w.awaitTarget("prod", v1alpha1.ReasonPathOverlap)
	w.edit("alice", "a", "one")
	w.save("alice", "first", "One")
	w.await("first", v1alpha1.ReasonWaitingForPush)
	w.wantSubjects()
	if err := w.client.KommitV1alpha1().GitTargets(namespace).Delete(w.ctx, "older", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.await("first", v1alpha1.ReasonCommitted)
	w.wantSubjects("alice: One")
}

// An outcome for a deleted and re-created name is dropped: the other UID's
// request is another request (W6).
func TestRecreatedNameIsAnotherRequest(t *testing.T) {
	w := newWorld(t)
	if err := w.server.Down(); err != nil {
		t.Fatal(err)
	}
	w.edit("alice", "a", "one")
	w.save("alice", "same", "One")
	w.await("same", v1alpha1.ReasonWaitingForPush)
	requests := w.client.KommitV1alpha1().CommitRequests(namespace)
	if err := requests.Delete(w.ctx, "same", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.must(requests.Create(w.ctx, &v1alpha1.CommitRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "same", UID: "another", Generation: 1},
		Spec: v1alpha1.CommitRequestSpec{
			GitTargetRef: v1alpha1.LocalObjectReference{Name: "prod"},
			Window:       v1alpha1.RequestWindow{Attach: v1alpha1.AttachCurrentOrNext, MaxDuration: &metav1.Duration{}},
			RequestedBy:  v1alpha1.UserInfo{Username: "alice"},
		},
		Status: v1alpha1.CommitRequestStatus{AttachDeadline: &metav1.MicroTime{Time: time.Now()}},
	}, metav1.CreateOptions{}))
	w.await("same", v1alpha1.ReasonNoOpenWindow)
	if err := w.server.Up(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.touchTarget("prod")
	if err := w.pool.Shutdown(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.wantSubjects("alice: One") // W17: the commit goes through, the message with it
	w.await("same", v1alpha1.ReasonNoOpenWindow)
}

// W5, W13: at shutdown open windows are pushed; unresolved changes say so (W20).
func TestShutdownPushesOpenWindows(t *testing.T) {
	w := newWorld(t)
	w.edit("alice", "a", "one")
	w.change(window.Change{
		Target: prod, Object: window.Object{Resource: "configmaps", Namespace: namespace, Name: "b"}, UID: "b", ResourceVersion: "9",
		Author: window.Unresolved, Operation: window.Create, Manifest: []byte(manifestOf("b", "one")),
	})
	if err := w.pool.Shutdown(w.ctx); err != nil {
		t.Fatal(err)
	}
	authors := w.repository.Must("log", "--reverse", "--format=%an <%ae>", "main")
	if want := "alice <alice@example.com>\nunknown (attribution unresolved) <"; !strings.HasPrefix(authors, want) {
		t.Errorf("authors are %q, want %q…", authors, want)
	}
}

func TestC9DifferingComparesWithTheBranch(t *testing.T) {
	w := newWorld(t)
	listed := func(name, content string) window.Change {
		return window.Change{Target: prod, Object: window.Object{Resource: "configmaps", Namespace: namespace, Name: name}, Manifest: []byte(manifestOf(name, content))}
	}
	w.repository.MustCommit("main", map[string]string{
		"live/shop/configmaps/same.yaml":    manifestOf("same", "one"),
		"live/shop/configmaps/comment.yaml": "# by hand\n" + manifestOf("comment", "one"),
		"live/shop/configmaps/other.yaml":   manifestOf("other", "one"),
		"live/shop/configmaps/gone.yaml":    manifestOf("gone", "one"),
		"live/shop/services/kept.yaml":      "not in the scope\n",
	})
	scope := []window.Object{{Resource: "configmaps", Namespace: namespace}}
	list := []window.Change{listed("same", "one"), listed("comment", "one"), listed("other", "two"), listed("new", "one")}
	differing, orphans, err := w.pool.Differing(w.ctx, prod, scope, list)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, change := range differing {
		names = append(names, change.Object.Name)
	}
	if want := []string{"other", "new"}; !slices.Equal(names, want) {
		t.Errorf("differing are %v, want %v", names, want)
	}
	if len(orphans) != 0 {
		t.Errorf("orphans are %v although the target does not prune", orphans)
	}
}
