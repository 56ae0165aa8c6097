// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/apitesting/roundtrip"
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
