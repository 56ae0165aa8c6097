// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package commitrequest is the registry of CommitRequests (DESIGN 4.4 and 4.6).
//
// Invariant: nothing here acts. A strategy runs on dry run and on every retry, so
// it reads the window table and stamps what it read onto the object; attaching is
// for whoever sees the stored object.
package commitrequest

import (
	"context"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/registry"
	"github.com/kommit-dev/kommit/pkg/window"
)

// WindowTable is what the strategy sees of the windows. It is read-only, and
// must be safe for concurrent use.
type WindowTable interface {
	// Binding says which open window a request by username made now would attach to,
	// and which earlier save of theirs it would be refused for (W10). Empty: none.
	Binding(target types.NamespacedName, username string, attach v1alpha1.AttachPolicy) (window string, inProgress string)
}

// targetGetter reads a GitTarget as it is stored now; an error for which
// apierrors.IsNotFound holds when there is none.
type targetGetter interface {
	Get(ctx context.Context, namespace, name string) (*v1alpha1.GitTarget, error)
}

type strategy struct {
	registry.Strategy
	windows WindowTable
	targets targetGetter
}

var _ registry.ResourceStrategy = strategy{}

// PrepareForCreate stamps who asks, until when they wait, for which window, and
// the first conditions. What the client sent in their place is lost.
func (s strategy) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	request := obj.(*v1alpha1.CommitRequest)
	now := time.Now()
	request.Generation = 1
	request.Spec.RequestedBy = requestedBy(ctx)
	deadline := metav1.NewMicroTime(now)
	if timeout := request.Spec.Window.AttachTimeout; timeout != nil {
		deadline = metav1.NewMicroTime(now.Add(timeout.Duration))
	}
	progress := window.Progress{Reason: v1alpha1.ReasonWaitingForWindow}
	name, _ := s.windows.Binding(targetOf(request), request.Spec.RequestedBy.Username, request.Spec.Window.Attach)
	if name != "" {
		progress = window.Progress{Reason: v1alpha1.ReasonCollectingWindow, Window: name}
	}
	request.Status = window.Status(v1alpha1.CommitRequestStatus{AttachDeadline: &deadline}, request.Generation, progress, now)
}

// PrepareForUpdate keeps what is not the client's: the status and the requester.
// A manifest that is applied again knows neither.
func (strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	request, stored := obj.(*v1alpha1.CommitRequest), old.(*v1alpha1.CommitRequest)
	request.Status = stored.Status
	request.Spec.RequestedBy = stored.Spec.RequestedBy
}

// Validate checks a new request.
func (s strategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	request := obj.(*v1alpha1.CommitRequest)
	errs := s.ValidateNew(ctx, request)
	errs = append(errs, validateSpec(&request.Spec)...)
	if request.Spec.GitTargetRef.Name != "" { // else its tag says so
		errs = append(errs, s.validateTarget(ctx, request)...)
	}
	return errs
}

// WarningsOnCreate names what is accepted and will hardly be meant.
func (s strategy) WarningsOnCreate(ctx context.Context, obj runtime.Object) []string {
	request := obj.(*v1alpha1.CommitRequest)
	warnings := uselessCombinations(&request.Spec)
	if target, err := s.targets.Get(ctx, request.Namespace, request.Spec.GitTargetRef.Name); err == nil && target.Spec.Suspend {
		warnings = append(warnings, "spec.gitTargetRef.name: the GitTarget is suspended, this save will fail")
	}
	return warnings
}

// ValidateUpdate refuses every change of the spec: a save is asked for once.
// Metadata may change.
func (strategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	request, stored := obj.(*v1alpha1.CommitRequest), old.(*v1alpha1.CommitRequest)
	if apiequality.Semantic.DeepEqual(request.Spec, stored.Spec) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("spec"), "is immutable: create another CommitRequest to save again")}
}

// GetResetFields keeps server-side apply from owning what the server stamps.
func (strategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return registry.ResetFields(fieldpath.MakePathOrDie("status"), fieldpath.MakePathOrDie("spec", "requestedBy"))
}

func requestedBy(ctx context.Context) v1alpha1.UserInfo {
	user, ok := genericapirequest.UserFrom(ctx)
	if !ok {
		return v1alpha1.UserInfo{} // which validation refuses
	}
	info := v1alpha1.UserInfo{Username: user.GetName(), UID: user.GetUID(), Groups: user.GetGroups()}
	if extra := user.GetExtra(); len(extra) > 0 {
		info.Extra = make(map[string]v1alpha1.ExtraValue, len(extra))
		for key, values := range extra {
			info.Extra[key] = values
		}
	}
	return info
}

func targetOf(request *v1alpha1.CommitRequest) types.NamespacedName {
	return types.NamespacedName{Namespace: request.Namespace, Name: request.Spec.GitTargetRef.Name}
}

func keepSpec(obj, old runtime.Object) {
	obj.(*v1alpha1.CommitRequest).Spec = old.(*v1alpha1.CommitRequest).Spec
}
