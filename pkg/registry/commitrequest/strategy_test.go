// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package commitrequest

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/kommit-dev/kommit/apis/kommit/install"
	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/registry"
)

// windows are what is open, by author.
type windows map[string]struct{ open, inProgress string }

func (w windows) Binding(_ types.NamespacedName, username string, _ v1alpha1.AttachPolicy) (string, string) {
	return w[username].open, w[username].inProgress
}

// targets are the stored GitTargets of every namespace, by name.
type targets map[string]*v1alpha1.GitTarget

func (s targets) Get(_ context.Context, _, name string) (*v1alpha1.GitTarget, error) {
	if target, ok := s[name]; ok {
		return target, nil
	}
	return nil, apierrors.NewNotFound(v1alpha1.Resource("gittargets"), name)
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return scheme
}

func newTestStrategy(w windows) strategy {
	return strategy{
		Strategy: registry.NewStrategy(newScheme()),
		windows:  w,
		targets: targets{
			"prod":   &v1alpha1.GitTarget{},
			"asleep": &v1alpha1.GitTarget{Spec: v1alpha1.GitTargetSpec{Suspend: true}},
		},
	}
}

func as(username string) context.Context {
	ctx := genericapirequest.WithNamespace(genericapirequest.NewContext(), "team")
	return genericapirequest.WithUser(ctx, &user.DefaultInfo{
		Name: username, UID: "u-1", Groups: []string{"devs"}, Extra: map[string][]string{"scopes": {"a", "b"}},
	})
}

// newRequest is a valid, defaulted request, changed by change.
func newRequest(change func(*v1alpha1.CommitRequest)) *v1alpha1.CommitRequest {
	request := &v1alpha1.CommitRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "save", Namespace: "team"},
		Spec:       v1alpha1.CommitRequestSpec{GitTargetRef: v1alpha1.LocalObjectReference{Name: "prod"}},
	}
	if change != nil {
		change(request)
	}
	v1alpha1.SetObjectDefaults_CommitRequest(request)
	return request
}

func TestCreateStampsWhatIsTheServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStrategy(nil)
		request := newRequest(func(r *v1alpha1.CommitRequest) {
			r.Spec.RequestedBy = v1alpha1.UserInfo{Username: "mallory", Groups: []string{"system:masters"}}
			r.Status = v1alpha1.CommitRequestStatus{Commit: "forged", WindowRef: &v1alpha1.LocalObjectReference{Name: "forged"}}
			r.Spec.Window.AttachTimeout = &metav1.Duration{Duration: 7 * time.Second}
		})
		s.PrepareForCreate(as("alice"), request)

		if diff := cmp.Diff(v1alpha1.UserInfo{
			Username: "alice", UID: "u-1", Groups: []string{"devs"},
			Extra: map[string]v1alpha1.ExtraValue{"scopes": {"a", "b"}},
		}, request.Spec.RequestedBy); diff != "" {
			t.Errorf("spec.requestedBy: -want +got\n%s", diff)
		}
		if want := time.Now().Add(7 * time.Second); !request.Status.AttachDeadline.Time.Equal(want) {
			t.Errorf("status.attachDeadline is %s, want %s", request.Status.AttachDeadline, want)
		}
		if request.Status.Commit != "" || request.Status.WindowRef != nil {
			t.Errorf("a status sent by the client was kept: %+v", request.Status)
		}
		if request.Generation != 1 || request.Status.ObservedGeneration != 1 {
			t.Errorf("generation %d, observed %d, want 1 and 1", request.Generation, request.Status.ObservedGeneration)
		}
		wantReason(t, request, v1alpha1.ReasonWaitingForWindow)
		if c := meta.FindStatusCondition(request.Status.Conditions, v1alpha1.ConditionAttributed); c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonAuthenticated {
			t.Errorf("Attributed is %+v, want True, Authenticated", c)
		}
	})
}

func TestCreateNamesTheWindowThatIsOpen(t *testing.T) {
	s := newTestStrategy(windows{"alice": {open: "prod-alice-1"}})
	for username, want := range map[string]struct{ window, reason string }{
		"alice": {"prod-alice-1", v1alpha1.ReasonCollectingWindow},
		"bob":   {"", v1alpha1.ReasonWaitingForWindow},
	} {
		request := newRequest(nil)
		s.PrepareForCreate(as(username), request)
		got := ""
		if request.Status.WindowRef != nil {
			got = request.Status.WindowRef.Name
		}
		if got != want.window {
			t.Errorf("%s: windowRef is %q, want %q", username, got, want.window)
		}
		wantReason(t, request, want.reason)
	}
}

