// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package gitprovider

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/registry"
)

// admission decides whether a valid provider may be stored (DESIGN 4.5).
type admission struct {
	authorizer authorizer.UnconditionalAuthorizer
}

// permit refuses a use of a Secret by those who may not get it: the server reads
// it with rights of its own.
func (a admission) permit(ctx context.Context, obj, old runtime.Object) error {
	provider := obj.(*v1alpha1.GitProvider)
	var before v1alpha1.GitProviderSpec
	if stored, ok := old.(*v1alpha1.GitProvider); ok {
		before = stored.Spec
	}
	for _, secret := range newUses(provider.Spec, before) {
		err := registry.Permission{
			For:   fmt.Sprintf("use Secret %q", secret),
			Verbs: []string{"get"},
			On:    authorizer.AttributesRecord{APIVersion: "v1", Resource: "secrets", Namespace: provider.Namespace, Name: secret},
		}.Check(ctx, a.authorizer)
		if err != nil {
			return err
		}
	}
	return nil
}

// newUses are the Secrets that spec uses for what before did not. Another URL is
// a new use of the credentials: that is where they are sent.
func newUses(spec, before v1alpha1.GitProviderSpec) []string {
	var secrets []string
	if name := credentials(spec); name != "" && (name != credentials(before) || spec.URL != before.URL) {
		secrets = append(secrets, name)
	}
	if name := signingKey(spec); name != "" && name != signingKey(before) {
		secrets = append(secrets, name)
	}
	return secrets
}

func credentials(spec v1alpha1.GitProviderSpec) string {
	if spec.SecretRef == nil {
		return ""
	}
	return spec.SecretRef.Name
}

func signingKey(spec v1alpha1.GitProviderSpec) string {
	if spec.Commit.Signing == nil {
		return ""
	}
	return spec.Commit.Signing.SecretRef.Name
}
