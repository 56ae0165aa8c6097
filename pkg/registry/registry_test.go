// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package registry_test

import (
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/registry/generic"
	registrytest "k8s.io/apiserver/pkg/registry/generic/testing"

	"github.com/kommit-dev/kommit/apis/kommit/install"
	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/registry"
	"github.com/kommit-dev/kommit/pkg/registry/gitprovider"
	"github.com/kommit-dev/kommit/pkg/registry/gittarget"
	"github.com/kommit-dev/kommit/pkg/registry/watchrule"
	"github.com/kommit-dev/kommit/pkg/storage/bolt"
)

// namespace is the one that registrytest works in.
const namespace = "test"

func storage(t *testing.T, scheme *runtime.Scheme) generic.RESTOptionsGetter {
	t.Helper()
	db, err := bolt.Open(t.Context(), bolt.Config{Path: filepath.Join(t.TempDir(), "kommit.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return bolt.NewRESTOptionsGetter(db, serializer.NewCodecFactory(scheme).LegacyCodec(v1alpha1.SchemeGroupVersion), "")
}

func provider() *v1alpha1.GitProvider {
	p := &v1alpha1.GitProvider{
		ObjectMeta: metav1.ObjectMeta{Name: "foo", Namespace: namespace},
		Spec:       v1alpha1.GitProviderSpec{URL: "https://git.example.com/team/config"},
	}
	v1alpha1.SetObjectDefaults_GitProvider(p)
	return p
}

func target() *v1alpha1.GitTarget {
	t := &v1alpha1.GitTarget{
		ObjectMeta: metav1.ObjectMeta{Name: "foo", Namespace: namespace},
		Spec:       v1alpha1.GitTargetSpec{GitProviderRef: v1alpha1.LocalObjectReference{Name: "origin"}, Branch: "main", Path: "prod"},
	}
	v1alpha1.SetObjectDefaults_GitTarget(t)
	return t
}

func rule() *v1alpha1.WatchRule {
	return &v1alpha1.WatchRule{
		ObjectMeta: metav1.ObjectMeta{Name: "foo", Namespace: namespace},
		Spec: v1alpha1.WatchRuleSpec{
			GitTargetRef: v1alpha1.LocalObjectReference{Name: "prod"},
			Resources:    []v1alpha1.WatchedResources{{Resources: []string{"configmaps"}}},
		},
	}
}

// Each kind keeps the contract of any Kubernetes kind, on the storage that is
// shipped.
func TestRegistryContract(t *testing.T) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	for _, kind := range []struct {
		name            string
		open            func(generic.RESTOptionsGetter) (*registry.REST, *registry.StatusREST, error)
		valid           func() runtime.Object
		change, corrupt func(runtime.Object)
	}{
		{
			"gitproviders",
			func(g generic.RESTOptionsGetter) (*registry.REST, *registry.StatusREST, error) {
				return gitprovider.NewREST(scheme, g, readers(nil), false)
			},
			func() runtime.Object { return provider() },
			func(obj runtime.Object) { obj.(*v1alpha1.GitProvider).Spec.Push.MaxPerMinute = 6 },
			func(obj runtime.Object) { obj.(*v1alpha1.GitProvider).Spec.URL = "http://git.example.com/team/config" },
		},
		{
			"gittargets",
			func(g generic.RESTOptionsGetter) (*registry.REST, *registry.StatusREST, error) {
				return gittarget.NewREST(scheme, g)
			},
			func() runtime.Object { return target() },
			func(obj runtime.Object) { obj.(*v1alpha1.GitTarget).Spec.Suspend = true },
			func(obj runtime.Object) { obj.(*v1alpha1.GitTarget).Spec.Path = "../prod" },
		},
		{
			"watchrules",
			func(g generic.RESTOptionsGetter) (*registry.REST, *registry.StatusREST, error) {
				return watchrule.NewREST(scheme, g, readers(nil))
			},
			func() runtime.Object { return rule() },
			func(obj runtime.Object) { obj.(*v1alpha1.WatchRule).Spec.GitTargetRef.Name = "stage" },
			func(obj runtime.Object) { obj.(*v1alpha1.WatchRule).Spec.Resources = nil },
		},
	} {
		changed := func(change func(runtime.Object)) func(runtime.Object) runtime.Object {
			return func(obj runtime.Object) runtime.Object {
				change(obj)
				return obj
			}
		}
		for name, run := range map[string]func(*registrytest.Tester){
			"create": func(r *registrytest.Tester) { r.TestCreate(kind.valid(), changed(kind.corrupt)(kind.valid())) },
			"update": func(r *registrytest.Tester) {
				r.TestUpdate(kind.valid(), changed(kind.change), changed(kind.corrupt))
			},
			"delete": func(r *registrytest.Tester) { r.TestDelete(kind.valid()) },
			"get":    func(r *registrytest.Tester) { r.TestGet(kind.valid()) },
			"list":   func(r *registrytest.Tester) { r.TestList(kind.valid()) },
			"watch": func(r *registrytest.Tester) {
				r.TestWatch(kind.valid(),
					[]labels.Set{{}}, []labels.Set{{"foo": "bar"}},
					[]fields.Set{{"metadata.name": "foo"}}, []fields.Set{{"metadata.name": "bar"}})
			},
		} {
			t.Run(kind.name+"/"+name, func(t *testing.T) {
				rest, _, err := kind.open(storage(t, scheme))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(rest.Destroy)
				run(registrytest.New(t, rest.Store))
			})
		}
	}
}