// PrepareForCreate is pure: it runs on dry run and on every retry (4.6).
func TestCreateTwiceIsTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStrategy(windows{"alice": {open: "w"}})
		once := newRequest(nil)
		s.PrepareForCreate(as("alice"), once)
		twice := once.DeepCopy()
		s.PrepareForCreate(as("alice"), twice)
		if diff := cmp.Diff(once, twice); diff != "" {
			t.Errorf("-once +twice\n%s", diff)
		}
	})
}

func wantReason(t *testing.T, request *v1alpha1.CommitRequest, want string) {
	t.Helper()
	ready := meta.FindStatusCondition(request.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionFalse || ready.Reason != want {
		t.Errorf("Ready is %+v, want False, %s", ready, want)
	}
}

func TestValidate(t *testing.T) {
	seconds := func(n int) *metav1.Duration { return &metav1.Duration{Duration: time.Duration(n) * time.Second} }
	message := func(m string) func(*v1alpha1.CommitRequest) {
		return func(r *v1alpha1.CommitRequest) { r.Spec.Message = m }
	}
	window := func(w v1alpha1.RequestWindow) func(*v1alpha1.CommitRequest) {
		return func(r *v1alpha1.CommitRequest) { r.Spec.Window = w }
	}
	for _, test := range []struct {
		name   string
		change func(*v1alpha1.CommitRequest)
		want   string // type and field of each error
	}{
		{"all defaults", nil, ""},
		{"message", message("Raise the limit\n\nIt was too low: 限界.\n"), ""},
		{"message of 1024 characters, not bytes", message(strings.Repeat("限", 1024)), ""},
		{"message of 1025 characters", message(strings.Repeat("限", 1025)), "FieldValueTooLong spec.message"},
		{"blank message", message(" \n "), "FieldValueInvalid spec.message"},
		{"message of a no-break space", message(" "), "FieldValueInvalid spec.message"},
		{"message with a bell", message("ring\a"), "FieldValueInvalid spec.message"},
		{"message with a tab", message("a\tb"), "FieldValueInvalid spec.message"},
		{"message with a carriage return", message("a\r\nb"), "FieldValueInvalid spec.message"},
		{"message with NUL", message("a\x00b"), "FieldValueInvalid spec.message"},
		{"message with a C1 control character", message("a\u0085b"), "FieldValueInvalid spec.message"},
		{"message that is not UTF-8", message("a\xffb"), "FieldValueInvalid spec.message"},

		{"no target", func(r *v1alpha1.CommitRequest) { r.Spec.GitTargetRef.Name = "" }, "FieldValueRequired spec.gitTargetRef.name"},
		{"unknown target", func(r *v1alpha1.CommitRequest) { r.Spec.GitTargetRef.Name = "elsewhere" }, "FieldValueNotFound spec.gitTargetRef.name"},

		{"all of the window", window(v1alpha1.RequestWindow{Attach: v1alpha1.AttachNext, AttachTimeout: seconds(300), IdleTimeout: seconds(300), MaxDuration: seconds(300)}), ""},
		{"zeros", window(v1alpha1.RequestWindow{AttachTimeout: seconds(0), IdleTimeout: seconds(0), MaxDuration: seconds(0)}), ""},
		{"unknown attach", window(v1alpha1.RequestWindow{Attach: "Previous"}), "FieldValueNotSupported spec.window.attach"},
		{"attachTimeout below 0s", window(v1alpha1.RequestWindow{AttachTimeout: seconds(-1)}), "FieldValueInvalid spec.window.attachTimeout"},
		{"attachTimeout above 5m", window(v1alpha1.RequestWindow{AttachTimeout: seconds(301)}), "FieldValueInvalid spec.window.attachTimeout"},
		{"maxDuration below 0s", window(v1alpha1.RequestWindow{MaxDuration: seconds(-1)}), "FieldValueInvalid spec.window.maxDuration"},
		{"maxDuration above 5m", window(v1alpha1.RequestWindow{MaxDuration: seconds(301)}), "FieldValueInvalid spec.window.maxDuration"},
		{"idleTimeout below 0s", window(v1alpha1.RequestWindow{IdleTimeout: seconds(-1)}), "FieldValueInvalid spec.window.idleTimeout"},
		{"idleTimeout above the default maxDuration", window(v1alpha1.RequestWindow{IdleTimeout: seconds(3)}), "FieldValueInvalid spec.window.idleTimeout"},
		{"W7 Next never takes what is open already", window(v1alpha1.RequestWindow{Attach: v1alpha1.AttachNext, AttachTimeout: seconds(0)}), "FieldValueInvalid spec.window.attachTimeout"},

		{"W14 CommitEmpty without a message", func(r *v1alpha1.CommitRequest) { r.Spec.WhenNothingToCommit = v1alpha1.NothingCommitEmpty }, "FieldValueRequired spec.message"},
		{"unknown whenNothingToCommit", func(r *v1alpha1.CommitRequest) { r.Spec.WhenNothingToCommit = "Fail" }, "FieldValueNotSupported spec.whenNothingToCommit"},
		{"negative ttl", func(r *v1alpha1.CommitRequest) { r.Spec.TTLSecondsAfterFinished = new(int32(-1)) }, "FieldValueInvalid spec.ttlSecondsAfterFinished"},
		{"a name that is none", func(r *v1alpha1.CommitRequest) { r.Name = "Save It" }, "FieldValueInvalid metadata.name"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newTestStrategy(nil)
			request := newRequest(test.change)
			s.PrepareForCreate(as("alice"), request)
			if got := list(s.Validate(as("alice"), request)); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func list(errs field.ErrorList) string {
	var lines []string
	for _, err := range errs {
		lines = append(lines, string(err.Type)+" "+err.Field)
	}
	return strings.Join(lines, ", ")
}

func TestARequestWithoutUserIsRefused(t *testing.T) {
	s := newTestStrategy(nil)
	ctx := genericapirequest.WithNamespace(genericapirequest.NewContext(), "team")
	request := newRequest(nil)
	s.PrepareForCreate(ctx, request)
	if got, want := list(s.Validate(ctx, request)), "FieldValueRequired spec.requestedBy.username"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestUpdate(t *testing.T) {
	s := newTestStrategy(nil)
	stored := newRequest(nil)
	s.PrepareForCreate(as("alice"), stored)
	for _, test := range []struct {
		name   string
		change func(*v1alpha1.CommitRequest)
		want   string
	}{
		{"nothing", func(*v1alpha1.CommitRequest) {}, ""},
		{"metadata", func(r *v1alpha1.CommitRequest) { r.Labels = map[string]string{"a": "b"} }, ""},
		{"a manifest applied again, which knows no requester", func(r *v1alpha1.CommitRequest) { r.Spec.RequestedBy = v1alpha1.UserInfo{} }, ""},
		{"another requester", func(r *v1alpha1.CommitRequest) { r.Spec.RequestedBy.Username = "bob" }, ""},
		{"status", func(r *v1alpha1.CommitRequest) { r.Status.Commit = "forged" }, ""},
		{"message", func(r *v1alpha1.CommitRequest) { r.Spec.Message = "other" }, "FieldValueForbidden spec"},
		{"ttl", func(r *v1alpha1.CommitRequest) { r.Spec.TTLSecondsAfterFinished = new(int32(1)) }, "FieldValueForbidden spec"},
	} {
		t.Run(test.name, func(t *testing.T) {
			changed := stored.DeepCopy()
			test.change(changed)
			s.PrepareForUpdate(as("bob"), changed, stored)
			if diff := cmp.Diff(stored.Status, changed.Status); diff != "" {
				t.Errorf("status: -want +got\n%s", diff)
			}
			if diff := cmp.Diff(stored.Spec.RequestedBy, changed.Spec.RequestedBy); diff != "" {
				t.Errorf("spec.requestedBy: -want +got\n%s", diff)
			}
			if got := list(s.ValidateUpdate(as("bob"), changed, stored)); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	s := newTestStrategy(nil)
	for _, test := range []struct {
		name   string
		change func(*v1alpha1.CommitRequest)
		want   string // the field that the only warning starts with
	}{
		{"none", nil, ""},
		{"suspended target", func(r *v1alpha1.CommitRequest) { r.Spec.GitTargetRef.Name = "asleep" }, "spec.gitTargetRef.name"},
		{"idleTimeout of 0s", func(r *v1alpha1.CommitRequest) { r.Spec.Window.IdleTimeout = &metav1.Duration{} }, "spec.window.idleTimeout"},
		{"idleTimeout as long as maxDuration", func(r *v1alpha1.CommitRequest) {
			r.Spec.Window.IdleTimeout = &metav1.Duration{Duration: 2 * time.Second}
		}, "spec.window.idleTimeout"},
		{"ttl of 0", func(r *v1alpha1.CommitRequest) { r.Spec.TTLSecondsAfterFinished = new(int32(0)) }, "spec.ttlSecondsAfterFinished"},
	} {
		t.Run(test.name, func(t *testing.T) {
			warnings := s.WarningsOnCreate(as("alice"), newRequest(test.change))
			switch {
			case test.want == "" && len(warnings) != 0:
				t.Errorf("unexpected: %q", warnings)
			case test.want != "" && (len(warnings) != 1 || !strings.HasPrefix(warnings[0], test.want+": ")):
				t.Errorf("got %q, want one that starts with %s", warnings, test.want)
			}
			for _, w := range warnings {
				if len(w) > 120 {
					t.Errorf("%d characters, of 120 that are advised: %s", len(w), w)
				}
			}
		})
	}
}
