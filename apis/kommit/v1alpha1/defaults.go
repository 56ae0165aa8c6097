// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The defaults of DESIGN 4, where a field is left unset.
const (
	DefaultAttachTimeout           = 5 * time.Second
	DefaultRequestMaxDuration      = 2 * time.Second
	DefaultTTLSecondsAfterFinished = int32(7 * 24 * 60 * 60)
	DefaultWindowIdleTimeout       = 5 * time.Minute
	DefaultWindowMaxDuration       = time.Hour
	DefaultProviderTimeout         = time.Minute
	DefaultCommitterName           = "kommit"
	DefaultCommitterEmail          = "kommit@kommit.invalid"
	DefaultEmailDomain             = "kommit.invalid"
)

func init() {
	localSchemeBuilder.Register(RegisterDefaults)
}

// SetDefaults_WindowOptions fills what was left unset (DESIGN 4.2); all other
// defaults are constants and stand as +default tags on their fields. A
// maxDuration below the default idleTimeout bounds that too, so that setting
// one field never makes the other invalid.
func SetDefaults_WindowOptions(w *WindowOptions) {
	if w.MaxDuration == nil {
		w.MaxDuration = &metav1.Duration{Duration: DefaultWindowMaxDuration}
	}
	if w.IdleTimeout == nil {
		w.IdleTimeout = &metav1.Duration{Duration: min(DefaultWindowIdleTimeout, w.MaxDuration.Duration)}
	}
}
