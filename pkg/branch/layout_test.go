// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package branch

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/git"
	"github.com/kommit-dev/kommit/pkg/manifest"
	"github.com/kommit-dev/kommit/pkg/window"
)

// remove is the deletion of an object that alice asks for.
func (w *world) remove(name string) {
	w.versions++
	w.change(window.Change{
		Target: prod, Object: window.Object{Resource: "configmaps", Namespace: namespace, Name: name},
		ResourceVersion: fmt.Sprint(w.versions), Author: window.Author{Username: "alice"}, Operation: window.Delete,
	})
}

// saved makes a save of alice's edits and returns the files of its commit.
func (w *world) saved(name string) []string {
	w.t.Helper()
	w.save("alice", name, name)
	commit := w.await(name, v1alpha1.ReasonCommitted).Status.Commit
	return strings.Fields(w.repository.Must("diff-tree", "-r", "--no-commit-id", "--name-only", "--root", commit))
}

func (w *world) wantFiles(got []string, want ...string) {
	w.t.Helper()
	if !slices.Equal(got, want) {
		w.t.Errorf("the commit has %q, want %q", got, want)
	}
}

// C13: an object that has a document somewhere under the path is edited there, one
// that has none goes to its own file, and a file never moves.
func TestC13ObjectsAreEditedWhereTheyAre(t *testing.T) {
	w := newWorld(t)
	service := "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n  namespace: shop # not the ConfigMap\n"
	w.repository.MustCommit("main", map[string]string{
		"live/all.yaml":         "# the shop\n" + manifestOf("a", "one # by hand") + "---\n" + service + "---\n" + manifestOf("b", "one"),
		"live/deep/er/c.yml":    manifestOf("c", "one"),
		"elsewhere/d.yaml":      manifestOf("d", "one"), // not under the path
		"live/notes/d.md":       manifestOf("d", "one"), // no manifest
		"live/other/e.yaml":     strings.Replace(manifestOf("e", "one"), "namespace: shop", "namespace: other", 1),
		"live/shop/base/f.yaml": strings.Replace(manifestOf("f", "one"), "  namespace: shop\n", "", 1), // as kustomize has it
	})
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		w.edit("alice", name, "two")
	}
	w.wantFiles(w.saved("first"), "live/all.yaml", "live/deep/er/c.yml", "live/shop/base/f.yaml", "live/shop/configmaps/d.yaml", "live/shop/configmaps/e.yaml")
	want := "# the shop\n" + manifestOf("a", "two # by hand") + "---\n" + service + "---\n" + manifestOf("b", "two")
	if got := w.repository.MustShow("main", "live/all.yaml"); got != want {
		t.Errorf("the file is now\n%s\nwant\n%s", got, want)
	}

	w.remove("b")
	w.remove("c")
	w.wantFiles(w.saved("second"), "live/all.yaml", "live/deep/er/c.yml")
	want = "# the shop\n" + manifestOf("a", "two # by hand") + "---\n" + service
	if got := w.repository.MustShow("main", "live/all.yaml"); strings.TrimSpace(got) != strings.TrimSpace(want) {
		t.Errorf("the file is now\n%s\nwant\n%s", got, want)
	}
	// What others do to the files is seen: one was moved, one came, one went.
	w.repository.MustCommit("main", map[string]string{
		"live/moved.yaml": w.repository.MustShow("main", "live/all.yaml"),
		"live/all.yaml":   "# nothing any more\n",
		"live/new.yaml":   manifestOf("g", "one"),
	})
	w.edit("alice", "a", "three")
	w.edit("alice", "g", "two")
	w.wantFiles(w.saved("third"), "live/moved.yaml", "live/new.yaml")
}

// An object in two places has no one owner: it is named, with both, and the others
// go through.
func TestC13SeveralOwnersAreRefused(t *testing.T) {
	w := newWorld(t)
	files := map[string]string{"live/one.yaml": manifestOf("a", "one"), "live/two.yaml": "# twice\n" + manifestOf("a", "one")}
	w.repository.MustCommit("main", files)
	w.edit("alice", "a", "two")
	w.edit("alice", "b", "one")
	w.wantFiles(w.saved("first"), "live/shop/configmaps/b.yaml")
	request := w.await("first", v1alpha1.ReasonCommitted)
	message := apimeta.FindStatusCondition(request.Status.Conditions, v1alpha1.ConditionReady).Message
	for name, content := range files {
		if !strings.Contains(message, name) {
			t.Errorf("message %q does not name %s", message, name)
		}
		if got := w.repository.MustShow("main", name); got != content {
			t.Errorf("%s is now %q", name, got)
		}
	}
}

// The windows show the file that is edited.
func TestWindowsShowWhereObjectsAre(t *testing.T) {
	w := newWorld(t)
	w.repository.MustCommit("main", map[string]string{"live/all.yaml": manifestOf("a", "one")})
	w.edit("alice", "a", "two")
	w.saved("first")
	w.edit("alice", "a", "three")
	w.edit("alice", "b", "one")
	open, _ := w.pool.Windows(namespace)
	if len(open) != 1 || open[0].Status.Changes[0].Path != "live/all.yaml" || open[0].Status.Changes[1].Path != "live/shop/configmaps/b.yaml" {
		t.Errorf("open are %+v", open)
	}
}

