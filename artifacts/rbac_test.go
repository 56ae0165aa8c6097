// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package artifacts_test

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// saveSubresource is what permission to save is asked on (DESIGN 4.5).
const saveSubresource = "gittargets/commits"

// views are the resources that can only be read.
func views() sets.Set[string] {
	return sets.New("commitwindows", "commitwindows/diff", "commitrequests/commits")
}

// ourResources are those of the API, from its registered types.
func ourResources(t *testing.T) sets.Set[string] {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	resources := views().Insert(saveSubresource)
	for kind := range scheme.KnownTypes(v1alpha1.SchemeGroupVersion) {
		if scheme.Recognizes(v1alpha1.SchemeGroupVersion.WithKind(kind + "List")) {
			resources.Insert(strings.ToLower(kind) + "s")
		}
	}
	return resources.Delete("commits") // what the subresources answer with
}

func clusterRole(t *testing.T, name string) *rbacv1.ClusterRole {
	t.Helper()
	for _, role := range only[*rbacv1.ClusterRole](files(t, "deploy")) {
		if role.Name == name {
			return role
		}
	}
	t.Fatalf("no ClusterRole %s", name)
	return nil
}

// allows answers for group and resource as RBAC does.
func allows(role *rbacv1.ClusterRole, verb, group, resource string) bool {
	return slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.Verbs, verb) && slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource)
	})
}

func TestRolesNameResourcesThatExist(t *testing.T) {
	ours := ourResources(t)
	for _, role := range only[*rbacv1.ClusterRole](files(t, "deploy")) {
		for _, rule := range role.Rules {
			for _, names := range [][]string{rule.Verbs, rule.APIGroups, rule.Resources, rule.NonResourceURLs} {
				if slices.Contains(names, "*") {
					t.Errorf("ClusterRole %s: a wildcard is not least privilege: %v", role.Name, rule)
				}
			}
			if slices.Contains(rule.APIGroups, v1alpha1.SchemeGroupVersion.Group) && !ours.HasAll(rule.Resources...) {
				t.Errorf("ClusterRole %s: %v, have %v", role.Name, rule.Resources, sets.List(ours))
			}
		}
	}
}

// Bindings lead to roles that are shipped, or to Kubernetes' own, and to
// subjects that are shipped, or to the audit webhook's user.
func TestBindingsLeadSomewhere(t *testing.T) {
	objects := files(t, ".")
	roles := sets.New("system:auth-delegator", "extension-apiserver-authentication-reader")
	for _, role := range only[*rbacv1.ClusterRole](objects) {
		roles.Insert(role.Name)
	}
	check := func(name string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
		if !roles.Has(ref.Name) {
			t.Errorf("%s: no role %s", name, ref.Name)
		}
		want := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: "kommit", Namespace: "kommit-system"}
		if ref.Name == "kommit-audit-writer" {
			want = rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "kommit-audit"}
		}
		if !slices.Equal(subjects, []rbacv1.Subject{want}) {
			t.Errorf("%s: subjects %v, want %v", name, subjects, want)
		}
	}
	for _, b := range only[*rbacv1.ClusterRoleBinding](objects) {
		check(b.Name, b.RoleRef, b.Subjects)
	}
	for _, b := range only[*rbacv1.RoleBinding](objects) {
		check(b.Name, b.RoleRef, b.Subjects)
	}
}

// What the ServiceAccount can do with others' objects: read, of Secrets one by
// name; and write nothing but Events.
func TestServiceAccountOnlyReads(t *testing.T) {
	for _, name := range []string{"kommit-server", "kommit-capture", "kommit-credentials"} {
		for _, rule := range clusterRole(t, name).Rules {
			if slices.Equal(rule.Resources, []string{"events"}) {
				continue
			}
			if !sets.New("get", "list", "watch").HasAll(rule.Verbs...) {
				t.Errorf("ClusterRole %s: %v on %v", name, rule.Verbs, rule.Resources)
			}
			if slices.Contains(rule.Resources, "secrets") && !slices.Equal(rule.Verbs, []string{"get"}) {
				t.Errorf("ClusterRole %s: %v on secrets", name, rule.Verbs)
			}
		}
	}
	if allows(clusterRole(t, "kommit-capture"), "get", "", "secrets") {
		t.Error("Secrets can be captured")
	}
}

func TestUsersRoles(t *testing.T) {
	view, edit := clusterRole(t, "kommit-view"), clusterRole(t, "kommit-edit")
	if view.Labels["rbac.authorization.k8s.io/aggregate-to-view"] != "true" || edit.Labels["rbac.authorization.k8s.io/aggregate-to-edit"] != "true" {
		t.Errorf("not aggregated: view %v, edit %v", view.Labels, edit.Labels)
	}
	for resource := range ourResources(t) {
		if !allows(view, "get", "kommit.dev", resource) {
			t.Errorf("view cannot get %s", resource)
		}
		if got, want := allows(edit, "create", "kommit.dev", resource), !views().Has(resource); got != want {
			t.Errorf("edit can create %s: %t, want %t", resource, got, want)
		}
		if allows(view, "create", "kommit.dev", resource) {
			t.Errorf("view can create %s", resource)
		}
	}
}

// The audit policy, asked as kube-apiserver asks it: every kind that can be
// captured is recorded with its response, managed fields included (C7), and no Secret ever with a body.
func TestAuditPolicy(t *testing.T) {
	loaded, err := policy.LoadPolicyFromFile("audit/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	evaluator := policy.NewPolicyRuleEvaluator(loaded)
	ask := func(verb, group, resource, subresource string) audit.RequestAuditConfig {
		return evaluator.EvaluatePolicyRule(authorizer.AttributesRecord{
			User: &user.DefaultInfo{Name: "alice"}, Verb: verb, APIGroup: group, APIVersion: "v1",
			Resource: resource, Subresource: subresource, Namespace: "shop", Name: "x", ResourceRequest: true,
		})
	}
	for _, rule := range clusterRole(t, "kommit-capture").Rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range []string{"create", "update", "patch", "delete", "deletecollection"} {
					config := ask(verb, group, resource, "")
					if config.Level != auditinternal.LevelRequestResponse || config.OmitManagedFields {
						t.Errorf("%s %s.%s: level %s, managed fields left out: %t", verb, resource, group, config.Level, config.OmitManagedFields)
					}
				}
				for _, verb := range []string{"get", "list", "watch"} {
					if config := ask(verb, group, resource, ""); config.Level != auditinternal.LevelNone {
						t.Errorf("%s %s.%s: level %s", verb, resource, group, config.Level)
					}
				}
				if config := ask("update", group, resource, "status"); config.Level != auditinternal.LevelNone {
					t.Errorf("status of %s.%s: level %s", resource, group, config.Level)
				}
			}
		}
	}
	for _, resource := range []string{"deployments", "statefulsets"} {
		if config := ask("patch", "apps", resource, "scale"); config.Level != auditinternal.LevelRequestResponse {
			t.Errorf("scale of %s: level %s", resource, config.Level)
		}
	}
	for _, verb := range []string{"get", "create", "update", "patch", "delete"} {
		for _, subject := range [][3]string{{"", "secrets", ""}, {"", "serviceaccounts", "token"}, {"authentication.k8s.io", "tokenreviews", ""}} {
			if level := ask(verb, subject[0], subject[1], subject[2]).Level; level.GreaterOrEqual(auditinternal.LevelRequest) {
				t.Errorf("%s of %v is recorded with its body: level %s", verb, subject, level)
			}
		}
	}
}
