// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package gitprovider

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kommit-dev/kommit/apis/kommit/install"
	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

func newProvider(change func(*v1alpha1.GitProviderSpec)) *v1alpha1.GitProvider {
	provider := &v1alpha1.GitProvider{
		ObjectMeta: metav1.ObjectMeta{Name: "origin", Namespace: "team"},
		Spec:       v1alpha1.GitProviderSpec{URL: "https://git.example.com/team/config"},
	}
	change(&provider.Spec)
	v1alpha1.SetObjectDefaults_GitProvider(provider)
	return provider
}

func testStrategy(allowInsecureHTTP bool) strategy {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return newStrategy(scheme, allowInsecureHTTP)
}

func url(u string) func(*v1alpha1.GitProviderSpec) {
	return func(s *v1alpha1.GitProviderSpec) { s.URL = u }
}

func TestValidate(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*v1alpha1.GitProviderSpec)
		want   string // the field of the only error
	}{
		{"https", url("https://git.example.com/team/config.git"), ""},
		{"ssh", url("ssh://git@git.example.com:22/team/config.git"), ""},
		{"scp-like", url("git@git.example.com:team/config.git"), ""},
		{"no url", url(""), "spec.url"},
		{"http", url("http://git.example.com/team/config"), "spec.url"},
		{"a local path", url("/srv/git/config"), "spec.url"},
		{"file", url("file:///srv/git/config"), "spec.url"},
		{"a helper that runs commands", url("ext::sh -c true"), "spec.url"},
		{"branches", func(s *v1alpha1.GitProviderSpec) { s.AllowedBranches = []string{"main", "release/*"} }, ""},
		{"a glob that is none", func(s *v1alpha1.GitProviderSpec) { s.AllowedBranches = []string{"main", "release[1"} }, "spec.allowedBranches[1]"},
		{"an empty glob", func(s *v1alpha1.GitProviderSpec) { s.AllowedBranches = []string{""} }, "spec.allowedBranches[0]"},
		{"a secret without name", func(s *v1alpha1.GitProviderSpec) { s.SecretRef = &v1alpha1.LocalObjectReference{} }, "spec.secretRef.name"},
		{"a signing key without name", func(s *v1alpha1.GitProviderSpec) { s.Commit.Signing = &v1alpha1.SigningOptions{} }, "spec.commit.signing.secretRef.name"},
		{"a committer that forges a header", func(s *v1alpha1.GitProviderSpec) { s.Commit.Committer.Name = "a\nauthor b" }, "spec.commit.committer.name"},
		{"a committer with brackets", func(s *v1alpha1.GitProviderSpec) { s.Commit.Committer.Name = "a <b>" }, "spec.commit.committer.name"},
		{"an address with a space", func(s *v1alpha1.GitProviderSpec) { s.Commit.Committer.Email = "a b@example.com" }, "spec.commit.committer.email"},
		{"a domain that is none", func(s *v1alpha1.GitProviderSpec) { s.Commit.Author.EmailDomain = "@example.com" }, "spec.commit.author.emailDomain"},
		{"a timeout below 1s", func(s *v1alpha1.GitProviderSpec) { s.Timeout = &metav1.Duration{Duration: time.Millisecond} }, "spec.timeout"},
		{"a negative rate", func(s *v1alpha1.GitProviderSpec) { s.Push.MaxPerMinute = -1 }, "spec.push.maxPerMinute"},
	} {
		t.Run(test.name, func(t *testing.T) {
			errs := testStrategy(false).Validate(t.Context(), newProvider(test.change))
			if test.want == "" && len(errs) != 0 || test.want != "" && (len(errs) != 1 || errs[0].Field != test.want) {
				t.Errorf("got %v, want an error at %q", errs, test.want)
			}
		})
	}
}

func TestAPasswordInTheURLIsNotRepeated(t *testing.T) {
	errs := testStrategy(false).Validate(t.Context(), newProvider(url("https://alice:hunter2@git.example.com/team/config")))
	if len(errs) != 1 || errs[0].Field != "spec.url" {
		t.Fatalf("got %v, want an error at spec.url", errs)
	}
	if strings.Contains(errs[0].Error(), "hunter2") {
		t.Error("the error shows the password")
	}
}

func TestInsecureHTTPIsTheServersToAllow(t *testing.T) {
	plain := newProvider(url("http://git.example.com/team/config"))
	if errs := testStrategy(true).Validate(t.Context(), plain); len(errs) != 0 {
		t.Errorf("allowed: %v", errs)
	}
	// A server that has become stricter does not lock what is stored.
	changed := plain.DeepCopy()
	changed.Spec.Push.MaxPerMinute = 6
	if errs := testStrategy(false).ValidateUpdate(t.Context(), changed, plain); len(errs) != 0 {
		t.Errorf("update of another field: %v", errs)
	}
	moved := plain.DeepCopy()
	moved.Spec.URL = "http://git.example.com/other/config"
	if errs := testStrategy(false).ValidateUpdate(t.Context(), moved, plain); len(errs) != 1 {
		t.Errorf("update of the url: %v", errs)
	}
}
