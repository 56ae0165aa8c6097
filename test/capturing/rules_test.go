// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package capturing

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/test/controlplane"
)

// C1: many targets and rules on one resource are one watch.
func TestTargetsShareAReflector(t *testing.T) {
	s := newShop(t, "shared")
	s.target("first")
	s.rule("first", "first", core("configmaps"))
	s.waitRule("first", "condition=Ready")
	before := s.watches("configmaps")
	if before == 0 {
		t.Fatal("kube-apiserver counts no watch of ConfigMaps")
	}
	for i := range 5 {
		name := fmt.Sprintf("more-%d", i)
		s.target(name)
		s.rule(name, name, core("configmaps"))
		s.waitRule(name, "condition=Ready")
	}
	if now := s.watches("configmaps"); now != before {
		t.Errorf("%d watches of ConfigMaps with six targets, want %d as with one", now, before)
	}
	s.as("alice", "", "create", "configmap", "prices", "--from-literal=k=v")
	for _, target := range []string{"first", "more-0", "more-4"} {
		s.await(target, "the change in "+target, func() bool { return s.content(target, "configmaps/prices.yaml") != "" })
	}
}

// watches are those of single namespaces that kube-apiserver serves now.
func (s *shop) watches(resource string) int {
	s.t.Helper()
	metrics := s.kubectl("get", "--raw", "/metrics")
	total := 0
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "apiserver_longrunning_requests{") && strings.Contains(line, `resource="`+resource+`"`) &&
			strings.Contains(line, `scope="namespace"`) && strings.Contains(line, `verb="WATCH"`) {
			count, err := strconv.Atoi(strings.TrimSpace(line[strings.LastIndex(line, " ")+1:]))
			if err != nil {
				s.t.Fatal(err)
			}
			total += count
		}
	}
	return total
}

// 4.3: rules come, change and go; labels are entered and left.
func TestRulesAtWork(t *testing.T) {
	s := newShop(t, "rules")
	s.target("live")
	selected := `[{apiGroups: [""], resources: [configmaps], labelSelector: {matchLabels: {app: web}}}]`
	s.rule("selected", "live", selected)
	s.waitRule("selected", "condition=Ready")
	s.as("alice", "", "create", "configmap", "a", "--from-literal=k=v")
	s.as("alice", "", "create", "configmap", "b", "--from-literal=k=v")
	s.as("alice", "", "label", "configmap", "a", "app=web")
	s.await("live", "what entered the selector", func() bool { return s.content("live", "configmaps/a.yaml") != "" })
	if s.content("live", "configmaps/b.yaml") != "" {
		t.Error("what is not selected is in Git")
	}
	s.as("bob", "", "label", "configmap", "a", "app=api", "--overwrite")
	s.await("live", "what left the selector", func() bool { return s.content("live", "configmaps/a.yaml") == "" })
	if last := s.commits("live")[len(s.commits("live"))-1]; last.author != "bob" {
		t.Errorf("%+v is not bob's, who changed the label", last)
	}

	// A second rule brings what the first leaves out.
	s.rule("named", "live", `[{apiGroups: [""], resources: [configmaps], names: [b]}]`)
	s.await("live", "what another rule selects", func() bool { return s.content("live", "configmaps/b.yaml") != "" })
	if s.content("live", "configmaps/a.yaml") != "" {
		t.Error("what neither rule selects is in Git")
	}
	// It goes, and the file stays.
	s.kubectl("delete", "watchrule", "named")
	s.as("alice", "", "label", "configmap", "a", "app=web", "--overwrite")
	s.await("live", "the change after the rule went", func() bool { return s.content("live", "configmaps/a.yaml") != "" })
	if s.content("live", "configmaps/b.yaml") == "" {
		t.Error("the file of what a deleted rule had selected is gone")
	}
}

// C9, 4.3: what kommit may not read is said on the rule; its other resources are
// captured, and that one is as soon as it may.
func TestForbiddenResource(t *testing.T) {
	s := newShop(t, "forbidden")
	s.target("live")
	s.rule("partly", "live", `[{apiGroups: [""], resources: [configmaps]}, {apiGroups: [coordination.k8s.io], resources: [leases]}]`)
	s.waitRule("partly", "condition=Stalled")
	if got := s.reason("partly"); got != v1alpha1.ReasonListFailed {
		t.Errorf("the reason is %s, want %s", got, v1alpha1.ReasonListFailed)
	}
	s.as("alice", "", "create", "configmap", "prices", "--from-literal=k=v")
	s.await("live", "what may be read", func() bool { return s.content("live", "configmaps/prices.yaml") != "" })

	s.kubectl("create", "role", "leases", "--verb=get,list,watch", "--resource=leases.coordination.k8s.io")
	s.kubectl("create", "rolebinding", "kommit-leases", "--role=leases", "--serviceaccount=kommit-system:kommit")
	s.waitRule("partly", "condition=Ready")
}

// 4.5: nobody has kommit read for them what they may not read.
func TestRuleOfOneWhoMayNotRead(t *testing.T) {
	s := newShop(t, "permission")
	s.target("live")
	s.kubectl("create", "role", "rules", "--verb=create", "--resource=watchrules.kommit.dev")
	s.kubectl("create", "rolebinding", "rules", "--role=rules", "--user=carol", "--user=dave")
	s.kubectl("create", "role", "reader", "--verb=get,list,watch", "--resource=configmaps")
	s.kubectl("create", "rolebinding", "reader", "--role=reader", "--user=dave")
	rule := `{"apiVersion": "kommit.dev/v1alpha1", "kind": "WatchRule", "metadata": {"name": "theirs"},
		"spec": {"gitTargetRef": {"name": "live"}, "resources": [{"resources": ["configmaps"]}]}}`
	_, message, err := running.ControlPlane.KubectlInput(t.Context(), "carol", strings.NewReader(rule), "create", "--filename=-", "--namespace="+s.namespace)
	if err == nil || !strings.Contains(message+err.Error(), "Forbidden") {
		t.Errorf("carol's rule: %v, want Forbidden", err)
	}
	s.as("dave", rule, "create", "--filename=-")
}

