// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package artifacts_test checks the shipped manifests against the types that the
// API servers decode them into, and against each other.
package artifacts_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// object is one document of one file.
type object struct {
	runtime.Object

	file string // below artifacts/
}

func (o object) String() string {
	return o.file + ": " + o.GetObjectKind().GroupVersionKind().Kind
}

// decode reads data into the Go types, strictly: an unknown or repeated field is
// an error.
func decode(t *testing.T, file string, data []byte) []object {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, v1alpha1.AddToScheme, apiregistrationv1.AddToScheme, auditv1.AddToScheme,
		func(s *runtime.Scheme) error {
			s.AddKnownTypeWithName(clientcmdv1.SchemeGroupVersion.WithKind("Config"), &clientcmdv1.Config{})
			return nil
		},
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	var objects []object
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		decoded, gvk, err := decoder.Decode(document, nil, nil)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		decoded.GetObjectKind().SetGroupVersionKind(*gvk)
		objects = append(objects, object{Object: decoded, file: file})
	}
}

// files are all manifests below directory, kustomizations apart.
func files(t *testing.T, directory string) []object {
	t.Helper()
	var objects []object
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Name() == "kustomization.yaml" {
			return err
		}
		switch filepath.Ext(path) {
		case ".yaml", ".kubeconfig":
		default:
			return nil
		}
		data, err := os.ReadFile(path)
		objects = append(objects, decode(t, path, data)...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(objects) == 0 {
		t.Fatalf("no manifests below %s", directory)
	}
	return objects
}

// only are the objects of type T.
func only[T any](objects []object) []T {
	var found []T
	for _, o := range objects {
		if typed, ok := o.Object.(T); ok {
			found = append(found, typed)
		}
	}
	return found
}

func one[T any](t *testing.T, objects []object) T {
	t.Helper()
	found := only[T](objects)
	if len(found) != 1 {
		t.Fatalf("found %d of %T, want 1", len(found), *new(T))
	}
	return found[0]
}

func TestDeployHoldsOneObjectAFile(t *testing.T) {
	holds := map[string]int{}
	for _, o := range files(t, "deploy") {
		holds[o.file]++
		kind := strings.ToLower(o.GetObjectKind().GroupVersionKind().Kind)
		if base := filepath.Base(o.file); base != kind+".yaml" && !strings.HasPrefix(base, kind+"-") {
			t.Errorf("%s is not named for its kind", o)
		}
	}
	for file, n := range holds {
		if n != 1 {
			t.Errorf("%s holds %d objects", file, n)
		}
	}
}

// What kustomize builds is every file of the base, each once.
func TestKustomizeBuildsEveryFile(t *testing.T) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "deploy")
	if err != nil {
		t.Fatal(err)
	}
	yaml, err := built.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	names := func(objects []object) []string {
		var all []string
		for _, o := range objects {
			accessor, err := apimeta.Accessor(o.Object)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, o.GetObjectKind().GroupVersionKind().Kind+" "+accessor.GetNamespace()+"/"+accessor.GetName())
		}
		slices.Sort(all)
		return all
	}
	if got, want := names(decode(t, "kustomize build", yaml)), names(files(t, "deploy")); !slices.Equal(got, want) {
		t.Errorf("kustomize builds\n%v, want\n%v", got, want)
	}
}

func TestAPIServiceServesOurGroup(t *testing.T) {
	objects := files(t, "deploy")
	api, service := one[*apiregistrationv1.APIService](t, objects), one[*corev1.Service](t, objects)
	if got, want := api.Spec.Group+"/"+api.Spec.Version, v1alpha1.SchemeGroupVersion.String(); got != want {
		t.Errorf("serves %s, want %s", got, want)
	}
	if want := v1alpha1.SchemeGroupVersion.Version + "." + v1alpha1.SchemeGroupVersion.Group; api.Name != want {
		t.Errorf("is named %s, want %s", api.Name, want)
	}
	if api.Spec.InsecureSkipTLSVerify {
		t.Error("does not verify the server")
	}
	ref := api.Spec.Service
	if ref == nil || ref.Name != service.Name || ref.Namespace != service.Namespace || ref.Port == nil || *ref.Port != service.Spec.Ports[0].Port {
		t.Errorf("points at %v, not at the Service's port", ref)
	}
}

