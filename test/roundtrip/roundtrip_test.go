// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package roundtrip

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/kommit-dev/kommit/pkg/manifest"
	"github.com/kommit-dev/kommit/test/controlplane"
	"github.com/kommit-dev/kommit/test/controlplane/controlplanetest"
)

const (
	namespace = "roundtrip"
	// wantKinds is how many kinds at least have to make the round trip. Kubernetes
	// 1.37 stores 63, and testdata has two more; those without a sample are logged.
	wantKinds = 60
	// wantObjects is the same for objects.
	wantObjects = 300
	// wantUntouched is how many manifests at least stay as they are when the object
	// is saved. Of the others, most spell out a status.
	wantUntouched = 225
)

// cluster is a control plane, and what it serves.
type cluster struct {
	*controlplane.ControlPlane
	client dynamic.Interface
	// resources are the kinds that are stored, of built-in groups.
	resources map[schema.GroupVersionKind]metav1.APIResource
}

func start(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{ControlPlane: controlplanetest.Start(t, controlplane.Config{}), resources: map[schema.GroupVersionKind]metav1.APIResource{}}
	config, err := c.RESTConfig(controlplane.Admin)
	if err != nil {
		t.Fatal(err)
	}
	if c.client, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	found, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range found {
		gv, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range group.APIResources {
			if slices.Contains(r.Verbs, "create") && slices.Contains(r.Verbs, "get") && slices.Contains(r.Verbs, "delete") {
				r.Group, r.Version = gv.Group, gv.Version
				c.resources[gv.WithKind(r.Kind)] = r
			}
		}
	}
	for _, kind := range []string{"Namespace", "ServiceAccount"} {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind}}
		// A controller that does not run here makes the account.
		u.SetName(map[string]string{"Namespace": namespace, "ServiceAccount": "default"}[kind])
		if kind == "ServiceAccount" {
			u.SetNamespace(namespace)
		}
		if _, err := c.resource(u).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// resource returns the client for objects of this kind.
func (c *cluster) resource(u *unstructured.Unstructured) dynamic.ResourceInterface {
	gvk := u.GroupVersionKind()
	r, ok := c.resources[gvk]
	if !ok { // one of testdata's CRDs
		r = metav1.APIResource{Name: strings.ToLower(gvk.Kind) + "s", Namespaced: true}
	}
	client := c.client.Resource(gvk.GroupVersion().WithResource(r.Name))
	if r.Namespaced {
		return client.Namespace(namespace)
	}
	return client
}

// rank is the order in which kinds are made: what others need first, what keeps
// others out last.
func rank(kind string) int {
	switch kind {
	case "CustomResourceDefinition":
		return 0
	case "ServiceAccount", "PriorityClass", "StorageClass", "RuntimeClass":
		return 1
	case "LimitRange", "ResourceQuota", "APIService":
		return 3
	case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding":
		return 4
	}
	return 2
}

// established waits until the API server serves the CRDs.
func (c *cluster) established(t *testing.T) {
	t.Helper()
	if _, stderr, err := c.Kubectl(t.Context(), controlplane.Admin, "wait", "--for=condition=Established", "customresourcedefinitions", "--all"); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
}

// name identifies an object within the test.
type name struct {
	gvk  schema.GroupVersionKind
	name string
}

func nameOf(u *unstructured.Unstructured) name { return name{u.GroupVersionKind(), u.GetName()} }

// C2: what is saved of an object makes the same object in an empty cluster, for
// each kind the API server knows and for custom resources.
func TestFilesMakeTheSameObjects(t *testing.T) {
	public, err := publicSamples(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	one, another := start(t), start(t)
	lives := one.create(t, slices.Concat(own(t), public))
	var again []sample
	for _, live := range lives {
		file, err := manifest.Render(live.object)
		if err != nil {
			t.Errorf("%s: %v", live.origin, err)
			continue
		}
		object, err := readObject(file)
		if err != nil {
			t.Errorf("%s: %v\n%s", live.origin, err, file)
			continue
		}
		again = append(again, sample{origin: live.origin, object: &unstructured.Unstructured{Object: object}, required: true})
	}
	remade := map[name]*unstructured.Unstructured{}
	for _, s := range another.create(t, again) {
		remade[nameOf(s.object)] = s.object
	}
	kinds := map[schema.GroupVersionKind]int{}
	for _, live := range lives {
		copied, ok := remade[nameOf(live.object)]
		if !ok {
			continue // said by create
		}
		kinds[live.object.GroupVersionKind()]++
		want, got := render(t, live.object), render(t, copied)
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %v is another one: -want +got:\n%s", live.origin, nameOf(live.object), diff)
		}
		if diff := gocmp.Diff(chosen(t, live.object), chosen(t, copied)); diff != "" {
			t.Errorf("%s: %v was made another one: -want +got:\n%s", live.origin, nameOf(live.object), diff)
		}
	}
	untouched(t, lives)
	var missing []string
	for gvk := range one.resources {
		if kinds[gvk] == 0 {
			missing = append(missing, gvk.GroupKind().String())
		}
	}
	slices.Sort(missing)
	t.Logf("%d objects of %d kinds made the round trip; no sample of %v", len(remade), len(kinds), missing)
	if len(kinds) < wantKinds || len(remade) < wantObjects {
		t.Errorf("want %d objects of %d kinds", wantObjects, wantKinds)
	}
}

