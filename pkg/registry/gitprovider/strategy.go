// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gitprovider is the registry of GitProviders (DESIGN 4.1).
package gitprovider

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/git"
	"github.com/kommit-dev/kommit/pkg/registry"
)

const shortestTimeout = time.Second

type strategy struct {
	registry.Strategy
	// allowInsecureHTTP accepts http:// URLs.
	allowInsecureHTTP bool
}

var _ registry.ResourceStrategy = strategy{}

func newStrategy(scheme *runtime.Scheme, allowInsecureHTTP bool) strategy {
	return strategy{registry.NewStrategy(scheme), allowInsecureHTTP}
}

// PrepareForCreate drops a status that a client sent.
func (strategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	provider := obj.(*v1alpha1.GitProvider)
	provider.Status = v1alpha1.GitProviderStatus{}
	provider.Generation = 1
}

// PrepareForUpdate keeps the status and counts a changed spec.
func (strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	provider, stored := obj.(*v1alpha1.GitProvider), old.(*v1alpha1.GitProvider)
	provider.Status = stored.Status
	provider.Generation = registry.Generation(stored, provider.Spec, stored.Spec)
}

// Validate checks a new provider.
func (s strategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	provider := obj.(*v1alpha1.GitProvider)
	errs := s.ValidateNew(ctx, provider)
	if provider.Spec.URL != "" { // else its tag says so
		errs = append(errs, registry.GitError(urlPath, git.CheckURL(provider.Spec.URL, s.allowInsecureHTTP))...)
	}
	return append(errs, validateSpec(&provider.Spec)...)
}

// WarningsOnCreate names what is accepted and will hardly be meant.
func (strategy) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	return warnings(&obj.(*v1alpha1.GitProvider).Spec)
}

// ValidateUpdate checks a changed provider. A URL that was accepted once does
// not stand in the way of other changes when the server has become stricter.
func (s strategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	provider, stored := obj.(*v1alpha1.GitProvider), old.(*v1alpha1.GitProvider)
	errs := s.ValidateChanged(ctx, obj, old)
	if provider.Spec.URL != stored.Spec.URL && provider.Spec.URL != "" {
		errs = append(errs, registry.GitError(urlPath, git.CheckURL(provider.Spec.URL, s.allowInsecureHTTP))...)
	}
	return append(errs, validateSpec(&provider.Spec)...)
}

// WarningsOnUpdate names what is accepted and will hardly be meant.
func (strategy) WarningsOnUpdate(_ context.Context, obj, _ runtime.Object) []string {
	return warnings(&obj.(*v1alpha1.GitProvider).Spec)
}

var (
	specPath = field.NewPath("spec")
	urlPath  = specPath.Child("url")
)

func validateSpec(spec *v1alpha1.GitProviderSpec) field.ErrorList {
	var errs field.ErrorList
	for i, glob := range spec.AllowedBranches {
		at := specPath.Child("allowedBranches").Index(i)
		if glob == "" {
			errs = append(errs, field.Required(at, `must not be empty: "*" allows every branch without a slash; an empty list allows all`))
		} else if _, err := path.Match(glob, ""); err != nil {
			errs = append(errs, field.Invalid(at, glob, `must be a glob such as "main" or "release/*": close every "[" and end with no "\"`))
		}
	}
	errs = append(errs, validateIdentity(spec.Commit.Committer, specPath.Child("commit", "committer"))...)
	if domain := spec.Commit.Author.EmailDomain; domain != "" {
		for _, message := range validation.IsDNS1123Subdomain(strings.ToLower(domain)) {
			errs = append(errs, field.Invalid(specPath.Child("commit", "author", "emailDomain"), domain, message))
		}
	}
	if spec.Timeout == nil || spec.Timeout.Duration < shortestTimeout {
		value := ""
		if spec.Timeout != nil {
			value = spec.Timeout.Duration.String()
		}
		errs = append(errs, field.Invalid(specPath.Child("timeout"), value, fmt.Sprintf("must be at least %s", shortestTimeout)))
	}
	return errs
}

// validateIdentity refuses what would end the field of a commit header.
func validateIdentity(identity v1alpha1.GitIdentity, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if unfit(identity.Name, false) {
		errs = append(errs, field.Invalid(path.Child("name"), identity.Name, `must be UTF-8 without "<", ">" or control characters, and not blank`))
	}
	if unfit(identity.Email, true) {
		errs = append(errs, field.Invalid(path.Child("email"), identity.Email, `must be UTF-8 without "<", ">", white space or control characters`))
	}
	return errs
}

func unfit(s string, noSpace bool) bool {
	return strings.TrimSpace(s) == "" || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool {
		return r == '<' || r == '>' || unicode.IsControl(r) || noSpace && unicode.IsSpace(r)
	})
}

func warnings(spec *v1alpha1.GitProviderSpec) []string {
	lower := strings.ToLower(spec.URL)
	switch {
	case spec.SecretRef != nil && strings.HasPrefix(lower, "http://"):
		return []string{"spec.url: http sends the credentials of spec.secretRef unprotected; use https or ssh"}
	case spec.SecretRef == nil && !strings.HasPrefix(lower, "http://") && !strings.HasPrefix(lower, "https://"):
		return []string{"spec.secretRef: SSH needs a Secret with a private key and known_hosts"}
	}
	return nil
}

func keepSpec(obj, old runtime.Object) {
	obj.(*v1alpha1.GitProvider).Spec = old.(*v1alpha1.GitProvider).Spec
}
