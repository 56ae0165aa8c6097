// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package commitwindow serves the windows that are open now (DESIGN 4.5). They
// are in the memory of the process that collects them: there is no store behind
// this resource, nothing can be written to it, and its resourceVersions are those
// of one process. They grow from one process to the next; a watch from an earlier
// one is told "410 Expired" and lists again.
package commitwindow

import (
	"context"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/registry"
)

// Table holds the open windows. Each has the revision of its last change as its
// resourceVersion; revisions grow by each change to any window, and never repeat,
// across processes either. Safe for concurrent use; what it returns is the
// caller's.
type Table interface {
	// Windows returns those of a namespace, "" being all, and the revision that they
	// were read at.
	Windows(namespace string) (windows []v1alpha1.CommitWindow, revision uint64)
	// Window returns one; false when it is not open.
	Window(namespace, name string) (*v1alpha1.CommitWindow, bool)
	// Since returns what a watch that has seen everything up to a revision is to be
	// sent: for each window that changed, the one event that leads to its present
	// state, in the order of the last changes. upTo is where that leads to, next is
	// closed at the next change. Not ok: the revision is too long ago to be known, or
	// of another process.
	Since(namespace string, revision uint64) (events []watch.Event, upTo uint64, next <-chan struct{}, ok bool)
}

// REST serves commitwindows: get, list and watch.
type REST struct {
	registry.Table
	windows Table
}

var (
	_ rest.Storage              = (*REST)(nil)
	_ rest.Scoper               = (*REST)(nil)
	_ rest.Getter               = (*REST)(nil)
	_ rest.Lister               = (*REST)(nil)
	_ rest.Watcher              = (*REST)(nil)
	_ rest.SingularNameProvider = (*REST)(nil)
	_ rest.ShortNamesProvider   = (*REST)(nil)
	_ rest.CategoriesProvider   = (*REST)(nil)
)

// NewREST returns the storage of commitwindows.
func NewREST(windows Table) *REST { return &REST{Table: newTable(), windows: windows} }

// New implements rest.Storage.
func (*REST) New() runtime.Object { return &v1alpha1.CommitWindow{} }

// NewList implements rest.Lister.
func (*REST) NewList() runtime.Object { return &v1alpha1.CommitWindowList{} }

// Destroy does nothing: the windows are their owner's.
func (*REST) Destroy() {}

// NamespaceScoped implements rest.Scoper.
func (*REST) NamespaceScoped() bool { return true }

// GetSingularName implements rest.SingularNameProvider.
func (*REST) GetSingularName() string { return "commitwindow" }

// ShortNames are the names that kubectl accepts beside the full one.
func (*REST) ShortNames() []string { return []string{"cwin"} }

// Categories make `kubectl get kommit` list the windows, too.
func (*REST) Categories() []string { return []string{"kommit"} }

// Get implements rest.Getter. What it returns is never older than any
// resourceVersion that was given out, so options ask for nothing.
func (r *REST) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	window, ok := r.windows.Window(genericapirequest.NamespaceValue(ctx), name)
	if !ok {
		return nil, apierrors.NewNotFound(v1alpha1.Resource("commitwindows"), name)
	}
	return window, nil
}

// List implements rest.Lister. There are no pages: windows are few, and a state
// of the past is not kept.
func (r *REST) List(ctx context.Context, options *metainternalversion.ListOptions) (runtime.Object, error) {
	if options == nil {
		options = &metainternalversion.ListOptions{}
	}
	if options.Continue != "" {
		return nil, apierrors.NewResourceExpired("commitwindows are listed without pages: list again without continue")
	}
	asked, err := storage.APIObjectVersioner{}.ParseResourceVersion(options.ResourceVersion)
	if err != nil {
		return nil, err
	}
	windows, revision := r.windows.Windows(genericapirequest.NamespaceValue(ctx))
	switch {
	case asked > revision:
		return nil, storage.NewTooLargeResourceVersionError(asked, revision, 1)
	case options.ResourceVersionMatch == metav1.ResourceVersionMatchExact && asked != revision:
		return nil, apierrors.NewResourceExpired("past states of commitwindows are not kept: list without resourceVersionMatch=Exact")
	}
	list := &v1alpha1.CommitWindowList{
		ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatUint(revision, 10)},
		Items:    []v1alpha1.CommitWindow{},
	}
	selects := selectorOf(options)
	for i := range windows {
		if selects.matches(&windows[i]) {
			list.Items = append(list.Items, windows[i])
		}
	}
	return list, nil
}

// selector is what a list or a watch is limited to. A window's labels and fields
// stay as they are from its opening on.
type selector struct {
	labels labels.Selector
	fields fields.Selector
}

func selectorOf(options *metainternalversion.ListOptions) selector {
	s := selector{labels: labels.Everything(), fields: fields.Everything()}
	if options.LabelSelector != nil {
		s.labels = options.LabelSelector
	}
	if options.FieldSelector != nil {
		s.fields = options.FieldSelector
	}
	return s
}

func (s selector) matches(w *v1alpha1.CommitWindow) bool {
	return s.labels.Matches(labels.Set(w.Labels)) && s.fields.Matches(fields.Set{
		"metadata.name":                  w.Name,
		"metadata.namespace":             w.Namespace,
		v1alpha1.CommitWindowTargetField: w.Status.GitTargetRef.Name,
		v1alpha1.CommitWindowAuthorField: w.Status.Author,
	})
}
