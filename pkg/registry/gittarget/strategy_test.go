// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package gittarget

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kommit-dev/kommit/apis/kommit/install"
	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

func newTarget(change func(*v1alpha1.GitTarget)) *v1alpha1.GitTarget {
	target := &v1alpha1.GitTarget{
		ObjectMeta: metav1.ObjectMeta{Name: "prod", Namespace: "team"},
		Spec:       v1alpha1.GitTargetSpec{GitProviderRef: v1alpha1.LocalObjectReference{Name: "origin"}, Branch: "main", Path: "prod"},
	}
	change(target)
	v1alpha1.SetObjectDefaults_GitTarget(target)
	return target
}

func unchanged(*v1alpha1.GitTarget) {}

func testStrategy() strategy {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return newStrategy(scheme)
}

func window(idle, longest time.Duration) func(*v1alpha1.GitTarget) {
	return func(t *v1alpha1.GitTarget) {
		t.Spec.Window = v1alpha1.WindowOptions{IdleTimeout: &metav1.Duration{Duration: idle}, MaxDuration: &metav1.Duration{Duration: longest}}
	}
}

func TestValidate(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*v1alpha1.GitTarget)
		want   string // the field of the only error
	}{
		{"all defaults", unchanged, ""},
		{"the root", func(t *v1alpha1.GitTarget) { t.Spec.Path = "" }, ""},
		{"a branch with slashes", func(t *v1alpha1.GitTarget) { t.Spec.Branch = "release/1.2" }, ""},
		{"no provider", func(t *v1alpha1.GitTarget) { t.Spec.GitProviderRef.Name = "" }, "spec.gitProviderRef.name"},
		{"no branch", func(t *v1alpha1.GitTarget) { t.Spec.Branch = "" }, "spec.branch"},
		{"a full ref", func(t *v1alpha1.GitTarget) { t.Spec.Branch = "refs/heads/main" }, "spec.branch"},
		{"a branch that is none", func(t *v1alpha1.GitTarget) { t.Spec.Branch = "a..b" }, "spec.branch"},
		{"an absolute path", func(t *v1alpha1.GitTarget) { t.Spec.Path = "/prod" }, "spec.path"},
		{"a path out of the repository", func(t *v1alpha1.GitTarget) { t.Spec.Path = "prod/../.." }, "spec.path"},
		{"a path into .git", func(t *v1alpha1.GitTarget) { t.Spec.Path = ".git/hooks" }, "spec.path"},
		{"a path that is not clean", func(t *v1alpha1.GitTarget) { t.Spec.Path = "prod/" }, "spec.path"},
		{"unknown attribution", func(t *v1alpha1.GitTarget) { t.Spec.Attribution = "Guess" }, "spec.attribution"},
		{"the shortest window", window(time.Second, time.Second), ""},
		{"the longest window", window(24*time.Hour, 24*time.Hour), ""},
		{"idleTimeout of 0s", window(0, time.Hour), "spec.window.idleTimeout"},
		{"idleTimeout above maxDuration", window(2*time.Minute, time.Minute), "spec.window.idleTimeout"},
		{"maxDuration below 1s", window(time.Second, time.Millisecond), "spec.window.maxDuration"},
		{"maxDuration above 24h", window(time.Minute, 25*time.Hour), "spec.window.maxDuration"},
	} {
		t.Run(test.name, func(t *testing.T) {
			errs := testStrategy().Validate(t.Context(), newTarget(test.change))
			// An idleTimeout that is too long for a maxDuration that is too short is
			// told as well.
			if test.want == "" && len(errs) != 0 || test.want != "" && (len(errs) == 0 || errs[0].Field != test.want) {
				t.Errorf("got %v, want an error at %q", errs, test.want)
			}
		})
	}
}

func TestWhereTheFilesGoIsImmutable(t *testing.T) {
	for _, test := range []struct {
		want   string
		change func(*v1alpha1.GitTarget)
	}{
		{"spec.gitProviderRef.name", func(t *v1alpha1.GitTarget) { t.Spec.GitProviderRef.Name = "other" }},
		{"spec.branch", func(t *v1alpha1.GitTarget) { t.Spec.Branch = "other" }},
		{"spec.path", func(t *v1alpha1.GitTarget) { t.Spec.Path = "other" }},
		{"", func(t *v1alpha1.GitTarget) { t.Spec.Suspend = true }},
		{"", func(t *v1alpha1.GitTarget) { t.Spec.Prune = true }},
		{"", func(t *v1alpha1.GitTarget) { t.Spec.Attribution = v1alpha1.AttributionNone }},
		{"", window(time.Minute, time.Hour)},
	} {
		errs := testStrategy().ValidateUpdate(t.Context(), newTarget(test.change), newTarget(unchanged))
		if test.want == "" && len(errs) != 0 || test.want != "" && (len(errs) != 1 || errs[0].Field != test.want) {
			t.Errorf("got %v, want an error at %q", errs, test.want)
		}
	}
}

func TestClientsWriteNoStatusAndNoGeneration(t *testing.T) {
	s := testStrategy()
	created := newTarget(func(t *v1alpha1.GitTarget) { t.Status.Commit, t.Generation = "forged", 7 })
	s.PrepareForCreate(t.Context(), created)
	if created.Status.Commit != "" || created.Generation != 1 {
		t.Errorf("create: status %+v, generation %d", created.Status, created.Generation)
	}

	stored := created.DeepCopy()
	stored.Status.Commit = "0123"
	relabelled := stored.DeepCopy()
	relabelled.Labels, relabelled.Status.Commit = map[string]string{"a": "b"}, "forged"
	s.PrepareForUpdate(t.Context(), relabelled, stored)
	if diff := cmp.Diff(stored.Status, relabelled.Status); diff != "" || relabelled.Generation != 1 {
		t.Errorf("update of metadata: generation %d, status %s", relabelled.Generation, diff)
	}
	suspended := stored.DeepCopy()
	suspended.Spec.Suspend = true
	s.PrepareForUpdate(t.Context(), suspended, stored)
	if suspended.Generation != 2 {
		t.Errorf("update of spec: generation %d, want 2", suspended.Generation)
	}
}
