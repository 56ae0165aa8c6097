// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package capturing

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kommit-dev/kommit/test/controlplane"
	"github.com/kommit-dev/kommit/test/gitserver"
	"github.com/kommit-dev/kommit/test/stack"
)

// C9: the first start. What is in the cluster and not in Git is one commit by the
// committer, which says how many of what; what Git has already is left as it is.
func TestFirstStart(t *testing.T) {
	s := newShop(t, "first-start")
	for _, name := range []string{"same", "differs", "new"} {
		s.kubectl("create", "configmap", name, "--from-literal=k=cluster")
	}
	s.kubectl("create", "service", "clusterip", "web", "--tcp=80")
	outlastGrace()

	s.target("empty", "attribution: None")
	s.rule("empty", "empty", core("configmaps", "services"))
	s.waitRule("empty", "condition=Ready")
	s.await("empty", "the first commit", func() bool { return len(s.commits("empty")) > 0 })
	s.wantCommit("empty", 0, commit{committer, "Resync 3 configmaps, 1 services in first-start", []string{
		"A configmaps/differs.yaml", "A configmaps/new.yaml", "A configmaps/same.yaml", "A services/web.yaml",
	}})

	file := func(name, value string) string {
		return fmt.Sprintf("# By hand.\nkind: ConfigMap\napiVersion: v1\ndata: {k: %s}\nmetadata:\n  namespace: first-start\n  name: %s\n", value, name)
	}
	same := file("same", "cluster")
	dir := "filled/first-start/"
	if _, err := s.repository.Commit(t.Context(), branch, gitserver.ForeignCommit{Message: "From elsewhere", Files: map[string]string{
		"filled/README.md":                         "hello\n",
		dir + "configmaps/same.yaml":               same,
		dir + "configmaps/differs.yaml":            file("differs", "git"),
		dir + "configmaps/gone.yaml":               file("gone", "git"),
		dir + "persistentvolumeclaims/other.yaml":  "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: other, namespace: first-start}\n",
		"filled/another/configmaps/elsewhere.yaml": strings.ReplaceAll(file("elsewhere", "git"), "first-start", "another"),
	}}); err != nil {
		t.Fatal(err)
	}
	s.target("filled", "attribution: None", "prune: true")
	s.rule("filled", "filled", core("configmaps"))
	s.waitRule("filled", "condition=Ready")
	s.await("filled", "the resync", func() bool { return len(s.commits("filled")) > 1 })
	s.wantCommit("filled", 1, commit{committer, "Resync 3 configmaps in first-start", []string{
		"M configmaps/differs.yaml", "D configmaps/gone.yaml", "A configmaps/new.yaml",
	}})
	if got := s.content("filled", "configmaps/same.yaml"); got != strings.TrimSpace(same) {
		t.Errorf("the file that said the same was touched:\n%s", got)
	}
	if got := s.content("filled", "configmaps/differs.yaml"); got != strings.TrimSpace(file("differs", "cluster")) {
		t.Errorf("C14: more than the value was touched:\n%s", got)
	}
}

// D1, C9: what was done while kommit was down are changes like all others, deletions
// included.
func TestDowntime(t *testing.T) {
	s := newShop(t, "downtime")
	for _, name := range []string{"changed", "deleted", "untouched"} {
		s.kubectl("create", "configmap", name, "--from-literal=k=before")
	}
	outlastGrace()
	s.target("live", "attribution: None", "prune: true")
	s.rule("live", "live", core("configmaps"))
	s.await("live", "the first commit", func() bool { return len(s.commits("live")) > 0 })
	before := len(s.commits("live"))
	if err := running.StopServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.kubectl("patch", "configmap", "changed", "--type=merge", `--patch={"data":{"k":"after"}}`)
	s.kubectl("delete", "configmap", "deleted")
	s.kubectl("create", "configmap", "added", "--from-literal=k=after")
	outlastGrace()
	start(t)
	// Not a resync: the watch goes on from where it was (D1).
	s.await("live", "the changes", func() bool { return len(s.commits("live")) > before })
	s.wantCommit("live", before, commit{committer, "Change 3 configmaps in downtime", []string{
		"A configmaps/added.yaml", "M configmaps/changed.yaml", "D configmaps/deleted.yaml",
	}})
}

// start starts the server again, and returns when the cluster knows.
func start(t *testing.T) {
	t.Helper()
	if err := running.StartServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := running.ControlPlane.Kubectl(t.Context(), controlplane.Admin, "wait", "--for=condition=Available", "apiservice/v1alpha1.kommit.dev", "--timeout=60s"); err != nil {
		t.Fatal(err)
	}
}

// C9: a watch that cannot go on (410, after kube-apiserver was restarted) loses
// nothing, and what it missed goes to who did it.
func TestExpiredWatch(t *testing.T) {
	s := newShop(t, "expired")
	s.target("live")
	s.rule("live", "live", core("configmaps"))
	s.waitRule("live", "condition=Ready")
	for _, name := range []string{"changed", "deleted", "untouched"} {
		s.as("alice", "", "create", "configmap", name, "--from-literal=k=before")
	}
	s.await("live", "what alice created", func() bool {
		return s.content("live", "configmaps/untouched.yaml") != "" && s.content("live", "configmaps/deleted.yaml") != ""
	})
	before := len(s.commits("live"))

	// Held up, kommit cannot watch on before all is done.
	server := running.ControlPlane.Process(stack.ServerProcess).PID()
	if err := syscall.Kill(server, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	err := running.ControlPlane.RestartAPIServer(t.Context())
	if err == nil {
		err = s.editInTheGap()
	}
	if resumed := syscall.Kill(server, syscall.SIGCONT); resumed != nil || err != nil {
		t.Fatal(err, resumed)
	}
	s.await("live", "what happened in the gap", func() bool {
		return strings.Contains(s.content("live", "configmaps/changed.yaml"), "after") &&
			s.content("live", "configmaps/deleted.yaml") == "" && s.content("live", "configmaps/added.yaml") != ""
	})
	by := map[string]string{}
	for _, c := range s.commits("live")[before:] {
		for _, file := range c.files {
			by[file] += c.author
		}
	}
	for file, author := range map[string]string{"M configmaps/changed.yaml": "bob", "D configmaps/deleted.yaml": "bob", "A configmaps/added.yaml": "alice"} {
		if by[file] != author {
			t.Errorf("%s is by %q, want %s", file, by[file], author)
		}
		delete(by, file)
	}
	if len(by) > 0 {
		t.Errorf("the gap led to %v, too", by)
	}
}

func (s *shop) editInTheGap() error {
	ctx := s.t.Context()
	bobs, alices := s.cluster("bob").CoreV1().ConfigMaps(s.namespace), s.cluster("alice").CoreV1().ConfigMaps(s.namespace)
	if _, err := bobs.Patch(ctx, "changed", types.MergePatchType, []byte(`{"data":{"k":"after"}}`), metav1.PatchOptions{}); err != nil {
		return err
	}
	if err := bobs.Delete(ctx, "deleted", metav1.DeleteOptions{}); err != nil {
		return err
	}
	_, err := alices.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "added"}, Data: map[string]string{"k": "after"}}, metav1.CreateOptions{})
	return err
}
