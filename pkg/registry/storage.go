// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// ResourceStrategy is what a kind decides for itself.
type ResourceStrategy interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
	rest.RESTDeleteStrategy
	rest.ResetFieldsStrategy
}

// Kind describes a kind to NewREST.
type Kind struct {
	New, NewList func() runtime.Object
	// Plural and Singular are the names of the resource.
	Plural, Singular string
	ShortNames       []string
	Strategy         ResourceStrategy
	StatusStrategy   StatusStrategy
	Table            Table
	// Permit, when set, is asked after validation and before admission's own
	// validation, whichever verb creates or changes the object; old is nil on
	// create. It sees the object as it would be stored, also on dry run, and must
	// have no effects. A *DeniedError becomes 403. The status subresource, which
	// changes no spec, does not ask.
	Permit rest.ValidateObjectUpdateFunc
}

// REST serves the main resource of a kind.
type REST struct {
	*genericregistry.Store
	shortNames []string
	permit     rest.ValidateObjectUpdateFunc
}

var (
	_ rest.StandardStorage      = (*REST)(nil)
	_ rest.ShortNamesProvider   = (*REST)(nil)
	_ rest.CategoriesProvider   = (*REST)(nil)
	_ rest.ResetFieldsStrategy  = (*REST)(nil)
	_ rest.SingularNameProvider = (*REST)(nil)
)

// NewREST returns the storage of a kind and of its status subresource, on one
// store.
func NewREST(kind Kind, getter generic.RESTOptionsGetter) (*REST, *StatusREST, error) {
	store := &genericregistry.Store{
		NewFunc:                   kind.New,
		NewListFunc:               kind.NewList,
		DefaultQualifiedResource:  v1alpha1.Resource(kind.Plural),
		SingularQualifiedResource: v1alpha1.Resource(kind.Singular),
		CreateStrategy:            kind.Strategy,
		UpdateStrategy:            kind.Strategy,
		DeleteStrategy:            kind.Strategy,
		ResetFieldsStrategy:       kind.Strategy,
		TableConvertor:            kind.Table,
	}
	if err := store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: getter}); err != nil {
		return nil, nil, fmt.Errorf("registry of %s: %w", kind.Plural, err)
	}
	status := *store
	status.CreateStrategy = nil
	status.DeleteStrategy = nil
	status.UpdateStrategy = kind.StatusStrategy
	status.ResetFieldsStrategy = kind.StatusStrategy
	return &REST{Store: store, shortNames: kind.ShortNames, permit: kind.Permit}, &StatusREST{store: &status}, nil
}

// ShortNames are the names that kubectl accepts beside the full one.
func (r *REST) ShortNames() []string { return r.shortNames }

// Categories make `kubectl get kommit` list all kinds.
func (*REST) Categories() []string { return []string{"kommit"} }

// List implements rest.Lister. A field selector that names one namespace is read
// as that namespace, on each page: upstream's store narrows the first page only,
// and would then not find where that one ended.
func (r *REST) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	if namespace := selectedNamespace(options); namespace != "" && genericapirequest.NamespaceValue(ctx) == metav1.NamespaceAll {
		ctx = genericapirequest.WithNamespace(ctx, namespace)
	}
	return r.Store.List(ctx, options)
}

// selectedNamespace is the one namespace that options select, or "".
func selectedNamespace(options *metainternalversion.ListOptions) string {
	if options == nil || options.FieldSelector == nil {
		return ""
	}
	namespace, ok := options.FieldSelector.RequiresExactMatch("metadata.namespace")
	if !ok || len(apivalidation.ValidateNamespaceName(namespace, false)) > 0 {
		return "" // where nothing is
	}
	return namespace
}

// Create implements rest.Creater.
func (r *REST) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	return r.Store.Create(ctx, obj, r.permitCreate(validate), options)
}

// Update implements rest.Updater. PUT, PATCH and server-side apply, which also
// creates, all come through it.
func (r *REST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, validateCreate rest.ValidateObjectFunc, validateUpdate rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return r.Store.Update(ctx, name, info, r.permitCreate(validateCreate), r.permitUpdate(validateUpdate), forceAllowCreate, options)
}

func (r *REST) permitCreate(validate rest.ValidateObjectFunc) rest.ValidateObjectFunc {
	return func(ctx context.Context, obj runtime.Object) error {
		if err := r.permitted(ctx, obj, nil); err != nil || validate == nil {
			return err
		}
		return validate(ctx, obj)
	}
}

func (r *REST) permitUpdate(validate rest.ValidateObjectUpdateFunc) rest.ValidateObjectUpdateFunc {
	return func(ctx context.Context, obj, old runtime.Object) error {
		if err := r.permitted(ctx, obj, old); err != nil || validate == nil {
			return err
		}
		return validate(ctx, obj, old)
	}
}

func (r *REST) permitted(ctx context.Context, obj, old runtime.Object) error {
	if r.permit == nil {
		return nil
	}
	err := r.permit(ctx, obj, old)
	denied, ok := errors.AsType[*DeniedError](err)
	if !ok {
		return err
	}
	object, err := meta.Accessor(obj)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	return apierrors.NewForbidden(r.DefaultQualifiedResource, object.GetName(), denied)
}

// StatusREST serves the status subresource of a kind.
type StatusREST struct {
	store *genericregistry.Store
}

var (
	_ rest.Patcher             = (*StatusREST)(nil)
	_ rest.Storage             = (*StatusREST)(nil)
	_ rest.ResetFieldsStrategy = (*StatusREST)(nil)
	_ rest.TableConvertor      = (*StatusREST)(nil)
)

// New implements rest.Storage.
func (r *StatusREST) New() runtime.Object { return r.store.New() }

// Destroy does nothing: the store is the main resource's to close.
func (*StatusREST) Destroy() {}

// Get implements rest.Getter.
func (r *StatusREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return r.store.Get(ctx, name, options)
}

// Update implements rest.Updater. It never creates.
func (r *StatusREST) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, validateCreate rest.ValidateObjectFunc, validateUpdate rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return r.store.Update(ctx, name, info, validateCreate, validateUpdate, false, options)
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (r *StatusREST) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return r.store.GetResetFields()
}

// ConvertToTable implements rest.TableConvertor.
func (r *StatusREST) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return r.store.ConvertToTable(ctx, obj, options)
}
