// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func duration(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

// The values are those of DESIGN 4, and of the constants that clients use.
func TestDefaults(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name      string
		obj, want runtime.Object
	}{
		{"4.4 CommitRequest, all unset", &CommitRequest{}, &CommitRequest{Spec: CommitRequestSpec{
			Window: RequestWindow{
				Attach:        AttachCurrentOrNext,
				AttachTimeout: duration(DefaultAttachTimeout),
				MaxDuration:   duration(DefaultRequestMaxDuration),
				// idleTimeout stays unset: silence closes nothing (W11).
			},
			WhenNothingToCommit:     NothingResolve,
			TTLSecondsAfterFinished: new(DefaultTTLSecondsAfterFinished),
		}}},
		{"4.4 CommitRequest, zeros are values", &CommitRequest{Spec: CommitRequestSpec{
			Window:                  RequestWindow{Attach: AttachNext, AttachTimeout: duration(0), MaxDuration: duration(0)},
			WhenNothingToCommit:     NothingCommitEmpty,
			TTLSecondsAfterFinished: new(int32(0)),
		}}, &CommitRequest{Spec: CommitRequestSpec{
			Window:                  RequestWindow{Attach: AttachNext, AttachTimeout: duration(0), MaxDuration: duration(0)},
			WhenNothingToCommit:     NothingCommitEmpty,
			TTLSecondsAfterFinished: new(int32(0)),
		}}},
		{"4.2 GitTarget, all unset", &GitTarget{}, &GitTarget{Spec: GitTargetSpec{
			Attribution: AttributionAudit,
			Window:      WindowOptions{IdleTimeout: duration(5 * time.Minute), MaxDuration: duration(time.Hour)},
		}}},
		{"4.2 GitTarget, a short maxDuration bounds the default idleTimeout",
			&GitTarget{Spec: GitTargetSpec{Window: WindowOptions{MaxDuration: duration(time.Minute)}}},
			&GitTarget{Spec: GitTargetSpec{
				Attribution: AttributionAudit,
				Window:      WindowOptions{IdleTimeout: duration(time.Minute), MaxDuration: duration(time.Minute)},
			}}},
		{"4.1 GitProvider, all unset", &GitProvider{}, &GitProvider{Spec: GitProviderSpec{
			Timeout: duration(DefaultProviderTimeout),
			Commit: CommitOptions{
				Committer: GitIdentity{Name: DefaultCommitterName, Email: DefaultCommitterEmail},
				Author:    AuthorOptions{EmailDomain: DefaultEmailDomain},
			},
		}}},
		{"4.1 GitProvider, the committer's name alone",
			&GitProvider{Spec: GitProviderSpec{Commit: CommitOptions{Committer: GitIdentity{Name: "Release Bot"}}}},
			&GitProvider{Spec: GitProviderSpec{
				Timeout: duration(time.Minute),
				Commit: CommitOptions{
					Committer: GitIdentity{Name: "Release Bot", Email: "kommit@kommit.invalid"},
					Author:    AuthorOptions{EmailDomain: "kommit.invalid"},
				},
			}}},
		{"4.3 WatchRule has none", &WatchRule{}, &WatchRule{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			scheme.Default(test.obj)
			if diff := cmp.Diff(test.want, test.obj); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			again := test.obj.DeepCopyObject()
			scheme.Default(again)
			if diff := cmp.Diff(test.obj, again); diff != "" {
				t.Errorf("defaulting twice changes more\n%s", diff)
			}
		})
	}
}

func TestDefaultConstants(t *testing.T) {
	if DefaultAttachTimeout != 5*time.Second || DefaultRequestMaxDuration != 2*time.Second || DefaultTTLSecondsAfterFinished != 604800 {
		t.Error("DESIGN 4.4: attachTimeout 5s, maxDuration 2s, ttl 7 days")
	}
}
