// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

const (
	inTeam        = "/apis/kommit.dev/v1alpha1/namespaces/team/"
	contentIsJSON = "Content-Type: application/json"
)

// DESIGN 4.5: windows are read and watched, and nothing else.
func TestCommitWindowsAreReadOnly(t *testing.T) {
	t.Parallel()
	s := startContractServer(t)
	var list v1alpha1.CommitWindowList
	s.do(t, http.MethodGet, inTeam+"commitwindows", nil, "").decode(t, &list)
	if list.Kind != "CommitWindowList" || list.ResourceVersion == "" || list.Items == nil {
		t.Errorf("nothing is listed as %+v", list)
	}
	var table metav1.Table
	s.do(t, http.MethodGet, inTeam+"commitwindows", nil, "", "Accept: application/json;as=Table;v=v1;g=meta.k8s.io").decode(t, &table)
	if table.Kind != "Table" || len(table.ColumnDefinitions) == 0 {
		t.Errorf("the table is %+v", table)
	}
	s.watch(t, inTeam+"commitwindows", watchQuery("resourceVersion="+list.ResourceVersion, "fieldSelector=status.author=alice")).close()

	for _, test := range []struct {
		name, method, path string
		query              url.Values
		want               int
	}{
		{"fields to select by", http.MethodGet, "commitwindows", url.Values{"fieldSelector": {"status.author=alice,status.gitTargetRef.name=prod"}}, http.StatusOK},
		{"a field that is none", http.MethodGet, "commitwindows", url.Values{"fieldSelector": {"status.bytes=1"}}, http.StatusBadRequest},
		{"none of that name", http.MethodGet, "commitwindows/x", nil, http.StatusNotFound},
		{"its diff before the server has started", http.MethodGet, "commitwindows/x/diff", nil, http.StatusServiceUnavailable},
		{"create", http.MethodPost, "commitwindows", nil, http.StatusMethodNotAllowed},
		{"update", http.MethodPut, "commitwindows/x", nil, http.StatusMethodNotAllowed},
		{"patch", http.MethodPatch, "commitwindows/x", nil, http.StatusMethodNotAllowed},
		{"delete", http.MethodDelete, "commitwindows/x", nil, http.StatusMethodNotAllowed},
		{"delete all", http.MethodDelete, "commitwindows", nil, http.StatusMethodNotAllowed},
	} {
		if answer := s.do(t, test.method, inTeam+test.path, test.query, "{}", contentIsJSON); answer.code != test.want {
			t.Errorf("%s: %d %s, want %d", test.name, answer.code, answer.body, test.want)
		}
	}
}

// A list of the past or the future is refused, not answered with the present.
func TestCommitWindowsOfAnotherProcess(t *testing.T) {
	t.Parallel()
	s := startContractServer(t)
	for version, want := range map[string]int{"1": http.StatusGone, "99999999999999999": http.StatusGone} {
		watch := s.watch(t, inTeam+"commitwindows", watchQuery("resourceVersion="+version))
		var event struct{ Object metav1.Status }
		if err := watch.decoder.Decode(&event); err != nil || int(event.Object.Code) != want {
			t.Errorf("a watch from %s: %+v, %v, want %d", version, event, err, want)
		}
		watch.close()
	}
}