// C9: a document is compared where it is, and is orphaned where it is.
func TestC9ComparesDocumentsWhereTheyAre(t *testing.T) {
	w := newWorld(t)
	targets := w.client.KommitV1alpha1().GitTargets(namespace)
	target, err := targets.Get(w.ctx, "prod", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	target.Spec.Prune = true
	target.Generation++
	w.must(targets.Update(w.ctx, target, metav1.UpdateOptions{}))
	w.awaitGitTarget("prod", func(t *v1alpha1.GitTarget) bool { return t.Status.ObservedGeneration == target.Generation })
	w.repository.MustCommit("main", map[string]string{
		"live/all.yaml":                    manifestOf("same", "one # as it is") + "---\n" + manifestOf("gone", "one") + "---\n" + manifestOf("other", "one"),
		"live/shop/configmaps/former.yaml": manifestOf("former", "one"),
		"live/shop/secrets/kept.yaml":      "kind: Secret\napiVersion: v1\nmetadata: {name: kept, namespace: shop}\n",
	})
	var listed []window.Change
	for _, name := range []string{"same", "other", "new"} {
		listed = append(listed, window.Change{
			Target: prod, Object: window.Object{Resource: "configmaps", Namespace: namespace, Name: name}, Manifest: []byte(manifestOf(name, map[bool]string{true: "one", false: "two"}[name == "same"])),
		})
	}
	differing, orphans, err := w.pool.Differing(w.ctx, prod, []window.Object{{Resource: "configmaps", Namespace: namespace}}, listed)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range differing {
		names = append(names, c.Object.Name)
	}
	if want := []string{"other", "new"}; !slices.Equal(names, want) {
		t.Errorf("differing are %q, want %q", names, want)
	}
	names = nil
	for _, o := range orphans {
		names = append(names, o.Name)
	}
	if want := []string{"former", "gone"}; !slices.Equal(names, want) {
		t.Errorf("orphans are %q, want %q", names, want)
	}
}

// memory is an IndexStore that says when something was kept.
type memory struct {
	mu      sync.Mutex
	kept    map[string]map[string][]byte
	changed chan struct{}
}

func (m *memory) Load(target string) (map[string][]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.kept[target]), nil
}

func (m *memory) Change(target string, kept map[string][]byte, dropped []string) error {
	m.mu.Lock()
	if m.kept[target] == nil {
		m.kept[target] = map[string][]byte{}
	}
	maps.Copy(m.kept[target], kept)
	for _, key := range dropped {
		delete(m.kept[target], key)
	}
	m.mu.Unlock()
	m.changed <- struct{}{}
	return nil
}

func (m *memory) Drop(target string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.kept, target)
	return nil
}

// C13: a file is read once for each content, also over a restart; a directory that
// did not change is not looked at.
func TestC13FilesAreReadOnce(t *testing.T) {
	w := newWorld(t)
	if err := w.repository.Configure(w.ctx, "uploadpack.allowFilter", "true"); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for i := range 2 * saveAt {
		files[fmt.Sprintf("live/part-%d/%d.yaml", i%4, i)] = manifestOf(fmt.Sprintf("object-%d", i), "one")
	}
	w.repository.MustCommit("main", files)
	store := &memory{kept: map[string]map[string][]byte{}, changed: make(chan struct{}, 10)}
	object := manifest.Object{Kind: "ConfigMap", Resource: "configmaps", Namespace: namespace, Name: "object-7"}
	// place looks an object up by a Repository and a layout that know nothing, and
	// counts the requests that this costs beside the tip's.
	place := func(l *layout, repository *git.Repository) (string, int) {
		t.Helper()
		tree, err := repository.Tree(w.ctx, "main")
		if err != nil {
			t.Fatal(err)
		}
		w.server.Requests()
		places, err := l.places(w.ctx, tree, []manifest.Object{object})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, r := range w.server.Requests() {
			if r.Method == http.MethodPost {
				n++
			}
		}
		return places[0].path, n
	}
	fresh := func() *git.Repository {
		t.Helper()
		repository, err := w.pool.destinations.repository(mustProvider(t, w))
		if err != nil {
			t.Fatal(err)
		}
		w.pool.destinations.forget(nameOf(mustProvider(t, w)))
		return repository
	}
	first := newLayout("prod", "live", store)
	if path, n := place(first, fresh()); path != "live/part-3/7.yaml" || n != 1 {
		t.Errorf("at first: %s after %d requests, want one for all files", path, n)
	}
	<-store.changed
	if path, n := place(first, fresh()); path != "live/part-3/7.yaml" || n != 0 {
		t.Errorf("the same tree again: %s after %d requests, want none", path, n)
	}
	again := newLayout("prod", "live", store)
	if path, n := place(again, fresh()); path != "live/part-3/7.yaml" || n != 0 {
		t.Errorf("after a restart: %s after %d requests, want none", path, n)
	}
	if again.saving {
		t.Error("what is kept already is kept again after a restart")
	}
	w.repository.MustCommit("main", map[string]string{"live/part-3/7.yaml": "# empty\n", "live/moved.yaml": manifestOf("object-7", "one")})
	if path, n := place(again, fresh()); path != "live/moved.yaml" || n != 1 {
		t.Errorf("after a change: %s after %d requests, want one for the new content", path, n)
	}
}

func mustProvider(t *testing.T, w *world) *v1alpha1.GitProvider {
	t.Helper()
	provider, err := w.client.KommitV1alpha1().GitProviders(namespace).Get(w.ctx, "git", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return provider
}
