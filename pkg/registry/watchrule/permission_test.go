// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package watchrule

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/registry"
)

// grants are, by user, what they may do in the namespace "team": verbs on a
// resource, of a group, with a name.
type grants map[string][]grant

type grant struct{ verbs, group, resource, name string }

func (g grants) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.IsResourceRequest() && a.GetSubresource() == "" && a.GetNamespace() == "team" &&
		slices.ContainsFunc(g[a.GetUser().GetName()], func(g grant) bool {
			return slices.Contains(strings.Split(g.verbs, ","), a.GetVerb()) &&
				g.group == a.GetAPIGroup() && g.resource == a.GetResource() && (g.name == "" || g.name == a.GetName())
		}) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

const read = "get,list,watch"

var people = grants{
	"alice":  {{read, "", "configmaps", ""}, {read, "apps", "deployments", ""}, {"get", "", "services", ""}},
	"narrow": {{read, "", "configmaps", "a"}, {read, "", "configmaps", "b"}},
}

func TestARuleNamesOnlyWhatItsWriterMayRead(t *testing.T) {
	core := func(resource string, names ...string) v1alpha1.WatchedResources {
		return v1alpha1.WatchedResources{Resources: []string{resource}, Names: names}
	}
	labelled := func(app string) v1alpha1.WatchedResources {
		watched := core("configmaps")
		watched.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
		return watched
	}
	deployments := v1alpha1.WatchedResources{APIGroups: []string{"apps"}, Resources: []string{"deployments"}}
	explicit := v1alpha1.WatchedResources{APIGroups: []string{""}, Resources: []string{"configmaps"}, LabelSelector: &metav1.LabelSelector{}}
	to := func(target string, rule *v1alpha1.WatchRule) *v1alpha1.WatchRule {
		rule.Spec.GitTargetRef.Name = target
		return rule
	}

	for _, test := range []struct {
		name, username string
		before, after  *v1alpha1.WatchRule // before nil: it is a create
		want           string              // verbs on resource/name that the writer lacks
	}{
		{"create", "alice", nil, newRule(core("configmaps"), deployments), ""},
		{"create, without permission", "eve", nil, newRule(core("configmaps")), "get,list,watch on configmaps/"},
		{"create, with get alone", "alice", nil, newRule(core("configmaps"), core("services")), "list,watch on services/"},
		{"create, of another group", "alice", nil, newRule(core("deployments")), "get,list,watch on deployments/"},
		{"create, one of two groups", "alice", nil, newRule(v1alpha1.WatchedResources{
			APIGroups: []string{"apps", "example.com"}, Resources: []string{"deployments"},
		}), "get,list,watch on deployments/"},
		{"create, Secrets too", "alice", nil, newRule(core("secrets")), "get,list,watch on secrets/"},
		{"create, names of a resource", "alice", nil, newRule(core("configmaps", "a", "z")), ""},
		{"create, names", "narrow", nil, newRule(core("configmaps", "a", "b")), ""},
		{"create, a name too many", "narrow", nil, newRule(core("configmaps", "a", "z")), "get,list,watch on configmaps/z"},
		{"create, every name", "narrow", nil, newRule(core("configmaps")), "get,list,watch on configmaps/"},
		{"create, labels are no names", "narrow", nil, newRule(labelled("web")), "get,list,watch on configmaps/"},

		{"nothing", "eve", newRule(core("configmaps")), newRule(core("configmaps")), ""},
		{"the same in other words", "eve", newRule(core("configmaps"), deployments), newRule(deployments, explicit), ""},
		{"less", "eve", newRule(core("configmaps"), deployments), newRule(deployments), ""},
		{"a name of what is named", "eve", newRule(core("configmaps")), newRule(core("configmaps", "a")), ""},
		{"a label of what is named", "eve", newRule(core("configmaps")), newRule(labelled("web")), ""},
		{"another resource", "eve", newRule(core("configmaps")), newRule(core("configmaps"), deployments), "get,list,watch on deployments/"},
		{"another resource, allowed", "alice", newRule(core("secrets")), newRule(core("secrets"), deployments), ""},
		{"another name", "narrow", newRule(core("configmaps", "z")), newRule(core("configmaps", "z", "a")), ""},
		{"another name, not allowed", "narrow", newRule(core("configmaps", "a")), newRule(core("configmaps", "a", "z")), "get,list,watch on configmaps/z"},
		{"every name", "narrow", newRule(core("configmaps", "a")), newRule(core("configmaps")), "get,list,watch on configmaps/"},
		{"every label", "eve", newRule(labelled("web")), newRule(core("configmaps")), "get,list,watch on configmaps/"},
		{"another label", "eve", newRule(labelled("web")), newRule(labelled("db")), "get,list,watch on configmaps/"},
		{"another target", "eve", newRule(core("configmaps")), to("mine", newRule(core("configmaps"))), "get,list,watch on configmaps/"},
		{"another target, allowed", "alice", newRule(core("configmaps")), to("mine", newRule(core("configmaps"))), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var old runtime.Object
			if test.before != nil {
				old = test.before
			}
			ctx := genericapirequest.WithUser(t.Context(), &user.DefaultInfo{Name: test.username})
			err := admission{people}.permit(ctx, test.after, old)
			if test.want == "" {
				if err != nil {
					t.Errorf("got %v", err)
				}
				return
			}
			denied, ok := errors.AsType[*registry.DeniedError](err)
			if !ok {
				t.Fatalf("got %v, want %s denied", err, test.want)
			}
			if got := strings.Join(denied.Missing, ",") + " on " + denied.On.Resource + "/" + denied.On.Name; got != test.want || denied.Username != test.username {
				t.Errorf("%s lacks %s, want that %s lacks %s", denied.Username, got, test.username, test.want)
			}
		})
	}
}

// Whoever may name much is asked for each thing once.
func TestWhatIsAllowedIsNotAskedForAgain(t *testing.T) {
	asked := 0
	count := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		asked++
		return authorizer.DecisionAllow, "", nil
	})
	configmaps := v1alpha1.WatchedResources{Resources: []string{"configmaps", "configmaps"}}
	named := v1alpha1.WatchedResources{Resources: []string{"configmaps"}, Names: []string{"a", "b"}}
	ctx := genericapirequest.WithUser(t.Context(), &user.DefaultInfo{Name: "alice"})
	if err := (admission{count}).permit(ctx, newRule(configmaps, named), nil); err != nil {
		t.Fatal(err)
	}
	if asked != 3 { // get, list, watch
		t.Errorf("asked %d times, want 3", asked)
	}
}
