// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package install registers the kommit.dev API for a server.
package install

import (
	"fmt"
	"net/url"
	"strconv"

	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// Install adds v1alpha1 to scheme, and the same Go types as the internal
// version: what is stored, validated and served is one type, so nothing is
// converted. Clients need v1alpha1.AddToScheme only. It panics when scheme holds
// other types under these names, which is a programming error.
func Install(scheme *runtime.Scheme) {
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	scheme.AddKnownTypes(schema.GroupVersion{Group: v1alpha1.GroupName, Version: runtime.APIVersionInternal},
		&v1alpha1.Commit{}, &v1alpha1.CommitList{}, &v1alpha1.CommitListOptions{},
		&v1alpha1.CommitRequest{}, &v1alpha1.CommitRequestList{},
		&v1alpha1.CommitWindow{}, &v1alpha1.CommitWindowList{}, &v1alpha1.CommitWindowDiff{},
		&v1alpha1.GitProvider{}, &v1alpha1.GitProviderList{},
		&v1alpha1.GitTarget{}, &v1alpha1.GitTargetList{},
		&v1alpha1.WatchRule{}, &v1alpha1.WatchRuleList{},
	)
	utilruntime.Must(scheme.SetVersionPriority(v1alpha1.SchemeGroupVersion))
	utilruntime.Must(scheme.AddFieldLabelConversionFunc(v1alpha1.SchemeGroupVersion.WithKind("CommitWindow"), commitWindowField))
	utilruntime.Must(scheme.AddConversionFunc((*url.Values)(nil), (*v1alpha1.CommitListOptions)(nil), func(in, out any, _ conversion.Scope) error {
		return commitListOptions(*in.(*url.Values), out.(*v1alpha1.CommitListOptions))
	}))
}

// commitWindowField names the fields that windows can be selected by.
func commitWindowField(label, value string) (internalLabel, internalValue string, err error) {
	switch label {
	case v1alpha1.CommitWindowTargetField, v1alpha1.CommitWindowAuthorField:
		return label, value, nil
	}
	return runtime.DefaultMetaV1FieldSelectorConversion(label, value)
}

// commitListOptions reads the query of a list of commits. Of what other lists know
// besides, nothing has a meaning here.
func commitListOptions(query url.Values, out *v1alpha1.CommitListOptions) error {
	out.Continue = query.Get("continue")
	limit := query.Get("limit")
	if limit == "" {
		return nil
	}
	var err error
	if out.Limit, err = strconv.ParseInt(limit, 10, 64); err != nil {
		return fmt.Errorf("limit: must be a number, not %q", limit)
	}
	return nil
}
