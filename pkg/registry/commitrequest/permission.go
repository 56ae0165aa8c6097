// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package commitrequest

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/registry"
)

// admission decides whether a valid request may be stored. It is asked on every
// create and change, however it arrives, and has no effects.
type admission struct {
	authorizer authorizer.UnconditionalAuthorizer
	windows    WindowTable
	stopping   <-chan struct{}
}

// permit refuses every request while the server stops, else one whose creator may
// not save to its target, and one that an earlier save of theirs stands in the way
// of. A stored request has passed, and its spec is immutable.
func (a admission) permit(ctx context.Context, obj, old runtime.Object) error {
	if old != nil {
		return nil
	}
	select {
	case <-a.stopping:
		return errStopping()
	default:
	}
	request := obj.(*v1alpha1.CommitRequest)
	if err := a.authorize(ctx, request); err != nil {
		return err
	}
	return a.first(request)
}

// stoppingRetryAfter is what a server that stops asks clients to wait for its
// successor, in seconds: about as long as a Deployment takes to replace a pod.
const stoppingRetryAfter = 10

// errStopping is for a save that this process would leave to the next one. Clients
// send it again by themselves, as they see by Retry-After that nothing came of it.
func errStopping() error {
	err := apierrors.NewServiceUnavailable("the server is stopping and takes no new saves: save again when it is back")
	err.ErrStatus.Details = &metav1.StatusDetails{
		Group:             v1alpha1.GroupName,
		Kind:              "commitrequests",
		RetryAfterSeconds: stoppingRetryAfter,
	}
	return err
}

// authorize asks for create on gittargets/commits of the target by its name
// (DESIGN 4.5): RBAC on commitrequests cannot see which target is meant.
func (a admission) authorize(ctx context.Context, request *v1alpha1.CommitRequest) error {
	target := request.Spec.GitTargetRef.Name
	return registry.Permission{
		For:   fmt.Sprintf("save to GitTarget %q", target),
		Verbs: []string{"create"},
		On: authorizer.AttributesRecord{
			APIGroup:    v1alpha1.GroupName,
			APIVersion:  v1alpha1.SchemeGroupVersion.Version,
			Resource:    "gittargets",
			Subresource: "commits",
			Namespace:   request.Namespace,
			Name:        target,
		},
	}.Check(ctx, a.authorizer)
}

// CauseSaveInProgress is the type of the cause in the 409 of a save that an
// earlier one stands in the way of (W10).
const CauseSaveInProgress metav1.CauseType = v1alpha1.ReasonSaveInProgress

// first refuses a save while an earlier one of the same author waits or collects
// (W10). The window engine decides for those who get past at the same moment.
func (a admission) first(request *v1alpha1.CommitRequest) error {
	_, earlier := a.windows.Binding(targetOf(request), request.Spec.RequestedBy.Username, request.Spec.Window.Attach)
	if earlier == "" {
		return nil
	}
	message := fmt.Sprintf("the earlier save %q to GitTarget %q is still under way: wait for it, delete it while it waits, or save with attach: Next while it collects",
		earlier, request.Spec.GitTargetRef.Name)
	conflict := apierrors.NewConflict(v1alpha1.Resource("commitrequests"), request.Name, fmt.Errorf("%s", message))
	conflict.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type:    CauseSaveInProgress,
		Message: message,
		Field:   targetPath.String(),
	}}
	return conflict
}
