// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// moduleDir returns where the sources of a module are.
func moduleDir(t *testing.T, module string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// samples are one object of each built-in kind, with every field set: k8s.io/api
// keeps them to guard its own formats.
func samples(t *testing.T) map[string]*unstructured.Unstructured {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(moduleDir(t, "k8s.io/api"), "testdata", "HEAD", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*unstructured.Unstructured{}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		value, err := read(content)
		if err != nil {
			t.Fatal(err)
		}
		if i := identify(value); i.kind == "" || i.name == "" {
			continue // options of requests, and the events of a watch
		}
		found[strings.TrimSuffix(filepath.Base(path), ".yaml")] = &unstructured.Unstructured{Object: value}
	}
	return found
}

// wantSamples leaves room for kinds that go; Kubernetes 1.37 has 171 samples.
const wantSamples = 150

// C2: every value of every built-in kind survives, for all readers and as a typed
// object, but for what is left out by name.
func TestEveryBuiltInKindReadsBack(t *testing.T) {
	all := samples(t)
	if len(all) < wantSamples {
		t.Fatalf("%d samples are too few to prove anything", len(all))
	}
	typed := 0
	for name, live := range all {
		t.Run(name, func(t *testing.T) {
			want := served(t, intent(live))
			rendered, err := Render(live)
			if err != nil {
				t.Fatal(err)
			}
			sigs, v3 := readBoth(t, rendered)
			if diff := cmp.Diff(want, sigs) + cmp.Diff(want, v3); diff != "" {
				t.Fatalf("-want +got:\n%s", diff)
			}
			again, err := Render(&unstructured.Unstructured{Object: sigs})
			if err != nil || !bytes.Equal(again, rendered) {
				t.Errorf("rendered again, the bytes differ (%v): %s", err, cmp.Diff(string(rendered), string(again)))
			}
			if file := Index(rendered); len(file.Entries) != 1 || file.Entries[0].Kind != live.GetKind() || file.Problem != nil {
				t.Errorf("the index has %v", file)
			}
			gvk := live.GroupVersionKind()
			if !scheme.Scheme.Recognizes(gvk) {
				return
			}
			typed++
			one, another := decode(t, gvk, want), decode(t, gvk, sigs)
			if !apiequality.Semantic.DeepEqual(one, another) {
				t.Error(cmp.Diff(one, another))
			}
		})
	}
	t.Logf("%d samples, %d of them typed", len(all), typed)
}

func decode(t *testing.T, gvk schema.GroupVersionKind, value map[string]any) runtime.Object {
	t.Helper()
	into, err := scheme.Scheme.New(gvk)
	if err != nil {
		t.Fatal(err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(value, into, true); err != nil {
		t.Fatal(err)
	}
	return into
}

// leftOut returns the paths of what one value has and the other has not, at their
// topmost.
func leftOut(have, kept any, path string) []string {
	h, ok := have.(map[string]any)
	k, both := kept.(map[string]any)
	if !ok || !both {
		if l, ok := have.([]any); ok {
			if m, ok := kept.([]any); ok && len(l) == len(m) {
				var out []string
				for i := range l {
					out = append(out, leftOut(l[i], m[i], path)...)
				}
				return out
			}
		}
		if !apiequality.Semantic.DeepEqual(have, kept) {
			return []string{path}
		}
		return nil
	}
	var out []string
	for _, key := range slices.Sorted(maps.Keys(h)) {
		at := strings.TrimPrefix(path+"."+key, ".")
		if value, ok := k[key]; ok {
			out = append(out, leftOut(h[key], value, at)...)
		} else {
			out = append(out, at)
		}
	}
	return out
}

// C2: what is left out, of all kinds, in full. A new entry here is a decision.
func TestWhatIsLeftOut(t *testing.T) {
	everywhere := []string{
		"metadata.creationTimestamp", "metadata.deletionGracePeriodSeconds", "metadata.deletionTimestamp",
		"metadata.generateName", "metadata.generation", "metadata.managedFields", "metadata.ownerReferences",
		"metadata.resourceVersion", "metadata.selfLink", "metadata.uid", "status",
	}
	want := map[string][]string{
		"Service":                   {"spec.clusterIP", "spec.clusterIPs", "spec.healthCheckNodePort", "spec.ipFamilies", "spec.ipFamilyPolicy", "spec.ports.nodePort"},
		"StatefulSet":               {"spec.volumeClaimTemplates.status"},
		"PersistentVolume":          {"spec.claimRef.resourceVersion", "spec.claimRef.uid"},
		"ClusterRole":               {"rules"},
		"CertificateSigningRequest": {"spec.extra", "spec.groups", "spec.uid", "spec.username"},
		"Pod":                       {"spec.nodeName", "spec.preemptionPolicy", "spec.priority", "spec.tolerations"},
	}
	for name, live := range samples(t) {
		got := slices.DeleteFunc(leftOut(live.Object, served(t, intent(live)), ""), func(p string) bool { return slices.Contains(everywhere, p) })
		if slices.Contains([]string{"rbac.authorization.k8s.io", "batch", "apps", "certificates.k8s.io", ""}, live.GroupVersionKind().Group) {
			if !slices.Equal(want[live.GetKind()], got) {
				t.Errorf("%s: left out %v, want %v", name, got, want[live.GetKind()])
			}
		} else if len(got) > 0 {
			t.Errorf("%s: left out %v", name, got)
		}
	}
}

// C14: a file that was dumped from a server, with everything in it, becomes the
// intent, in place.
func TestEveryBuiltInKindIsEditedInPlace(t *testing.T) {
	for name, live := range samples(t) {
		t.Run(name, func(t *testing.T) {
			before, err := encode(live.Object)
			if err != nil {
				t.Fatal(err)
			}
			before = append([]byte("# dumped\n"), before...)
			rendered, err := Render(live)
			if err != nil {
				t.Fatal(err)
			}
			after, err := Edit(before, rendered)
			if err != nil {
				t.Fatal(err)
			}
			sigs, _ := readBoth(t, after)
			if diff := cmp.Diff(served(t, intent(live)), sigs); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if again, err := Edit(after, rendered); err != nil || !bytes.Equal(again, after) {
				t.Errorf("the second time changes something: %v", err)
			}
			// Nothing was moved: what is there now, was, in this order.
			lines := slices.Collect(strings.Lines(string(before)))
			for line := range strings.Lines(string(after)) {
				at := slices.Index(lines, line)
				if at < 0 {
					t.Fatalf("the line %q is new, or moved", line)
				}
				lines = lines[at+1:]
			}
		})
	}
}
