// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// Permission is what the user of a request must have besides the right to make
// it (DESIGN 4.5): RBAC sees the kind and the name of an object, and not what its
// spec names.
type Permission struct {
	// For is what it is needed for, in words that end "user may not …".
	For string
	// Verbs that are needed, each.
	Verbs []string
	// On is what the verbs are on. User, Verb and ResourceRequest are filled in.
	On authorizer.AttributesRecord
}

// DeniedError says that the user lacks a permission. REST answers it with 403.
type DeniedError struct {
	Permission
	// Username is who was denied, Missing which of the Verbs.
	Username string
	Missing  []string
	// Reason is the authorizer's, for the first of Missing; it may be empty.
	Reason string
}

// Error names what is missing and the Role that gives it.
func (e *DeniedError) Error() string {
	on := e.On.Resource
	if e.On.Subresource != "" {
		on += "/" + e.On.Subresource
	}
	if e.On.APIGroup != "" {
		on += " of " + e.On.APIGroup
	}
	if e.On.Name != "" {
		on += fmt.Sprintf(" named %q", e.On.Name)
	}
	message := fmt.Sprintf("user %q may not %s: a Role in namespace %q must allow %s on %s",
		e.Username, e.For, e.On.Namespace, strings.Join(e.Missing, ", "), on)
	if e.Reason != "" {
		message += " (" + e.Reason + ")"
	}
	return message
}

// Check asks by whether the user of ctx has p. The error is *DeniedError when
// not, and 401 or 500 when that cannot be told.
func (p Permission) Check(ctx context.Context, by authorizer.UnconditionalAuthorizer) error {
	user, ok := genericapirequest.UserFrom(ctx)
	if !ok {
		return apierrors.NewUnauthorized("the request carries no user: authenticate to " + p.For)
	}
	denied := &DeniedError{Permission: p, Username: user.GetName()}
	asked := p.On
	asked.User, asked.ResourceRequest = user, true
	for _, asked.Verb = range p.Verbs {
		decision, reason, err := by.Authorize(ctx, asked)
		switch {
		case decision == authorizer.DecisionAllow:
		case err != nil:
			return apierrors.NewInternalError(fmt.Errorf("permission to %s: %w", p.For, err))
		default:
			if denied.Missing == nil {
				denied.Reason = reason
			}
			denied.Missing = append(denied.Missing, asked.Verb)
		}
	}
	if denied.Missing != nil {
		return denied
	}
	return nil
}
