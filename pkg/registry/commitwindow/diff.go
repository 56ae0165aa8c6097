// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package commitwindow

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// Differ says what closing a window now would commit, by the code that commits.
type Differ interface {
	// Diff returns an API error: NotFound when the window is not open.
	Diff(ctx context.Context, namespace, name string) (*v1alpha1.CommitWindowDiff, error)
}

// DiffREST serves commitwindows/diff.
type DiffREST struct{ windows Differ }

var _ rest.Getter = (*DiffREST)(nil)

// NewDiffREST returns the storage of commitwindows/diff.
func NewDiffREST(windows Differ) *DiffREST { return &DiffREST{windows: windows} }

// New implements rest.Storage.
func (*DiffREST) New() runtime.Object { return &v1alpha1.CommitWindowDiff{} }

// Destroy does nothing.
func (*DiffREST) Destroy() {}

// Get implements rest.Getter.
func (r *DiffREST) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	return r.windows.Diff(ctx, genericapirequest.NamespaceValue(ctx), name)
}
