// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package commitrequest

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/registry"
)

// History reads what was committed.
type History interface {
	// Commit returns the commit that a request produced, with its diff; request has
	// one. Its errors are API errors.
	Commit(ctx context.Context, request *v1alpha1.CommitRequest) (*v1alpha1.Commit, error)
}

// CommitsREST serves commitrequests/commits: the commit that a request produced,
// with its diff (DESIGN 4.5).
type CommitsREST struct {
	registry.Table
	requests rest.Getter
	history  History
}

var (
	_ rest.Getter         = (*CommitsREST)(nil)
	_ rest.TableConvertor = (*CommitsREST)(nil)
)

// NewCommitsREST returns the storage of commitrequests/commits.
func NewCommitsREST(requests rest.Getter, history History) *CommitsREST {
	return &CommitsREST{Table: registry.CommitTable(), requests: requests, history: history}
}

// New implements rest.Storage.
func (*CommitsREST) New() runtime.Object { return &v1alpha1.Commit{} }

// Destroy does nothing: all it uses is others' to close.
func (*CommitsREST) Destroy() {}

// Get implements rest.Getter. A request without a commit is NotFound, which says
// what it is waiting for or how it ended.
func (r *CommitsREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	obj, err := r.requests.Get(ctx, name, options)
	if err != nil {
		return nil, err
	}
	request, ok := obj.(*v1alpha1.CommitRequest)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("the storage of commitrequests returned %T", obj))
	}
	if request.Status.Commit == "" {
		missing := apierrors.NewNotFound(v1alpha1.Resource("commitrequests/commits"), name)
		missing.ErrStatus.Message = fmt.Sprintf("CommitRequest %q has no commit: %s", name, story(request.Status.Conditions))
		return nil, missing
	}
	return r.history.Commit(ctx, request)
}

// story is the reason and the message of Ready.
func story(conditions []metav1.Condition) string {
	for _, c := range conditions {
		if c.Type == v1alpha1.ConditionReady {
			if c.Message == "" {
				return c.Reason
			}
			return c.Reason + ": " + c.Message
		}
	}
	return "it was not looked at yet"
}
