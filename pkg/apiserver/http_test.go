// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	applyv1alpha1 "github.com/kommit-dev/kommit/generated/applyconfiguration/kommit/v1alpha1"
)

func TestSaveOverHTTP(t *testing.T) {
	server := startServer(t)
	admin := server.as(t, "admin")
	alice := server.as(t, "alice").KommitV1alpha1().CommitRequests("team")

	if _, err := alice.Create(t.Context(), newRequest("early"), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("unknown target: %v", err)
	} else if cause, ok := apierrors.StatusCause(err, metav1.CauseTypeFieldValueNotFound); !ok || cause.Field != "spec.gitTargetRef.name" {
		t.Errorf("unknown target: %+v, want the field", cause)
	}
	createTarget(t, admin)

	// 4.6: the response of the create says who, until when, and to which window.
	forged := newRequest("save")
	forged.Spec.RequestedBy.Username = "bob"
	created, err := alice.Create(t.Context(), forged, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if created.Spec.RequestedBy.Username != "alice" {
		t.Errorf("requestedBy is %q", created.Spec.RequestedBy.Username)
	}
	if created.Status.AttachDeadline == nil || created.Status.WindowRef == nil || created.Status.WindowRef.Name != "prod-alice-1" {
		t.Errorf("status is %+v", created.Status)
	}
	if created.Spec.Window.MaxDuration == nil || created.Spec.WhenNothingToCommit != v1alpha1.NothingResolve {
		t.Errorf("defaults are missing: %+v", created.Spec)
	}

	if _, err := server.as(t, "eve").KommitV1alpha1().CommitRequests("team").Create(t.Context(), newRequest("eves"), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("without the permission: %v", err)
	}
	if _, err := server.as(t, "").KommitV1alpha1().CommitRequests("team").Create(t.Context(), newRequest("nobodys"), metav1.CreateOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("without a user: %v", err)
	}
	if _, err := alice.Create(t.Context(), newRequest("dry"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("dry run: %v", err)
	}
	list, err := alice.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "save" {
		t.Errorf("stored are %v, %v, want save alone", list, err)
	}

	changed := created.DeepCopy()
	changed.Spec.Message = "Other"
	if _, err := alice.Update(t.Context(), changed, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("changed spec: %v", err)
	}
	done := created.DeepCopy()
	done.Status.Branch = "main"
	if updated, err := server.as(t, "kommit").KommitV1alpha1().CommitRequests("team").UpdateStatus(t.Context(), done, metav1.UpdateOptions{}); err != nil || updated.Status.Branch != "main" {
		t.Errorf("status: %v", err)
	}
}

func TestServerSideApply(t *testing.T) {
	server := startServer(t)
	createTarget(t, server.as(t, "admin"))
	options := metav1.ApplyOptions{FieldManager: "kubectl", Force: true}
	manifest := func() *applyv1alpha1.CommitRequestApplyConfiguration {
		return applyv1alpha1.CommitRequest("save", "team").WithSpec(applyv1alpha1.CommitRequestSpec().
			WithGitTargetRef(applyv1alpha1.LocalObjectReference().WithName("prod")).
			WithMessage("Save").
			WithRequestedBy(applyv1alpha1.UserInfo().WithUsername("bob")))
	}
	if _, err := server.as(t, "eve").KommitV1alpha1().CommitRequests("team").Apply(t.Context(), manifest(), options); !apierrors.IsForbidden(err) {
		t.Errorf("without the permission: %v", err)
	}
	alice := server.as(t, "alice").KommitV1alpha1().CommitRequests("team")
	applied, err := alice.Apply(t.Context(), manifest(), options)
	if err != nil {
		t.Fatal(err)
	}
	if applied.Spec.RequestedBy.Username != "alice" {
		t.Errorf("requestedBy is %q", applied.Spec.RequestedBy.Username)
	}
	for _, owned := range applied.ManagedFields {
		if strings.Contains(string(owned.FieldsV1.GetRawBytes()), "requestedBy") {
			t.Errorf("%s owns requestedBy", owned.Manager)
		}
	}
	again, err := server.as(t, "bob").KommitV1alpha1().CommitRequests("team").Apply(t.Context(), manifest(), options)
	if err != nil || again.Spec.RequestedBy.Username != "alice" || again.ResourceVersion != applied.ResourceVersion {
		t.Errorf("applied again: %v, by %q, %s after %s", err, again.Spec.RequestedBy.Username, again.ResourceVersion, applied.ResourceVersion)
	}
}

func TestSelectorsAndWatch(t *testing.T) {
	server := startServer(t)
	createTarget(t, server.as(t, "admin"))
	alice := server.as(t, "alice").KommitV1alpha1().CommitRequests("team")
	for _, name := range []string{"one", "two"} {
		if _, err := alice.Create(t.Context(), newRequest(name), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := alice.List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=two,metadata.namespace=team"})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "two" {
		t.Errorf("metadata.name=two: %v, %v", err, list)
	}
	if _, err := alice.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.message=x"}); !apierrors.IsBadRequest(err) {
		t.Errorf("a field that cannot be selected must be refused, not ignored: %v", err)
	}
	watcher, err := alice.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=two"})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	event := <-watcher.ResultChan()
	if request, ok := event.Object.(*v1alpha1.CommitRequest); !ok || event.Type != watch.Added || request.Name != "two" {
		t.Errorf("got %s %v, want ADDED two", event.Type, event.Object)
	}
}

func TestDiscoveryTablesAndOpenAPI(t *testing.T) {
	server := startServer(t)
	createTarget(t, server.as(t, "admin"))

	resources, err := server.as(t, "admin").Discovery().ServerResourcesForGroupVersion("kommit.dev/v1alpha1")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range resources.APIResources {
		names = append(names, r.Name)
		if strings.Contains(r.Name, "/") {
			continue
		}
		if !r.Namespaced || !slices.Contains(r.Categories, "kommit") || len(r.ShortNames) == 0 {
			t.Errorf("%s: %+v", r.Name, r)
		}
	}
	slices.Sort(names)
	want := []string{
		"commitrequests", "commitrequests/commits", "commitrequests/status", "commitwindows", "commitwindows/diff",
		"gitproviders", "gitproviders/status", "gittargets", "gittargets/commits", "gittargets/status", "watchrules", "watchrules/status",
	}
	if !slices.Equal(names, want) {
		t.Errorf("resources are %v, want %v", names, want)
	}

	code, body := server.do(t, "admin", http.MethodGet, "/apis/kommit.dev/v1alpha1/namespaces/team/gittargets",
		"application/json;as=Table;v=v1;g=meta.k8s.io", "")
	var table metav1.Table
	if err := json.Unmarshal([]byte(body), &table); err != nil || code != http.StatusOK || table.Kind != "Table" || len(table.Rows) != 1 || table.ResourceVersion == "" {
		t.Errorf("table: %d, %v, %s", code, err, body)
	}

	for _, path := range []string{"/openapi/v2", "/openapi/v3/apis/kommit.dev/v1alpha1"} {
		code, body := server.do(t, "admin", http.MethodGet, path, "application/json", "")
		if code != http.StatusOK || !strings.Contains(body, v1alpha1.CommitRequest{}.OpenAPIModelName()) {
			t.Errorf("%s: %d, CommitRequest is not in it", path, code)
		}
		if strings.Contains(body, "__internal") {
			t.Errorf("%s lists the internal version", path)
		}
	}
}

// C11: the audit endpoint is behind the server's own authentication and RBAC.
func TestAuditEndpoint(t *testing.T) {
	server := startServer(t)
	for _, test := range []struct {
		username string
		want     int
	}{
		{"", http.StatusUnauthorized},
		{"alice", http.StatusForbidden},
		{"system:kube-apiserver", http.StatusOK},
	} {
		if code, body := server.do(t, test.username, http.MethodPost, AuditPath, "", "of "+test.username); code != test.want {
			t.Errorf("%q: %d %s, want %d", test.username, code, body, test.want)
		}
	}
	if got, want := server.calls(), []string{"started", "audit of system:kube-apiserver"}; !slices.Equal(got, want) {
		t.Errorf("seen %q, want %q", got, want)
	}
}

func TestReadiness(t *testing.T) {
	server := startServer(t)
	for _, test := range []struct {
		path  string
		ready error
		want  int
	}{
		{"/readyz/storage", nil, http.StatusOK},
		{"/readyz/storage", errors.New("the disk is full"), http.StatusInternalServerError},
		{"/livez", errors.New("the disk is full"), http.StatusOK},
	} {
		server.ready(test.ready)
		if code, body := server.do(t, "admin", http.MethodGet, test.path, "", ""); code != test.want {
			t.Errorf("%s with %v: %d %s, want %d", test.path, test.ready, code, body, test.want)
		}
	}
}

func TestPreShutdownCanUseTheAPI(t *testing.T) {
	server := startServer(t)
	server.stop()
	if got, want := server.calls(), []string{"started", "stopping, list: <nil>"}; !slices.Equal(got, want) {
		t.Errorf("seen %q, want %q", got, want)
	}
}

// The reasons of 4.4 on a stored request are what kubectl get shows.
func TestTableOfCommitRequests(t *testing.T) {
	server := startServer(t)
	createTarget(t, server.as(t, "admin"))
	created, err := server.as(t, "bob").KommitV1alpha1().CommitRequests("team").Create(t.Context(), newRequest("save"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if c := meta.FindStatusCondition(created.Status.Conditions, v1alpha1.ConditionReady); c == nil || c.Reason != v1alpha1.ReasonWaitingForWindow {
		t.Errorf("Ready is %+v", c)
	}
	_, body := server.do(t, "bob", http.MethodGet, "/apis/kommit.dev/v1alpha1/commitrequests", "application/json;as=Table;v=v1;g=meta.k8s.io", "")
	var table metav1.Table
	if err := json.NewDecoder(bytes.NewBufferString(body)).Decode(&table); err != nil || len(table.Rows) != 1 {
		t.Fatalf("%v: %s", err, body)
	}
	if got := fmt.Sprint(table.Rows[0].Cells[:5]...); got != fmt.Sprint("save", "False", "WaitingForWindow", "prod", "bob") {
		t.Errorf("row starts with %s", got)
	}
}