// C14: a manifest that was applied says what the object is, whatever the server
// added to it, so saving the object does not touch the file.
func untouched(t *testing.T, lives []sample) {
	t.Helper()
	same, all := 0, 0
	for _, live := range lives {
		file := manifest.Index(live.text)
		if len(file.Entries) != 1 || file.Entries[0].Namespace != "" || file.Problem != nil {
			continue // the test put it elsewhere
		}
		all++
		after, err := manifest.Edit(live.text, []byte(render(t, live.object)))
		if err == nil && string(after) == string(live.text) {
			same++
			continue
		}
		t.Logf("%s: %v is touched: %v", live.origin, nameOf(live.object), err)
	}
	t.Logf("%d of %d manifests are untouched", same, all)
	if same < wantUntouched {
		t.Errorf("want %d", wantUntouched)
	}
}

func render(t *testing.T, u *unstructured.Unstructured) string {
	t.Helper()
	file, err := manifest.Render(u)
	if err != nil {
		t.Fatal(err)
	}
	return string(file)
}

// own are the samples of testdata. All of them have to be accepted.
func own(t *testing.T) []sample {
	t.Helper()
	var found []sample
	paths, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no samples: %v", err)
	}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range readSamples(path, content) {
			s.required = true
			found = append(found, s)
		}
	}
	return found
}

// chosen is what is left of an object without what each server counts or assigns
// for itself, found by other means than those of package manifest: nothing is left
// out of spec but the few fields named here.
func chosen(t *testing.T, u *unstructured.Unstructured) map[string]any {
	t.Helper()
	u = u.DeepCopy()
	delete(u.Object, "status")
	metadata := u.Object["metadata"].(map[string]any)
	for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "ownerReferences"} {
		delete(metadata, field)
	}
	for _, path := range assigned[u.GetKind()] {
		unstructured.RemoveNestedField(u.Object, strings.Split(path, ".")...)
	}
	withoutTokens(u.Object)
	if ports, ok, _ := unstructured.NestedSlice(u.Object, "spec", "ports"); ok && u.GetKind() == "Service" {
		for _, port := range ports {
			if n, _ := port.(map[string]any)["nodePort"].(int64); n != 30443 {
				delete(port.(map[string]any), "nodePort")
			}
		}
		if err := unstructured.SetNestedSlice(u.Object, ports, "spec", "ports"); err != nil {
			t.Fatal(err)
		}
	}
	return u.Object
}

// assigned are the fields that two servers assign differently.
var assigned = map[string][]string{
	"Service": {"spec.clusterIP", "spec.clusterIPs", "spec.healthCheckNodePort"},
	"Job":     {"metadata.labels", "spec.selector", "spec.template.metadata.labels"},
}

// withoutTokens takes out the volume with the token that admission gives each pod,
// under a name of its own, and its mounts.
func withoutTokens(value any) {
	switch value := value.(type) {
	case map[string]any:
		for _, field := range []string{"volumes", "volumeMounts"} {
			if list, ok := value[field].([]any); ok {
				list = slices.DeleteFunc(list, func(v any) bool {
					entry, _ := v.(map[string]any)
					name, _ := entry["name"].(string)
					return strings.HasPrefix(name, "kube-api-access-")
				})
				if value[field] = list; len(list) == 0 {
					delete(value, field)
				}
			}
		}
		for _, v := range value {
			withoutTokens(v)
		}
	case []any:
		for _, v := range value {
			withoutTokens(v)
		}
	}
}

// create makes the objects of samples that the API server takes, each once, and
// returns them as it has them then.
func (c *cluster) create(t *testing.T, samples []sample) []sample {
	t.Helper()
	slices.SortStableFunc(samples, func(a, b sample) int { return cmp.Compare(rank(a.object.GetKind()), rank(b.object.GetKind())) })
	seen := map[name]bool{}
	var made []sample
	waited := false
	for _, s := range samples {
		u := s.object.DeepCopy()
		r, builtIn := c.resources[u.GroupVersionKind()]
		if !builtIn && !s.required || seen[nameOf(u)] {
			continue
		}
		if rank(u.GetKind()) > 0 && !waited {
			c.established(t)
			waited = true
		}
		if u.SetNamespace(""); !builtIn || r.Namespaced {
			u.SetNamespace(namespace)
		}
		_, err := c.resource(u).Create(t.Context(), u, metav1.CreateOptions{FieldManager: "roundtrip", FieldValidation: metav1.FieldValidationStrict})
		if err != nil {
			if s.required {
				t.Errorf("%s: %v", s.origin, err)
			}
			continue
		}
		seen[nameOf(u)] = true
		live, err := c.resource(u).Get(t.Context(), u.GetName(), metav1.GetOptions{})
		if err != nil {
			t.Errorf("%s: %v", s.origin, err)
			continue
		}
		made = append(made, sample{origin: s.origin, text: s.text, object: live, required: s.required})
	}
	return made
}
