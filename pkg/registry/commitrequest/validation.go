// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package commitrequest

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/registry"
)

// longest bounds attachTimeout and maxDuration.
const longest = 5 * time.Minute

var (
	specPath   = field.NewPath("spec")
	windowPath = specPath.Child("window")
	targetPath = specPath.Child("gitTargetRef", "name")
)

// validateSpec checks what the validation tags cannot say.
func validateSpec(spec *v1alpha1.CommitRequestSpec) field.ErrorList {
	errs := validateMessage(spec.Message, specPath.Child("message"))
	if spec.WhenNothingToCommit == v1alpha1.NothingCommitEmpty && spec.Message == "" {
		errs = append(errs, field.Required(specPath.Child("message"), "CommitEmpty records the message in an empty commit: set a message, or whenNothingToCommit to Resolve"))
	}

	window := spec.Window
	errs = append(errs, registry.ValidateDuration(window.AttachTimeout, 0, longest, windowPath.Child("attachTimeout"))...)
	errs = append(errs, registry.ValidateDuration(window.MaxDuration, 0, longest, windowPath.Child("maxDuration"))...)
	errs = append(errs, registry.ValidateIdleTimeout(window.IdleTimeout, window.MaxDuration, 0, windowPath.Child("idleTimeout"))...)
	if window.Attach == v1alpha1.AttachNext && window.AttachTimeout != nil && window.AttachTimeout.Duration == 0 {
		errs = append(errs, field.Invalid(windowPath.Child("attachTimeout"), "0s", "must be more than 0s with attach: Next, which never takes the window that is open already; or use CurrentOrNext"))
	}
	if spec.RequestedBy.Username == "" {
		errs = append(errs, field.Required(specPath.Child("requestedBy", "username"), "the request was not authenticated, so that the commit would have no author"))
	}
	return errs
}

// validateMessage checks what is used verbatim (C10). Its length is a tag's.
func validateMessage(message string, path *field.Path) field.ErrorList {
	if message == "" {
		return nil
	}
	if !utf8.ValidString(message) {
		return field.ErrorList{field.Invalid(path, strings.ToValidUTF8(message, "�"), "must be valid UTF-8")}
	}
	if strings.TrimSpace(message) == "" {
		return field.ErrorList{field.Invalid(path, message, "must not be blank: leave it out to have one generated")}
	}
	at := 0
	for _, r := range message {
		at++
		if unicode.IsControl(r) && r != '\n' {
			return field.ErrorList{field.Invalid(path, message, fmt.Sprintf("must not contain control characters other than newline, as %U at character %d is", r, at))}
		}
	}
	return nil
}

func (s strategy) validateTarget(ctx context.Context, request *v1alpha1.CommitRequest) field.ErrorList {
	target, err := s.targets.Get(ctx, request.Namespace, request.Spec.GitTargetRef.Name)
	switch {
	case err == nil && target.DeletionTimestamp != nil:
		return field.ErrorList{field.Invalid(targetPath, target.Name, "is being deleted: what was collected for it is saved without being asked")}
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return field.ErrorList{field.NotFound(targetPath, request.Spec.GitTargetRef.Name)}
	}
	return field.ErrorList{field.InternalError(targetPath, err)}
}

// uselessCombinations are valid, and have a part without effect.
func uselessCombinations(spec *v1alpha1.CommitRequestSpec) []string {
	var warnings []string
	if idle, whole := spec.Window.IdleTimeout, spec.Window.MaxDuration; idle != nil && whole != nil {
		switch {
		case idle.Duration == 0:
			warnings = append(warnings, fmt.Sprintf("%s: 0s is the same as leaving it out: silence closes nothing", windowPath.Child("idleTimeout")))
		case idle.Duration == whole.Duration:
			warnings = append(warnings, fmt.Sprintf("%s: has no effect, maxDuration closes the window no later", windowPath.Child("idleTimeout")))
		}
	}
	if ttl := spec.TTLSecondsAfterFinished; ttl != nil && *ttl == 0 {
		warnings = append(warnings, fmt.Sprintf("%s: with 0 the request is deleted before its result can be read", specPath.Child("ttlSecondsAfterFinished")))
	}
	return warnings
}
