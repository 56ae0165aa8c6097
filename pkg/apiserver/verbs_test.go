// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// F08: discovery promises what is served, and nothing less than is expected of a
// resource.
func TestAdvertisedVerbsAreServed(t *testing.T) {
	t.Parallel()
	s := startContractServer(t)
	var discovered metav1.APIResourceList
	s.do(t, http.MethodGet, "/apis/kommit.dev/v1alpha1", nil, "").decode(t, &discovered)
	verbs := map[string][]string{}
	for _, resource := range discovered.APIResources {
		verbs[resource.Name] = resource.Verbs
		slices.Sort(verbs[resource.Name])
	}
	for resource, want := range map[string][]string{ // of what is not stored
		"commitwindows":          {"get", "list", "watch"},
		"commitwindows/diff":     {"get"},
		"gittargets/commits":     {"create", "get"},
		"commitrequests/commits": {"get"},
	} {
		if !slices.Equal(verbs[resource], want) {
			t.Errorf("verbs of %s are %q, want %q", resource, verbs[resource], want)
		}
		delete(verbs, resource)
	}
	if len(verbs) != 2*len(testKinds()) {
		t.Errorf("discovered are %v", verbs)
	}

	eachKind(t, s, func(t *testing.T, r *resourceClient) {
		if want := []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}; !slices.Equal(verbs[r.resource], want) {
			t.Errorf("verbs are %q, want %q", verbs[r.resource], want)
		}
		if want := []string{"get", "patch", "update"}; !slices.Equal(verbs[r.resource+"/status"], want) {
			t.Errorf("verbs of the status are %q, want %q", verbs[r.resource+"/status"], want)
		}
		body, err := json.Marshal(r.object("a", "one"))
		if err != nil {
			t.Fatal(err)
		}
		const name = "/one"
		for resource, suffix := range map[string]string{r.resource: "", r.resource + "/status": "/status"} {
			for _, verb := range verbs[resource] {
				// Each verb finds the object there, but for create.
				_ = r.in("a").Delete(t.Context(), "one", metav1.DeleteOptions{})
				if verb != "create" {
					r.create(t, r.object("a", "one"))
				}
				var answer answer
				switch verb {
				case "create":
					answer = s.do(t, http.MethodPost, r.path("a"), nil, string(body), "Content-Type: application/json")
				case "get":
					answer = s.do(t, http.MethodGet, r.path("a")+name+suffix, nil, "")
				case "list":
					answer = s.do(t, http.MethodGet, r.path("a"), nil, "")
				case "watch":
					s.watch(t, r.path("a"), watchQuery()).close() // fails unless it is 200
					continue
				case "update":
					answer = s.do(t, http.MethodPut, r.path("a")+name+suffix, nil, string(body), "Content-Type: application/json")
				case "delete":
					answer = s.do(t, http.MethodDelete, r.path("a")+name, nil, "")
				case "deletecollection":
					answer = s.do(t, http.MethodDelete, r.path("a"), url.Values{"fieldSelector": {"metadata.name=one"}}, "")
				case "patch":
					for _, patchType := range []string{"application/merge-patch+json", "application/strategic-merge-patch+json", "application/apply-patch+yaml"} {
						patch := `{"apiVersion":"kommit.dev/v1alpha1","kind":"` + r.kind + `","metadata":{"name":"one"}}`
						query := url.Values{}
						if strings.HasPrefix(patchType, "application/apply") {
							query.Set("fieldManager", "test")
						}
						answer = s.do(t, http.MethodPatch, r.path("a")+name+suffix, query, patch, "Content-Type: "+patchType)
						if answer.code != http.StatusOK {
							t.Errorf("%s of %s in %s: %d %s", verb, resource, patchType, answer.code, answer.body)
						}
					}
					answer = s.do(t, http.MethodPatch, r.path("a")+name+suffix, nil,
						`[{"op":"test","path":"/metadata/name","value":"one"}]`, "Content-Type: application/json-patch+json")
				default:
					t.Errorf("%s of %s is advertised", verb, resource)
				}
				if answer.code != http.StatusOK && answer.code != http.StatusCreated {
					t.Errorf("%s of %s: %d %s", verb, resource, answer.code, answer.body)
				}
			}
		}
		_ = r.in("a").Delete(t.Context(), "one", metav1.DeleteOptions{})
	})
}
