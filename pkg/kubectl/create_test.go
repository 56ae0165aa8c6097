// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

func seconds(n int) *metav1.Duration {
	return &metav1.Duration{Duration: time.Duration(n) * time.Second}
}

// complete parses args as the command line after the command's name and
// completes the options with it.
func complete(t *testing.T, form string, args ...string) (*CreateOptions, error) {
	t.Helper()
	isolate(t)
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	config := genericclioptions.NewConfigFlags(true)
	o := NewCreateOptions(config, streams)
	cmd := saveCommand(form, o)
	config.AddFlags(cmd.PersistentFlags())
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatalf("flags: %v", err)
	}
	return o, o.Complete(cmd, cmd.Flags().Args())
}

func TestComplete(t *testing.T) {
	const form = "kubectl create commitrequest"
	for _, tc := range []struct {
		name      string
		args      []string
		request   v1alpha1.CommitRequest // what is asked for, the target left out
		options   metav1.CreateOptions
		namespace string
	}{{
		name:      "nothing set: nothing sent but what finds a name",
		request:   v1alpha1.CommitRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "save-"}},
		options:   metav1.CreateOptions{FieldManager: "kubectl-create", FieldValidation: "Strict"},
		namespace: "default",
	}, {
		name: "everything set",
		args: []string{
			"fix-1", "-n", "shop", "-m", "Raise limits", "--attach", "Next", "--attach-timeout=30s", "--idle-timeout=1s",
			"--max-duration", "10s", "--when-nothing-to-commit=CommitEmpty", "--dry-run=server", "--field-manager=me", "--validate=warn",
		},
		request: v1alpha1.CommitRequest{
			ObjectMeta: metav1.ObjectMeta{Name: "fix-1", Namespace: "shop"},
			Spec: v1alpha1.CommitRequestSpec{
				Message:             "Raise limits",
				WhenNothingToCommit: v1alpha1.NothingCommitEmpty,
				Window: v1alpha1.RequestWindow{
					Attach: v1alpha1.AttachNext, AttachTimeout: seconds(30), IdleTimeout: seconds(1), MaxDuration: seconds(10),
				},
			},
		},
		options:   metav1.CreateOptions{DryRun: []string{"All"}, FieldManager: "me", FieldValidation: "Warn"},
		namespace: "shop",
	}, {
		name: "0s is not the same as unset",
		args: []string{"--attach-timeout=0s", "--max-duration=0"},
		request: v1alpha1.CommitRequest{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "save-"},
			Spec:       v1alpha1.CommitRequestSpec{Window: v1alpha1.RequestWindow{AttachTimeout: seconds(0), MaxDuration: seconds(0)}},
		},
		options:   metav1.CreateOptions{FieldManager: "kubectl-create", FieldValidation: "Strict"},
		namespace: "default",
	}, {
		name: "-m again is a paragraph, commas are text",
		args: []string{"-m", "Subject, short", "-m", "First.", "-m", "Second."},
		request: v1alpha1.CommitRequest{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "save-"},
			Spec:       v1alpha1.CommitRequestSpec{Message: "Subject, short\n\nFirst.\n\nSecond."},
		},
		options:   metav1.CreateOptions{FieldManager: "kubectl-create", FieldValidation: "Strict"},
		namespace: "default",
	}, {
		name:      "client dry run sends no dryRun, for it sends nothing",
		args:      []string{"--dry-run=client", "--validate=false"},
		request:   v1alpha1.CommitRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "save-"}},
		options:   metav1.CreateOptions{FieldManager: "kubectl-create", FieldValidation: "Ignore"},
		namespace: "default",
	}} {
		t.Run(tc.name, func(t *testing.T) {
			o, err := complete(t, form, tc.args...)
			if err != nil {
				t.Fatal(err)
			}
			if err := o.Validate(); err != nil {
				t.Fatal(err)
			}
			want := tc.request
			want.TypeMeta = metav1.TypeMeta{APIVersion: "kommit.dev/v1alpha1", Kind: "CommitRequest"}
			want.Spec.GitTargetRef.Name = "prod"
			if diff := cmp.Diff(&want, o.request("prod")); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.options, o.options); diff != "" {
				t.Errorf("create options (-want +got):\n%s", diff)
			}
			if o.namespace != tc.namespace {
				t.Errorf("namespace = %q, want %q", o.namespace, tc.namespace)
			}
		})
	}
}

func TestUsageErrors(t *testing.T) {
	const form = "kubectl create commitrequest"
	for name, args := range map[string][]string{
		"two names":                       {"a", "b"},
		"unknown dry run":                 {"--dry-run=maybe"},
		"unknown validation":              {"--validate=lax"},
		"unknown attach policy":           {"--attach=Previous"},
		"attach policy in lower case":     {"--attach=next"},
		"Next with nothing to wait for":   {"--attach=Next", "--attach-timeout=0s"},
		"negative attach timeout":         {"--attach-timeout=-1s"},
		"negative idle timeout":           {"--idle-timeout=-1s"},
		"negative max duration":           {"--max-duration=-1s"},
		"idle timeout above max duration": {"--idle-timeout=3s", "--max-duration=2s"},
		"unknown policy":                  {"--when-nothing-to-commit=Fail"},
		"CommitEmpty without a message":   {"--when-nothing-to-commit=CommitEmpty"},
		"message of white space":          {"-m", " \n", "-m", ""},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := complete(t, form, args...)
			if err == nil {
				err = o.Validate()
			}
			var usage *UsageError
			if !errors.As(err, &usage) {
				t.Fatalf("error = %v, want a UsageError", err)
			}
			if usage.Command != form {
				t.Errorf("points at the help of %q, want %q", usage.Command, form)
			}
		})
	}
}

// What cannot be known without the server's bounds is left to the server.
func TestValidateLeavesUpperBoundsToTheServer(t *testing.T) {
	o, err := complete(t, "kubectl commit", "--attach-timeout=24h", "--max-duration=24h", "-m", "x")
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Validate(); err != nil {
		t.Errorf("Validate: %v", err)
	}
}

func TestJoinParagraphs(t *testing.T) {
	for _, tc := range []struct {
		paragraphs []string
		want       string
	}{
		{nil, ""},
		{[]string{"one\n"}, "one\n"}, // verbatim
		{[]string{"  one"}, "  one"},
		{[]string{"one", "two"}, "one\n\ntwo"},
		{[]string{"one\n", "two\n"}, "one\n\ntwo\n"},
		{[]string{"one\ntwo", "three"}, "one\ntwo\n\nthree"},
		{[]string{"", "two"}, "two"},
	} {
		if got := joinParagraphs(tc.paragraphs); got != tc.want {
			t.Errorf("joinParagraphs(%q) = %q, want %q", tc.paragraphs, got, tc.want)
		}
	}
}
