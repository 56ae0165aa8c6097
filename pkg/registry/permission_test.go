// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package registry_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kommit-dev/kommit/apis/kommit/install"
	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/registry"
	"github.com/kommit-dev/kommit/pkg/registry/gitprovider"
	"github.com/kommit-dev/kommit/pkg/registry/watchrule"
)

// readers are the users that may read everything in the namespace; all others
// may read nothing.
type readers []string

func (r readers) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetUser().GetName() == "unlucky" {
		return authorizer.DecisionNoOpinion, "", errors.New("the webhook is down")
	}
	if slices.Contains(r, a.GetUser().GetName()) && a.IsResourceRequest() && a.IsReadOnly() && a.GetNamespace() == namespace {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func as(username string) context.Context {
	ctx := genericapirequest.WithNamespace(genericapirequest.NewContext(), namespace)
	return genericapirequest.WithUser(ctx, &user.DefaultInfo{Name: username})
}

// reaching is a kind whose objects name what their writer may be kept from.
type reaching struct {
	name  string
	open  func(*runtime.Scheme, generic.RESTOptionsGetter) (*registry.REST, *registry.StatusREST, error)
	valid func() runtime.Object
	// reach makes an object name more than the valid one does.
	reach func(runtime.Object)
}

var reachingKinds = []reaching{
	{
		"gitproviders",
		func(s *runtime.Scheme, g generic.RESTOptionsGetter) (*registry.REST, *registry.StatusREST, error) {
			return gitprovider.NewREST(s, g, readers{"alice"}, false)
		},
		func() runtime.Object { return provider() },
		func(obj runtime.Object) {
			obj.(*v1alpha1.GitProvider).Spec.SecretRef = &v1alpha1.LocalObjectReference{Name: "credentials"}
		},
	},
	{
		"watchrules",
		func(s *runtime.Scheme, g generic.RESTOptionsGetter) (*registry.REST, *registry.StatusREST, error) {
			return watchrule.NewREST(s, g, readers{"alice"})
		},
		func() runtime.Object { return rule() },
		func(obj runtime.Object) {
			spec := &obj.(*v1alpha1.WatchRule).Spec
			spec.Resources = append(spec.Resources, v1alpha1.WatchedResources{Resources: []string{"services"}})
		},
	},
}

// opened is a kind's storage, which holds what alice created if it is stored.
func (kind reaching) opened(t *testing.T, stored bool) (*registry.REST, *registry.StatusREST) {
	t.Helper()
	scheme := runtime.NewScheme()
	install.Install(scheme)
	main, status, err := kind.open(scheme, storage(t, scheme))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(main.Destroy)
	if stored {
		if _, err := main.Create(as("alice"), kind.valid(), rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return main, status
}

// changed is what a PATCH or an apply makes of the stored object.
func changed(change func(runtime.Object)) rest.UpdatedObjectInfo {
	return rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
		obj := old.DeepCopyObject()
		change(obj)
		return obj, nil
	})
}

func update(ctx context.Context, updater rest.Updater, info rest.UpdatedObjectInfo, create bool, dryRun []string) error {
	_, _, err := updater.Update(ctx, "foo", info, rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, create,
		&metav1.UpdateOptions{DryRun: dryRun})
	return err
}

func TestPermissionIsAskedForOnEveryPath(t *testing.T) {
	type path struct {
		creates bool
		do      func(ctx context.Context, main *registry.REST, kind reaching, dryRun []string) error
	}
	reached := func(kind reaching) runtime.Object {
		obj := kind.valid()
		kind.reach(obj)
		return obj
	}
	for name, path := range map[string]path{
		"POST": {true, func(ctx context.Context, main *registry.REST, kind reaching, dryRun []string) error {
			_, err := main.Create(ctx, reached(kind), rest.ValidateAllObjectFunc, &metav1.CreateOptions{DryRun: dryRun})
			return err
		}},
		"apply that creates": {true, func(ctx context.Context, main *registry.REST, kind reaching, dryRun []string) error {
			return update(ctx, main, rest.DefaultUpdatedObjectInfo(reached(kind)), true, dryRun)
		}},
		"PUT": {false, func(ctx context.Context, main *registry.REST, kind reaching, dryRun []string) error {
			return update(ctx, main, rest.DefaultUpdatedObjectInfo(reached(kind)), false, dryRun)
		}},
		"PATCH": {false, func(ctx context.Context, main *registry.REST, kind reaching, dryRun []string) error {
			return update(ctx, main, changed(kind.reach), false, dryRun)
		}},
		"apply that changes": {false, func(ctx context.Context, main *registry.REST, kind reaching, dryRun []string) error {
			return update(ctx, main, changed(kind.reach), true, dryRun)
		}},
	} {
		for _, kind := range reachingKinds {
			for username, is := range map[string]func(error) bool{
				"alice":   func(err error) bool { return err == nil },
				"eve":     apierrors.IsForbidden,
				"unlucky": apierrors.IsInternalError,
				"":        apierrors.IsUnauthorized,
			} {
				for _, dryRun := range [][]string{nil, {metav1.DryRunAll}} {
					t.Run(kind.name+"/"+name+"/as "+username, func(t *testing.T) {
						main, _ := kind.opened(t, !path.creates)
						before, _ := main.Get(as(username), "foo", &metav1.GetOptions{})
						ctx := as(username)
						if username == "" {
							ctx = genericapirequest.WithNamespace(genericapirequest.NewContext(), namespace)
						}
						err := path.do(ctx, main, kind, dryRun)
						if !is(err) {
							t.Errorf("dry run %v: got %v", dryRun, err)
						}
						after, _ := main.Get(as(username), "foo", &metav1.GetOptions{})
						if written, want := !cmp.Equal(before, after), err == nil && dryRun == nil; written != want {
							t.Errorf("dry run %v: written is %t, want %t", dryRun, written, want)
						}
					})
				}
			}
		}
	}
}

func TestPermissionIsNotAskedForWhatIsStored(t *testing.T) {
	for _, kind := range reachingKinds {
		t.Run(kind.name, func(t *testing.T) {
			main, status := kind.opened(t, true)
			if err := update(as("alice"), main, changed(kind.reach), false, nil); err != nil {
				t.Fatal(err)
			}
			relabel := changed(func(obj runtime.Object) {
				object, err := meta.Accessor(obj)
				if err != nil {
					t.Error(err)
					return
				}
				object.SetLabels(map[string]string{"a": "b"})
			})
			if err := update(as("eve"), main, relabel, false, nil); err != nil {
				t.Errorf("metadata: %v", err)
			}
			if _, _, err := main.Delete(as("eve"), "foo", rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}); err != nil {
				t.Errorf("delete: %v", err)
			}
			if _, err := main.Create(as("alice"), kind.valid(), rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			// The status subresource is the server's, and no way around.
			before, err := main.Get(as("eve"), "foo", &metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if err := update(as("eve"), status, changed(kind.reach), false, nil); err != nil {
				t.Errorf("status: %v", err)
			}
			after, err := main.Get(as("eve"), "foo", &metav1.GetOptions{})
			if diff := cmp.Diff(before, after); err != nil || diff != "" {
				t.Errorf("status changed more than status: %v\n%s", err, diff)
			}
		})
	}
}
