// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kommit-dev/kommit/pkg/git"
)

// ValidateDuration checks that d is set and between low and high, both allowed.
func ValidateDuration(d *metav1.Duration, low, high time.Duration, path *field.Path) field.ErrorList {
	switch {
	case d == nil: // the default was not applied
		return field.ErrorList{field.Required(path, fmt.Sprintf("must be from %s to %s", Seconds(low), Seconds(high)))}
	case d.Duration < low || d.Duration > high:
		return field.ErrorList{field.Invalid(path, d.Duration.String(), fmt.Sprintf("must be from %s to %s", Seconds(low), Seconds(high)))}
	}
	return nil
}

// ValidateIdleTimeout checks that idle is from low to longest; unset is allowed.
func ValidateIdleTimeout(idle, longest *metav1.Duration, low time.Duration, path *field.Path) field.ErrorList {
	switch {
	case idle == nil:
		return nil
	case idle.Duration < low:
		return field.ErrorList{field.Invalid(path, idle.Duration.String(), fmt.Sprintf("must be at least %s", Seconds(low)))}
	case longest != nil && idle.Duration > longest.Duration:
		return field.ErrorList{field.Invalid(path, idle.Duration.String(),
			fmt.Sprintf("must be at most maxDuration, which is %s: shorten this one or lengthen maxDuration", longest.Duration))}
	}
	return nil
}

// Seconds writes a whole number of minutes or hours without its zeros: 5m, not
// 5m0s.
func Seconds(d time.Duration) string {
	switch {
	case d == 0:
		return "0s"
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return d.String()
}

// GitError is the field error for what one of package git's checks said; nil for
// nil. A value that may hold a credential is not repeated.
func GitError(path *field.Path, err error) field.ErrorList {
	if err == nil {
		return nil
	}
	invalid := &git.InvalidError{Reason: err.Error()}
	_ = errors.As(err, &invalid)
	return field.ErrorList{field.Invalid(path, invalid.Value, invalid.Reason)}
}

// Immutable is the error for a changed field; nil when it did not change.
func Immutable(path *field.Path, value, old, cure string) field.ErrorList {
	if value == old {
		return nil
	}
	return field.ErrorList{field.Forbidden(path, fmt.Sprintf("is immutable (it is %q): %s", old, cure))}
}
