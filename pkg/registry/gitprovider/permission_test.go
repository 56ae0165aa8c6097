// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package gitprovider

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/registry"
)

// readableSecrets are, by user, the one Secret of the namespace "team" that they
// may get.
type readableSecrets map[string]string

func (r readableSecrets) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.IsResourceRequest() && a.GetVerb() == "get" && a.GetAPIGroup() == "" && a.GetAPIVersion() == "v1" && a.GetResource() == "secrets" &&
		a.GetSubresource() == "" && a.GetNamespace() == "team" && a.GetName() != "" && r[a.GetUser().GetName()] == a.GetName() {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func TestAProviderUsesOnlySecretsThatItsWriterMayGet(t *testing.T) {
	type change = func(*v1alpha1.GitProviderSpec)
	all := func(changes ...change) change {
		return func(s *v1alpha1.GitProviderSpec) {
			for _, c := range changes {
				c(s)
			}
		}
	}
	secret := func(name string) change {
		return func(s *v1alpha1.GitProviderSpec) { s.SecretRef = &v1alpha1.LocalObjectReference{Name: name} }
	}
	signing := func(name string) change {
		return func(s *v1alpha1.GitProviderSpec) {
			s.Commit.Signing = &v1alpha1.SigningOptions{SecretRef: v1alpha1.LocalObjectReference{Name: name}}
		}
	}
	elsewhere := url("https://evil.example.com/team/config")
	branches := func(s *v1alpha1.GitProviderSpec) { s.AllowedBranches = []string{"main"} }
	none := all()

	for _, test := range []struct {
		name, username string
		before, after  change // before nil: it is a create
		want           string // the Secret that the writer may not use
	}{
		{"create, own", "alice", nil, secret("git"), ""},
		{"create, of somebody else", "bob", nil, secret("git"), "git"},
		{"create, without permission", "eve", nil, secret("git"), "git"},
		{"create, without Secret", "eve", nil, none, ""},
		{"create, own key", "bob", nil, signing("key"), ""},
		{"create, signed by somebody else", "alice", nil, all(secret("git"), signing("key")), "key"},
		{"first Secret", "eve", none, secret("git"), "git"},
		{"other Secret", "bob", secret("key"), secret("git"), "git"},
		{"to the own Secret", "alice", secret("key"), secret("git"), ""},
		{"first key", "eve", secret("git"), all(secret("git"), signing("key")), "key"},
		{"other key", "alice", signing("git"), signing("key"), "key"},
		{"the key as credentials", "eve", signing("key"), all(signing("key"), secret("key")), "key"},
		{"the credentials as key", "eve", secret("git"), all(secret("git"), signing("git")), "git"},
		{"the credentials to another URL", "eve", secret("git"), all(secret("git"), elsewhere), "git"},
		{"the own credentials to another URL", "alice", secret("git"), all(secret("git"), elsewhere), ""},
		{"another URL without credentials", "eve", secret("git"), elsewhere, ""},
		{"another URL, the key stays here", "eve", signing("key"), all(signing("key"), elsewhere), ""},
		{"no Secret any more", "eve", all(secret("git"), signing("key")), none, ""},
		{"another field", "eve", all(secret("git"), signing("key")), all(secret("git"), signing("key"), branches), ""},
		{"nothing", "eve", secret("git"), secret("git"), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var old runtime.Object
			if test.before != nil {
				old = newProvider(test.before)
			}
			ctx := genericapirequest.WithUser(t.Context(), &user.DefaultInfo{Name: test.username})
			err := admission{readableSecrets{"alice": "git", "bob": "key"}}.permit(ctx, newProvider(test.after), old)
			if test.want == "" {
				if err != nil {
					t.Errorf("got %v", err)
				}
				return
			}
			denied, ok := errors.AsType[*registry.DeniedError](err)
			if !ok || denied.Username != test.username || denied.On.Name != test.want {
				t.Errorf("got %v, want %q denied to %s", err, test.want, test.username)
			}
		})
	}
}