func TestDeploymentIsFoundAndConfined(t *testing.T) {
	objects := files(t, "deploy")
	deployment, service := one[*appsv1.Deployment](t, objects), one[*corev1.Service](t, objects)
	pod := deployment.Spec.Template
	selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
	if err != nil {
		t.Fatal(err)
	}
	if !selector.Matches(labels.Set(pod.Labels)) {
		t.Errorf("selector %s does not match its pods' labels %v", selector, pod.Labels)
	}
	if !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod.Labels)) {
		t.Errorf("the Service's selector %v does not match the pods' labels %v", service.Spec.Selector, pod.Labels)
	}

	// D5, DESIGN 9: one process owns the file.
	if *deployment.Spec.Replicas != 1 || deployment.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		t.Errorf("replicas %d, strategy %s: two processes could meet on one file", *deployment.Spec.Replicas, deployment.Spec.Strategy.Type)
	}

	container := pod.Spec.Containers[0]
	var ports, mounts, volumes []string
	for _, p := range container.Ports {
		ports = append(ports, p.Name)
	}
	for _, probe := range []*corev1.Probe{container.StartupProbe, container.LivenessProbe, container.ReadinessProbe} {
		if !slices.Contains(ports, probe.HTTPGet.Port.StrVal) {
			t.Errorf("probe of port %s, have %v", probe.HTTPGet.Port.String(), ports)
		}
	}
	if port := service.Spec.Ports[0].TargetPort.StrVal; !slices.Contains(ports, port) {
		t.Errorf("the Service's target port %q is none of %v", port, ports)
	}
	for _, m := range container.VolumeMounts {
		mounts = append(mounts, m.Name)
	}
	for _, v := range pod.Spec.Volumes {
		volumes = append(volumes, v.Name)
		if claim := v.PersistentVolumeClaim; claim != nil && claim.ClaimName != one[*corev1.PersistentVolumeClaim](t, objects).Name {
			t.Errorf("claims %s, which is not shipped", claim.ClaimName)
		}
	}
	slices.Sort(mounts)
	slices.Sort(volumes)
	if !slices.Equal(mounts, volumes) {
		t.Errorf("mounts %v, volumes %v", mounts, volumes)
	}

	// The namespace enforces the restricted pod security standard.
	security, its := container.SecurityContext, pod.Spec.SecurityContext
	if !*its.RunAsNonRoot || its.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault ||
		!*security.ReadOnlyRootFilesystem || *security.AllowPrivilegeEscalation ||
		!slices.Equal(security.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(security.Capabilities.Add) > 0 {
		t.Errorf("pod %+v, container %+v: not restricted", its, security)
	}
}

// Every namespaced object stands where kustomize's namespace field need not put it.
func TestNamespacesAreExplicit(t *testing.T) {
	for _, o := range files(t, "deploy") {
		accessor, err := apimeta.Accessor(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		switch o.Object.(type) {
		case *rbacv1.RoleBinding:
			if accessor.GetNamespace() != "kube-system" {
				t.Errorf("%s: namespace %q", o, accessor.GetNamespace())
			}
		case *appsv1.Deployment, *corev1.Service, *corev1.ServiceAccount, *corev1.PersistentVolumeClaim:
			if accessor.GetNamespace() != "kommit-system" {
				t.Errorf("%s: namespace %q", o, accessor.GetNamespace())
			}
		default:
			if accessor.GetNamespace() != "" {
				t.Errorf("%s: namespace %q on a cluster-scoped object", o, accessor.GetNamespace())
			}
		}
	}
}

// No credential is shipped, not even a made-up one that someone could apply.
func TestNoSecretData(t *testing.T) {
	for _, o := range files(t, ".") {
		switch typed := o.Object.(type) {
		case *corev1.Secret:
			if len(typed.Data)+len(typed.StringData) > 0 {
				t.Errorf("%s %s has data", o, typed.Name)
			}
		case *clientcmdv1.Config:
			for _, user := range typed.AuthInfos {
				if a := user.AuthInfo; a.Token != "" || a.Password != "" || len(a.ClientKeyData) > 0 || len(a.ClientCertificateData) > 0 {
					t.Errorf("%s: user %s has credentials", o, user.Name)
				}
			}
		}
	}
}

// The examples are of one piece: what they refer to is there.
func TestExamplesReferToEachOther(t *testing.T) {
	objects := files(t, "examples")
	provider, target := one[*v1alpha1.GitProvider](t, objects), one[*v1alpha1.GitTarget](t, objects)
	rule := one[*v1alpha1.WatchRule](t, objects)
	if target.Spec.GitProviderRef.Name != provider.Name || rule.Spec.GitTargetRef.Name != target.Name {
		t.Error("a reference leads nowhere")
	}
	for _, request := range only[*v1alpha1.CommitRequest](objects) {
		if request.Spec.GitTargetRef.Name != target.Name || request.Namespace != target.Namespace {
			t.Errorf("CommitRequest %s%s is for another target", request.Name, request.GenerateName)
		}
		if request.Spec.RequestedBy.Username != "" || len(request.Status.Conditions) > 0 {
			t.Errorf("CommitRequest %s sets what the server sets", request.Name)
		}
	}
}

// UC2: the CommitRequest comes first, and all that follows is captured by the rule.
func TestBundleBeginsWithItsCommitRequest(t *testing.T) {
	data, err := os.ReadFile("examples/bundle.yaml")
	if err != nil {
		t.Fatal(err)
	}
	bundle := decode(t, "examples/bundle.yaml", data)
	if _, ok := bundle[0].Object.(*v1alpha1.CommitRequest); !ok {
		t.Errorf("begins with %s", bundle[0])
	}
	rule := one[*v1alpha1.WatchRule](t, files(t, "examples"))
	for _, o := range bundle[1:] {
		gvk := o.GetObjectKind().GroupVersionKind()
		plural, _ := apimeta.UnsafeGuessKindToResource(gvk)
		captured := slices.ContainsFunc(rule.Spec.Resources, func(r v1alpha1.WatchedResources) bool {
			return slices.Contains(r.APIGroups, gvk.Group) && slices.Contains(r.Resources, plural.Resource)
		})
		if !captured {
			t.Errorf("%s: %s is not captured by the example's rule", o, plural.Resource)
		}
	}
}
