// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"net/url"
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/apitesting/roundtrip"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/randfill"

	"github.com/kommit-dev/kommit/apis/kommit/install"
	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// Decoding applies the defaults, so that what goes around must have them.
func defaulted(serializer.CodecFactory) []any {
	return []any{
		func(obj *v1alpha1.CommitRequest, c randfill.Continue) {
			c.FillNoCustom(obj)
			v1alpha1.SetObjectDefaults_CommitRequest(obj)
		},
		func(obj *v1alpha1.GitProvider, c randfill.Continue) {
			c.FillNoCustom(obj)
			v1alpha1.SetObjectDefaults_GitProvider(obj)
		},
		func(obj *v1alpha1.GitTarget, c randfill.Continue) {
			c.FillNoCustom(obj)
			v1alpha1.SetObjectDefaults_GitTarget(obj)
		},
	}
}

func TestRoundTrip(t *testing.T) {
	roundtrip.RoundTripTestForAPIGroup(t, install.Install, fuzzer.MergeFuzzerFuncs(defaulted))
}

func TestCommitListOptions(t *testing.T) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	codec := runtime.NewParameterCodec(scheme)
	for query, want := range map[string]v1alpha1.CommitListOptions{
		"":                                  {},
		"limit=5&continue=x":                {Limit: 5, Continue: "x"},
		"limit=-1":                          {Limit: -1}, // the handler says what is wrong
		"resourceVersion=7&labelSelector=a": {},
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		var got v1alpha1.CommitListOptions
		if err := codec.DecodeParameters(values, v1alpha1.SchemeGroupVersion, &got); err != nil || got != want {
			t.Errorf("%q is read as %+v, %v", query, got, err)
		}
	}
	if err := codec.DecodeParameters(url.Values{"limit": {"many"}}, v1alpha1.SchemeGroupVersion, &v1alpha1.CommitListOptions{}); err == nil {
		t.Error("limit=many is accepted")
	}
}

func TestFieldsOfCommitWindows(t *testing.T) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	kind := v1alpha1.SchemeGroupVersion.WithKind("CommitWindow")
	for label, supported := range map[string]bool{
		"metadata.name": true, "metadata.namespace": true, "status.author": true, "status.gitTargetRef.name": true,
		"status.bytes": false, "spec.author": false,
	} {
		if _, _, err := scheme.ConvertFieldLabel(kind, label, "x"); (err == nil) != supported {
			t.Errorf("%s: %v, want supported to be %t", label, err, supported)
		}
	}
}