// DESIGN 4.5: POST is a save like any other: dry run, field validation and
// permission are honoured. GET takes limit and continue.
func TestCommitsOfAGitTarget(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	createTarget(t, s.as(t, "admin"))
	const commits = inTeam + "gittargets/prod/commits"
	requests := func() int {
		list, err := s.as(t, "admin").KommitV1alpha1().CommitRequests("team").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}
	body := func(change func(*v1alpha1.CommitRequest)) string {
		request := &v1alpha1.CommitRequest{TypeMeta: metav1.TypeMeta{APIVersion: "kommit.dev/v1alpha1", Kind: "CommitRequest"}}
		request.Spec.Message = "Posted"
		if change != nil {
			change(request)
		}
		encoded, err := json.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		return string(encoded)
	}
	unknownField := strings.Replace(body(nil), `"spec":{`, `"spec":{"mesage":"x",`, 1)
	for _, test := range []struct {
		name, user, query, body string
		want, stored            int
	}{
		{"dry run", "alice", "?dryRun=All", body(nil), http.StatusCreated, 0},
		{"a field that is none", "alice", "?fieldValidation=Strict", unknownField, http.StatusBadRequest, 0},
		{"no permission on the target", "eve", "", body(nil), http.StatusForbidden, 0},
		{"a control character", "alice", "", body(func(r *v1alpha1.CommitRequest) { r.Spec.Message = "a\x07" }), http.StatusUnprocessableEntity, 0},
		{"another target", "alice", "", body(func(r *v1alpha1.CommitRequest) { r.Spec.GitTargetRef.Name = "stage" }), http.StatusBadRequest, 0},
		{"a save", "alice", "", body(nil), http.StatusCreated, 1},
	} {
		code, answer := s.do(t, test.user, http.MethodPost, commits+test.query, "", test.body)
		if code != test.want || requests() != test.stored {
			t.Errorf("%s: %d %s, want %d; %d are stored, want %d", test.name, code, answer, test.want, requests(), test.stored)
		}
		var made v1alpha1.CommitRequest
		if code != http.StatusCreated {
			continue
		}
		if err := json.Unmarshal([]byte(answer), &made); err != nil || made.Kind != "CommitRequest" || made.Spec.RequestedBy.Username != test.user ||
			made.Spec.GitTargetRef.Name != "prod" || made.Status.AttachDeadline == nil || made.Status.WindowRef == nil {
			t.Errorf("%s: made %s, %v", test.name, answer, err)
		}
		if code, answer := s.do(t, "alice", http.MethodGet, inTeam+"commitrequests/"+made.Name+"/commits", "", ""); code != http.StatusNotFound {
			t.Errorf("its commit, which is not made yet: %d %s", code, answer)
		}
	}
	if code, answer := s.do(t, "alice", http.MethodPost, inTeam+"gittargets/stage/commits", "", body(nil)); code != http.StatusUnprocessableEntity && code != http.StatusNotFound {
		t.Errorf("a save to no target: %d %s", code, answer)
	}

	for query, want := range map[string]int{
		"":                   http.StatusServiceUnavailable, // nothing reads from Git here
		"?limit=2":           http.StatusServiceUnavailable,
		"?limit=501":         http.StatusBadRequest,
		"?limit=-1":          http.StatusBadRequest,
		"?limit=many":        http.StatusBadRequest,
		"?continue=nonsense": http.StatusBadRequest,
	} {
		if code, answer := s.do(t, "alice", http.MethodGet, commits+query, "", ""); code != want {
			t.Errorf("GET %q: %d %s, want %d", query, code, answer, want)
		}
	}
	if code, answer := s.do(t, "alice", http.MethodGet, inTeam+"gittargets/stage/commits", "", ""); code != http.StatusNotFound {
		t.Errorf("the commits of no target: %d %s", code, answer)
	}
}

// What a generated client or kubectl explain knows of the resources that are not
// stored.
func TestOpenAPIOfWindowsAndCommits(t *testing.T) {
	t.Parallel()
	s := startContractServer(t)
	var document struct {
		Paths map[string]map[string]json.RawMessage
	}
	s.do(t, http.MethodGet, "/openapi/v3/apis/kommit.dev/v1alpha1", nil, "", "Accept: application/json").decode(t, &document)
	in := "/apis/kommit.dev/v1alpha1/namespaces/{namespace}/"
	for path, want := range map[string][]string{
		in + "commitwindows":                      {"get"},
		in + "commitwindows/{name}":               {"get"},
		in + "commitwindows/{name}/diff":          {"get"},
		in + "gittargets/{name}/commits":          {"get", "post"},
		in + "commitrequests/{name}/commits":      {"get"},
		"/apis/kommit.dev/v1alpha1/commitwindows": {"get"},
	} {
		for _, method := range want {
			if document.Paths[path][method] == nil {
				t.Errorf("%s of %s is not described", method, path)
			}
		}
		for _, method := range []string{"put", "patch", "delete"} {
			if document.Paths[path][method] != nil {
				t.Errorf("%s of %s is described and not served", method, path)
			}
		}
	}
}
