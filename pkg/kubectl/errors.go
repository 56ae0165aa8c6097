// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// UsageError is a command line that cannot be run.
type UsageError struct {
	// Command as the user types it.
	Command string
	// Err is what is wrong and how to put it right.
	Err error
}

// Error is what is wrong, and where the help is.
func (e *UsageError) Error() string {
	return fmt.Sprintf("%v\nSee '%s --help' for usage.", e.Err, e.Command)
}

// Unwrap returns Err.
func (e *UsageError) Unwrap() error { return e.Err }

// TargetError says that a request without --target has no one GitTarget to go to.
type TargetError struct {
	Namespace string
	// Choices are the names of the GitTargets there: none, or two and more.
	Choices []string
}

// Error lists the choices.
func (e *TargetError) Error() string {
	if len(e.Choices) == 0 {
		return fmt.Sprintf("there is no GitTarget in namespace %q: create one, or name another namespace with -n", e.Namespace)
	}
	return fmt.Sprintf("namespace %q has more than one GitTarget, choose with --target: %s",
		e.Namespace, strings.Join(e.Choices, ", "))
}

// ErrorText is what kubectl prints for err: the server's refusals with their
// reason, an invalid object field by field, an unreachable server by its address,
// and "error: " before everything else.
func ErrorText(err error) string {
	var status apierrors.APIStatus
	var transport *url.Error
	switch {
	case errors.As(err, &status):
		return statusText(err, status.Status())
	case errors.As(err, &transport):
		if errors.Is(transport, syscall.ECONNREFUSED) {
			return fmt.Sprintf("The connection to the server %s was refused - did you specify the right host or port?", host(transport.URL))
		}
		return fmt.Sprintf("Unable to connect to the server: %v", transport.Err)
	}
	return fmt.Sprintf("error: %v", err)
}

func statusText(err error, status metav1.Status) string {
	switch status.Reason {
	case metav1.StatusReasonInvalid:
		return invalidText(status)
	case metav1.StatusReasonUnauthorized:
		return fmt.Sprintf("error: You must be logged in to the server (%s)", status.Message)
	case metav1.StatusReasonUnknown:
		return fmt.Sprintf("Error from server: %v", err)
	default:
		return fmt.Sprintf("Error from server (%s): %v", status.Reason, err)
	}
}

// invalidText gives each of several faults a line of its own.
func invalidText(status metav1.Status) string {
	details := status.Details
	if details == nil {
		return "The request is invalid: " + status.Message
	}
	subject := fmt.Sprintf("The %s %q is invalid", details.Kind, details.Name)
	var faults []string
	for _, cause := range details.Causes {
		if fault := fmt.Sprintf("%s: %s", cause.Field, cause.Message); !slices.Contains(faults, fault) {
			faults = append(faults, fault)
		}
	}
	switch len(faults) {
	case 0:
		return subject
	case 1:
		return subject + ": " + faults[0]
	}
	return subject + ": \n* " + strings.Join(faults, "\n* ")
}

func host(rawURL string) string {
	if parsed, err := url.Parse(rawURL); err == nil {
		return parsed.Host
	}
	return rawURL
}
