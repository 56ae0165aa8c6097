// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/generated/clientset/versioned"
	"github.com/kommit-dev/kommit/test/controlplane"
)

// as returns a client that acts as the user.
func (s *shop) as(user string) versioned.Interface {
	s.t.Helper()
	config, err := running.ControlPlane.RESTConfig(user)
	if err != nil {
		s.t.Fatal(err)
	}
	return versioned.NewForConfigOrDie(config)
}

func (s *shop) create(ctx context.Context, user string, request *v1alpha1.CommitRequest) (*v1alpha1.CommitRequest, error) {
	return s.as(user).KommitV1alpha1().CommitRequests(s.namespace).Create(ctx, request, metav1.CreateOptions{})
}

// DESIGN 4.4: whatever a client sends as requestedBy is overwritten, and the
// response of the create already says who and until when (4.6).
func TestRequestedByIsTheServers(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	request, err := s.create(t.Context(), "alice", &v1alpha1.CommitRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "forged"},
		Spec: v1alpha1.CommitRequestSpec{
			GitTargetRef: v1alpha1.LocalObjectReference{Name: target},
			RequestedBy:  v1alpha1.UserInfo{Username: "bob", UID: "1", Groups: []string{"system:masters"}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	by := request.Spec.RequestedBy
	if by.Username != "alice" || by.UID == "1" {
		t.Errorf("requestedBy is %+v, want alice", by)
	}
	for _, group := range by.Groups {
		if group == "system:masters" {
			t.Error("requestedBy has the group that the client sent")
		}
	}
	if request.Status.AttachDeadline == nil || len(request.Status.Conditions) == 0 {
		t.Errorf("the response has no deadline or no conditions: %+v", request.Status)
	}
}

// C6: with impersonation the author is who was acted as.
func TestImpersonation(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.kubectl(controlplane.Admin, "create", "configmap", "prices", "--from-literal=apple=1", "--as=bob")
	s.kubectl(controlplane.Admin, "create", "commitrequest", "as-bob", "--target", target, "-m", "As bob", "--as=bob")
	request := s.waitReady("bob", "as-bob")
	wantCommitted(t, request)
	if request.Spec.RequestedBy.Username != "bob" {
		t.Errorf("requestedBy is %q, want bob", request.Spec.RequestedBy.Username)
	}
	if commits := by("bob", s.commits()); len(commits) != 1 || commits[0].message != "As bob" {
		t.Errorf("bob's commits are %+v, want one", commits)
	}
}

// A direct call with forged X-Remote-User headers is nobody's: 401 without a
// certificate, and with one that is not the front proxy's.
func TestForgedFrontProxyHeaders(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(running.Extension.CA)
	certificate, key, err := running.Extension.AuditUser("alice")
	if err != nil {
		t.Fatal(err)
	}
	alice, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	url := fmt.Sprintf("%s/apis/kommit.dev/v1alpha1/namespaces/%s/commitrequests", running.Extension.URL(), s.namespace)
	for name, test := range map[string]struct {
		certificates []tls.Certificate
		want         int
	}{
		"no certificate":                   {nil, http.StatusUnauthorized},
		"alice's own, who is not an admin": {[]tls.Certificate{alice}, http.StatusCreated},
	} {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: test.certificates}, DisableKeepAlives: true}}
		body := fmt.Sprintf(`{"apiVersion":"kommit.dev/v1alpha1","kind":"CommitRequest","metadata":{"generateName":"forged-"},"spec":{"gitTargetRef":{"name":%q}}}`, target)
		post, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		post.Header.Set("Content-Type", "application/json")
		post.Header.Set("X-Remote-User", "admin")
		post.Header.Set("X-Remote-Group", "system:masters")
		response, err := client.Do(post)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != test.want {
			t.Errorf("%s: %s, want %d", name, response.Status, test.want)
		}
	}
	list, err := s.client().KommitV1alpha1().CommitRequests(s.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, request := range list.Items {
		if request.Spec.RequestedBy.Username != "alice" {
			t.Errorf("a request by %q was stored, want only alice's", request.Spec.RequestedBy.Username)
		}
	}
}

// Bad input is refused with the field's name.
func TestInvalidRequests(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for name, test := range map[string]struct {
		change func(*v1alpha1.CommitRequestSpec)
		field  string
	}{
		"unknown target":    {func(spec *v1alpha1.CommitRequestSpec) { spec.GitTargetRef.Name = "nowhere" }, "spec.gitTargetRef.name"},
		"control character": {func(spec *v1alpha1.CommitRequestSpec) { spec.Message = "bell\a" }, "spec.message"},
		"only spaces":       {func(spec *v1alpha1.CommitRequestSpec) { spec.Message = " \n " }, "spec.message"},
	} {
		spec := v1alpha1.CommitRequestSpec{GitTargetRef: v1alpha1.LocalObjectReference{Name: target}}
		test.change(&spec)
		_, err := s.create(t.Context(), "alice", &v1alpha1.CommitRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "bad-"}, Spec: spec})
		if !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v, want 422", name, err)
			continue
		}
		if details := err.(apierrors.APIStatus).Status().Details; len(details.Causes) == 0 || details.Causes[0].Field != test.field {
			t.Errorf("%s: causes are %+v, want %s", name, details.Causes, test.field)
		}
	}
}

// DESIGN 4.5: saving needs create on gittargets/commits, whatever the rights on
// commitrequests.
func TestSaveNeedsPermissionOnTheTarget(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.kubectl(controlplane.Admin, "create", "role", "requests-only", "--verb=create,get", "--resource=commitrequests.kommit.dev")
	s.kubectl(controlplane.Admin, "create", "rolebinding", "carol", "--role=requests-only", "--user=carol")
	_, err := s.create(t.Context(), "carol", &v1alpha1.CommitRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "not-allowed"},
		Spec:       v1alpha1.CommitRequestSpec{GitTargetRef: v1alpha1.LocalObjectReference{Name: target}},
	})
	if !apierrors.IsForbidden(err) {
		t.Errorf("carol's save: %v, want 403", err)
	}
}
