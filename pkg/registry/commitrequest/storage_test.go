// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package commitrequest

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/registry"
	"github.com/kommit-dev/kommit/pkg/registry/gittarget"
	"github.com/kommit-dev/kommit/pkg/storage/bolt"
)

// savers are the users that may save to the target "prod", and to no other.
type savers []string

func (s savers) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetUser().GetName() == "unlucky" {
		return authorizer.DecisionNoOpinion, "", errors.New("the webhook is down")
	}
	for _, name := range s {
		if a.GetUser().GetName() == name && a.IsResourceRequest() && a.GetVerb() == "create" && a.GetAPIGroup() == "kommit.dev" &&
			a.GetResource() == "gittargets" && a.GetSubresource() == "commits" && a.GetNamespace() == "team" && a.GetName() == "prod" {
			return authorizer.DecisionAllow, "", nil
		}
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func newStorage(t *testing.T, w windows, authz authorizer.UnconditionalAuthorizer) (requests *registry.REST, status *registry.StatusREST) {
	t.Helper()
	return newStorageOf(t, Config{Authorizer: authz, Windows: w})
}

// newStorageOf adds the targets to config.
func newStorageOf(t *testing.T, config Config) (requests *registry.REST, status *registry.StatusREST) {
	t.Helper()
	db, err := bolt.Open(t.Context(), bolt.Config{Path: filepath.Join(t.TempDir(), "kommit.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	scheme := newScheme()
	var getter generic.RESTOptionsGetter = bolt.NewRESTOptionsGetter(db,
		serializer.NewCodecFactory(scheme).LegacyCodec(v1alpha1.SchemeGroupVersion), "")
	targets, _, err := gittarget.NewREST(scheme, getter)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(targets.Destroy)
	config.Targets = targets
	requests, status, err = NewREST(scheme, getter, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(requests.Destroy)
	for _, name := range []string{"prod", "stage"} {
		target := &v1alpha1.GitTarget{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "team"},
			Spec:       v1alpha1.GitTargetSpec{GitProviderRef: v1alpha1.LocalObjectReference{Name: "origin"}, Branch: "main"},
		}
		v1alpha1.SetObjectDefaults_GitTarget(target)
		if _, err := targets.Create(as("admin"), target, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return requests, status
}

func TestCreatePermission(t *testing.T) {
	target := func(name string) func(*v1alpha1.CommitRequest) {
		return func(r *v1alpha1.CommitRequest) { r.Spec.GitTargetRef.Name = name }
	}
	for _, test := range []struct {
		name, username string
		change         func(*v1alpha1.CommitRequest)
		is             func(error) bool
	}{
		{"may save", "alice", nil, func(err error) bool { return err == nil }},
		{"may not save at all", "eve", nil, apierrors.IsForbidden},
		{"may save to another target only", "alice", target("stage"), apierrors.IsForbidden},
		{"permission unknown", "unlucky", nil, apierrors.IsInternalError},
		{"unknown target", "alice", target("elsewhere"), apierrors.IsInvalid},
		{"an earlier save is under way", "bob", nil, func(err error) bool {
			_, named := apierrors.StatusCause(err, CauseSaveInProgress)
			return apierrors.IsConflict(err) && named
		}},
	} {
		for _, dryRun := range [][]string{nil, {metav1.DryRunAll}} {
			requests, _ := newStorage(t, windows{"bob": {inProgress: "first"}}, savers{"alice", "bob"})
			create := map[string]func(*v1alpha1.CommitRequest) error{
				"POST": func(request *v1alpha1.CommitRequest) error {
					_, err := requests.Create(as(test.username), request, rest.ValidateAllObjectFunc, &metav1.CreateOptions{DryRun: dryRun})
					return err
				},
				// Server-side apply of an unknown name ends here.
				"apply": func(request *v1alpha1.CommitRequest) error {
					_, _, err := requests.Update(as(test.username), request.Name, rest.DefaultUpdatedObjectInfo(request),
						rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, true, &metav1.UpdateOptions{DryRun: dryRun})
					return err
				},
			}
			for verb, do := range create {
				t.Run(test.name+"/"+verb, func(t *testing.T) {
					request := newRequest(test.change)
					request.Name = "by-" + map[string]string{"POST": "post", "apply": "apply"}[verb]
					err := do(request)
					if !test.is(err) {
						t.Errorf("got %v", err)
					}
					_, getErr := requests.Get(as(test.username), request.Name, &metav1.GetOptions{})
					if stored, want := getErr == nil, err == nil && dryRun == nil; stored != want {
						t.Errorf("dry run %v: stored is %t, want %t", dryRun, stored, want)
					}
				})
			}
		}
	}
}

// A server that stops takes no new saves, however they arrive, and says when to come
// again. What is stored may change as ever.
func TestNoNewSavesWhileStopping(t *testing.T) {
	stopping := make(chan struct{})
	requests, status := newStorageOf(t, Config{Authorizer: savers{"alice"}, Windows: windows{}, Stopping: stopping})
	obj, err := requests.Create(as("alice"), newRequest(nil), rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("before the stop: %v", err)
	}
	stored := obj.DeepCopyObject().(*v1alpha1.CommitRequest)
	close(stopping)

	for name, save := range map[string]func(context.Context, []string) error{
		"POST": func(ctx context.Context, dryRun []string) error {
			_, err := requests.Create(ctx, newRequest(func(r *v1alpha1.CommitRequest) { r.Name = "late" }), rest.ValidateAllObjectFunc, &metav1.CreateOptions{DryRun: dryRun})
			return err
		},
		"apply": func(ctx context.Context, dryRun []string) error {
			_, _, err := requests.Update(ctx, "late", rest.DefaultUpdatedObjectInfo(newRequest(func(r *v1alpha1.CommitRequest) { r.Name = "late" })),
				rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, true, &metav1.UpdateOptions{DryRun: dryRun})
			return err
		},
	} {
		for _, dryRun := range [][]string{nil, {metav1.DryRunAll}} {
			for _, username := range []string{"alice", "eve"} { // nobody's permission is asked for
				err := save(as(username), dryRun)
				seconds, said := apierrors.SuggestsClientDelay(err)
				if !apierrors.IsServiceUnavailable(err) || !said || seconds != stoppingRetryAfter {
					t.Errorf("%s by %s, dry run %v: %v, again after %d s; want ServiceUnavailable and %d s", name, username, dryRun, err, seconds, stoppingRetryAfter)
				}
				if _, err := requests.Get(as("alice"), "late", &metav1.GetOptions{}); !apierrors.IsNotFound(err) {
					t.Errorf("%s, dry run %v: left behind: %v", name, dryRun, err)
				}
			}
		}
	}

	stored.Labels = map[string]string{"a": "b"}
	obj, _, err = requests.Update(as("alice"), stored.Name, rest.DefaultUpdatedObjectInfo(stored),
		rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, true, &metav1.UpdateOptions{})
	if err != nil {
		t.Fatalf("labels: %v", err)
	}
	told := obj.DeepCopyObject().(*v1alpha1.CommitRequest)
	told.Status.Branch = "main"
	if _, _, err := status.Update(as("kommit"), told.Name, rest.DefaultUpdatedObjectInfo(told),
		rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{}); err != nil {
		t.Errorf("status: %v", err)
	}
	if _, _, err := requests.Delete(as("alice"), stored.Name, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}); err != nil {
		t.Errorf("withdrawn: %v", err)
	}
}

func TestChangeOfAStoredRequestIsNoSave(t *testing.T) {
	requests, _ := newStorage(t, nil, savers{"alice"})
	created, err := requests.Create(as("alice"), newRequest(nil), rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	labelled := created.DeepCopyObject().(*v1alpha1.CommitRequest)
	labelled.Labels = map[string]string{"a": "b"}
	if _, _, err := requests.Update(as("eve"), labelled.Name, rest.DefaultUpdatedObjectInfo(labelled),
		rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{}); err != nil {
		t.Errorf("labels by one who may not save: %v", err)
	}
}

func TestStatusUpdateChangesStatusOnly(t *testing.T) {
	requests, status := newStorage(t, nil, savers{"alice"})
	created, err := requests.Create(as("alice"), newRequest(nil), rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	changed := created.DeepCopyObject().(*v1alpha1.CommitRequest)
	changed.Status.Commit = "0123456789abcdef0123456789abcdef01234567"
	changed.Spec.Message = "changed"
	changed.Labels = map[string]string{"changed": "yes"}
	obj, _, err := status.Update(as("kommit"), changed.Name, rest.DefaultUpdatedObjectInfo(changed),
		rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stored := obj.(*v1alpha1.CommitRequest)
	if stored.Status.Commit != changed.Status.Commit {
		t.Errorf("status.commit is %q", stored.Status.Commit)
	}
	if stored.Spec.Message != "" || len(stored.Labels) != 0 {
		t.Errorf("the status subresource changed more than status: %+v", stored)
	}
}

func TestTable(t *testing.T) {
	requests, _ := newStorage(t, windows{"alice": {open: "w-1"}}, savers{"alice"})
	created, err := requests.Create(as("alice"), newRequest(func(r *v1alpha1.CommitRequest) {
		r.Spec.Message = "Raise the limit\n\nIt was too low."
	}), rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	request := created.(*v1alpha1.CommitRequest)
	request.Status.Commit = "0123456789abcdef0123456789abcdef01234567"
	table, err := requests.ConvertToTable(t.Context(), request, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]any{}
	for i, column := range table.ColumnDefinitions {
		got[column.Name] = table.Rows[0].Cells[i]
		if wide := column.Name == "Branch" || column.Name == "Window" || column.Name == "Message"; wide != (column.Priority > 0) {
			t.Errorf("column %s has priority %d", column.Name, column.Priority)
		}
	}
	for name, want := range map[string]any{
		"Name": "save", "Ready": "False", "Reason": "CollectingWindow", "Target": "prod", "Author": "alice",
		"Commit": "0123456789ab", "Window": "w-1", "Message": "Raise the limit",
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	without, err := requests.ConvertToTable(t.Context(), request, &metav1.TableOptions{NoHeaders: true})
	if err != nil || without.ColumnDefinitions != nil || len(without.Rows) != 1 {
		t.Errorf("noHeaders: %v, %+v", err, without)
	}
}

// committed answers for the history.
type committed struct{}

func (committed) Commit(_ context.Context, request *v1alpha1.CommitRequest) (*v1alpha1.Commit, error) {
	return &v1alpha1.Commit{Hash: request.Status.Commit}, nil
}

func TestCommitOfARequest(t *testing.T) {
	requests, status := newStorage(t, nil, savers{"alice"})
	created, err := requests.Create(as("alice"), newRequest(nil), rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	request := created.(*v1alpha1.CommitRequest)
	commits := NewCommitsREST(requests, committed{})
	_, err = commits.Get(as("alice"), request.Name, &metav1.GetOptions{})
	if !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), v1alpha1.ReasonWaitingForWindow) {
		t.Errorf("a request without a commit: %v, want NotFound that says %s", err, v1alpha1.ReasonWaitingForWindow)
	}
	if _, err := commits.Get(as("alice"), "unknown", &metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("an unknown request: %v", err)
	}
	request.Status.Commit = "0123456789abcdef0123456789abcdef01234567"
	if _, _, err := status.Update(as("kommit"), request.Name, rest.DefaultUpdatedObjectInfo(request),
		rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	obj, err := commits.Get(as("alice"), request.Name, &metav1.GetOptions{})
	if err != nil || obj.(*v1alpha1.Commit).Hash != request.Status.Commit {
		t.Errorf("got %v, %v", obj, err)
	}
}