// definition of widgets, one version of two being served.
func definition(served string) string {
	version := func(name string) string {
		return fmt.Sprintf(`
  - name: %s
    served: %t
    storage: %t
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}`, name, name == served, name == served)
	}
	return `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:` + version("v1") + version("v2") + "\n"
}

// C9: a CustomResourceDefinition comes, changes its version, and goes.
func TestCustomResources(t *testing.T) {
	s := newShop(t, "custom")
	s.kubectl("create", "role", "widgets", "--verb=get,list,watch", "--resource=configmaps")
	s.kubectl("patch", "role", "widgets", "--type=json", `--patch=[{"op": "replace", "path": "/rules", "value":
		[{"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["get", "list", "watch"]}]}]`)
	s.kubectl("create", "rolebinding", "kommit-widgets", "--role=widgets", "--serviceaccount=kommit-system:kommit")
	s.target("live")
	s.rule("all", "live", `[{apiGroups: [""], resources: [configmaps]}, {apiGroups: [example.com], resources: [widgets]}]`)
	s.waitRule("all", "condition=Stalled")
	if got := s.reason("all"); got != v1alpha1.ReasonUnknownResource {
		t.Errorf("the reason is %s, want %s", got, v1alpha1.ReasonUnknownResource)
	}
	s.as("alice", "", "create", "configmap", "prices", "--from-literal=k=v")
	s.await("live", "what is known", func() bool { return s.content("live", "configmaps/prices.yaml") != "" })

	established := func(version string) {
		s.apply(definition(version))
		s.kubectl("wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=60s")
	}
	established("v1")
	s.waitRule("all", "condition=Ready")
	s.apply("{apiVersion: example.com/v1, kind: Widget, metadata: {name: w}, spec: {size: 1}}")
	file := "widgets.example.com/w.yaml"
	s.await("live", "a widget", func() bool { return strings.Contains(s.content("live", file), "size: 1") })

	established("v2")
	s.await("live", "the widget in the new version", func() bool { return strings.Contains(s.content("live", file), "example.com/v2") })
	s.waitRule("all", "condition=Ready")
	s.kubectl("patch", "widgets.v2.example.com/w", "--type=merge", `--patch={"spec":{"size":2}}`)
	s.await("live", "a change in the new version", func() bool { return strings.Contains(s.content("live", file), "size: 2") })

	s.kubectl("delete", "crd/widgets.example.com")
	s.await("live", "the end of the widget", func() bool { return s.content("live", file) == "" })
	s.waitRule("all", "jsonpath={.status.conditions[?(@.type==\"Ready\")].reason}="+v1alpha1.ReasonUnknownResource)
	if s.content("live", "configmaps/prices.yaml") == "" {
		t.Error("the end of a kind took another's files")
	}
}

// A namespace that is deleted goes, with all that is captured in it, and nobody is
// blamed who did nothing.
func TestNamespaceDeleted(t *testing.T) {
	s := newShop(t, "doomed")
	s.target("live")
	s.rule("live", "live", core("configmaps", "services"))
	s.waitRule("live", "condition=Ready")
	s.as("alice", "", "create", "configmap", "prices", "--from-literal=k=v")
	s.await("live", "alice's commit", func() bool { return s.content("live", "configmaps/prices.yaml") != "" })
	before := len(s.commits("live"))
	if _, _, err := running.ControlPlane.Kubectl(t.Context(), controlplane.Admin, "delete", "namespace", "doomed", "--timeout="+patience.String()); err != nil {
		t.Fatal(err)
	}
	for _, c := range s.commits("live")[before:] {
		if c.author == "alice" || c.author == "bob" {
			t.Errorf("the end of the namespace is said to be of %s: %+v", c.author, c)
		}
	}
}

// 5.5: an edit right before the deletion of its GitTarget is saved, under its author.
func TestTargetDeletedRightAfterAnEdit(t *testing.T) {
	s := newShop(t, "farewell")
	alice := s.cluster("alice")
	for round := range 5 {
		name := fmt.Sprintf("round-%d", round)
		s.target(name)
		s.rule(name, name, core("configmaps"))
		s.waitRule(name, "condition=Ready")
		s.editAndDelete(alice, name)
		if content := s.content(name, "configmaps/"+name+".yaml"); content == "" {
			t.Errorf("the edit before the deletion of %s is not in Git", name)
			continue
		}
		if commits := s.commits(name); commits[len(commits)-1].author != "alice" {
			t.Errorf("the edit before the deletion of %s is in %+v", name, commits)
		}
	}
}

// editAndDelete returns when the target is gone.
func (s *shop) editAndDelete(alice kubernetes.Interface, name string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	targets := s.kommit.KommitV1alpha1().GitTargets(s.namespace)
	events, err := targets.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		s.t.Fatal(err)
	}
	defer events.Stop()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"k": "v"}}
	if _, err := alice.CoreV1().ConfigMaps(s.namespace).Create(ctx, object, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	if err := targets.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
	for event := range events.ResultChan() {
		if event.Type == "DELETED" {
			return
		}
	}
	s.t.Fatalf("%s was not let go of within a minute", name)
}
