// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package commitrequest

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/registry"
)

// Config is what the registry needs of the rest of the server.
type Config struct {
	// Authorizer answers for the permission to save to a target.
	Authorizer authorizer.UnconditionalAuthorizer
	// Windows are the open windows.
	Windows WindowTable
	// Targets is the storage of gittargets.
	Targets rest.Getter
	// Stopping is closed when the server is told to stop. It takes no new requests
	// then. May be nil.
	Stopping <-chan struct{}
}

// NewREST returns the storage of commitrequests and commitrequests/status.
func NewREST(scheme *runtime.Scheme, getter generic.RESTOptionsGetter, config Config) (*registry.REST, *registry.StatusREST, error) {
	base := registry.NewStrategy(scheme)
	return registry.NewREST(registry.Kind{
		New:            func() runtime.Object { return &v1alpha1.CommitRequest{} },
		NewList:        func() runtime.Object { return &v1alpha1.CommitRequestList{} },
		Plural:         "commitrequests",
		Singular:       "commitrequest",
		ShortNames:     []string{"creq"},
		Strategy:       strategy{Strategy: base, windows: config.Windows, targets: storedTargets{config.Targets}},
		StatusStrategy: registry.StatusStrategy{Strategy: base, KeepSpec: keepSpec},
		Table:          newTable(),
		Permit:         admission{authorizer: config.Authorizer, windows: config.Windows, stopping: config.Stopping}.permit,
	}, getter)
}

// storedTargets reads from the storage and not from a cache: a bundle may create
// the target one request before the save (UC2).
type storedTargets struct{ getter rest.Getter }

var _ targetGetter = storedTargets{}

// Get implements targetGetter.
func (t storedTargets) Get(ctx context.Context, namespace, name string) (*v1alpha1.GitTarget, error) {
	obj, err := t.getter.Get(genericapirequest.WithNamespace(ctx, namespace), name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	target, ok := obj.(*v1alpha1.GitTarget)
	if !ok {
		return nil, fmt.Errorf("the storage of gittargets returned %T for %s/%s", obj, namespace, name)
	}
	return target, nil
}
