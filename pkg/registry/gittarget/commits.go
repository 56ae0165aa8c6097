// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package gittarget

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/registry"
)

// Bounds of one page of commits.
const (
	defaultCommits = 50
	maxCommits     = 500
)

// History reads what was committed.
type History interface {
	// Commits lists the commits that touch the target's path, newest first: at most
	// limit, behind the page that the token came with. Its errors are API errors.
	Commits(ctx context.Context, target *v1alpha1.GitTarget, limit int64, token string) (*v1alpha1.CommitList, error)
}

// CommitsConfig is what CommitsREST works with.
type CommitsConfig struct {
	Targets rest.Getter
	History History
	// Requests stores CommitRequests, with the checks of any create.
	Requests rest.Creater
	// Admission is the server's, asked about the CommitRequest that a POST makes; nil
	// for none. Scheme has its types.
	Admission admission.Interface
	Scheme    *runtime.Scheme
}

// CommitsREST serves gittargets/commits: GET lists the commits of the branch that
// touch the path, POST of a CommitRequest is the imperative save (DESIGN 4.5).
type CommitsREST struct {
	registry.Table
	config CommitsConfig
}

var (
	_ rest.GetterWithOptions = (*CommitsREST)(nil)
	_ rest.NamedCreater      = (*CommitsREST)(nil)
	_ rest.StorageMetadata   = (*CommitsREST)(nil)
	_ rest.TableConvertor    = (*CommitsREST)(nil)
)

// NewCommitsREST returns the storage of gittargets/commits.
func NewCommitsREST(config CommitsConfig) *CommitsREST {
	return &CommitsREST{Table: registry.CommitTable(), config: config}
}

// New implements rest.Storage: what is posted.
func (*CommitsREST) New() runtime.Object { return &v1alpha1.CommitRequest{} }

// Destroy does nothing: all it uses is others' to close.
func (*CommitsREST) Destroy() {}

// NewGetOptions implements rest.GetterWithOptions.
func (*CommitsREST) NewGetOptions() (options runtime.Object, subpath bool, subpathKey string) {
	return &v1alpha1.CommitListOptions{}, false, ""
}

// ProducesMIMETypes implements rest.StorageMetadata.
func (*CommitsREST) ProducesMIMETypes(string) []string { return nil }

// ProducesObject implements rest.StorageMetadata.
func (*CommitsREST) ProducesObject(verb string) any {
	if verb == "GET" {
		return v1alpha1.CommitList{}
	}
	return v1alpha1.CommitRequest{}
}

// Get implements rest.GetterWithOptions.
func (r *CommitsREST) Get(ctx context.Context, name string, options runtime.Object) (runtime.Object, error) {
	page, ok := options.(*v1alpha1.CommitListOptions)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("options of gittargets/commits are %T", options))
	}
	limit := page.Limit
	switch {
	case limit == 0:
		limit = defaultCommits
	case limit < 0 || limit > maxCommits:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("limit: must be 1 to %d, not %d", maxCommits, limit))
	}
	target, err := r.config.Targets.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return r.config.History.Commits(ctx, target.(*v1alpha1.GitTarget), limit, page.Continue)
}

// Create implements rest.NamedCreater: the CommitRequest is created for the named
// target, as if it had been posted to commitrequests. So it goes through what
// guards those, admission policies on commitrequests included: there is no way
// around them.
func (r *CommitsREST) Create(ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	request, ok := obj.(*v1alpha1.CommitRequest)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("post a CommitRequest, not %T", obj))
	}
	switch request.Spec.GitTargetRef.Name {
	case "":
		request.Spec.GitTargetRef.Name = name
	case name:
	default:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("spec.gitTargetRef.name: must be %q, as in the path, or empty, not %q", name, request.Spec.GitTargetRef.Name))
	}
	if request.Name == "" && request.GenerateName == "" {
		request.GenerateName = name + "-"
	}
	admit, err := r.admit(ctx, request, options)
	if err != nil {
		return nil, err
	}
	if request.Spec.GitTargetRef.Name != name {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("spec.gitTargetRef.name: an admission plugin changed it from %q to %q", name, request.Spec.GitTargetRef.Name))
	}
	return r.config.Requests.Create(ctx, request, func(ctx context.Context, obj runtime.Object) error {
		if err := admit(ctx, obj); err != nil || validate == nil {
			return err
		}
		return validate(ctx, obj)
	}, options)
}

// admit has the mutating plugins change the request, and returns what asks the
// validating ones.
func (r *CommitsREST) admit(ctx context.Context, request *v1alpha1.CommitRequest, options *metav1.CreateOptions) (rest.ValidateObjectFunc, error) {
	chain := r.config.Admission
	if chain == nil {
		return rest.ValidateAllObjectFunc, nil
	}
	user, _ := genericapirequest.UserFrom(ctx)
	attributes := admission.NewAttributesRecord(request, nil,
		v1alpha1.SchemeGroupVersion.WithKind("CommitRequest"), request.Namespace, request.Name,
		v1alpha1.SchemeGroupVersion.WithResource("commitrequests"), "",
		admission.Create, options, dryrun.IsDryRun(options.DryRun), user)
	interfaces := admission.NewObjectInterfacesFromScheme(r.config.Scheme)
	if mutating, ok := chain.(admission.MutationInterface); ok && mutating.Handles(admission.Create) {
		if err := mutating.Admit(ctx, attributes, interfaces); err != nil {
			return nil, err
		}
	}
	return rest.AdmissionToValidateObjectFunc(chain, attributes, interfaces), nil
}
