// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package gittarget

import (
	"context"
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kommit-dev/kommit/apis/kommit/install"
	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// stored answers for the storages of gittargets and commitrequests, whose real
// ones the server's own tests use, and keeps what reaches it.
type stored struct {
	rest.Creater
	created []*v1alpha1.CommitRequest
	options *metav1.CreateOptions
	pages   []string
}

func (*stored) Get(_ context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	if name != "prod" {
		return nil, apierrors.NewNotFound(v1alpha1.Resource("gittargets"), name)
	}
	return &v1alpha1.GitTarget{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
}

func (s *stored) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	if err := validate(ctx, obj); err != nil {
		return nil, err
	}
	s.created, s.options = append(s.created, obj.(*v1alpha1.CommitRequest)), options
	return obj, nil
}

func (s *stored) Commits(_ context.Context, target *v1alpha1.GitTarget, limit int64, token string) (*v1alpha1.CommitList, error) {
	s.pages = append(s.pages, fmt.Sprintf("%s %d %s", target.Name, limit, token))
	return &v1alpha1.CommitList{}, nil
}

// policy stands for admission plugins: it notes what it is asked about, adds a
// label, and denies where a label says so.
type policy struct {
	asked    []string
	redirect bool
}

var (
	_ admission.MutationInterface   = (*policy)(nil)
	_ admission.ValidationInterface = (*policy)(nil)
)

func (*policy) Handles(admission.Operation) bool { return true }

func (p *policy) note(step string, a admission.Attributes) {
	p.asked = append(p.asked, fmt.Sprintf("%s %s %s/%s as %s dry=%t", step, a.GetOperation(), a.GetResource().Resource, a.GetSubresource(), a.GetUserInfo().GetName(), a.IsDryRun()))
}

func (p *policy) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	p.note("admit", a)
	request := a.GetObject().(*v1alpha1.CommitRequest)
	if request.Labels == nil {
		request.Labels = map[string]string{}
	}
	request.Labels["admitted"] = "yes"
	if p.redirect {
		request.Spec.GitTargetRef.Name = "elsewhere"
	}
	return nil
}

func (p *policy) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	p.note("validate", a)
	if a.GetObject().(*v1alpha1.CommitRequest).Labels["forbidden"] != "" {
		return admission.NewForbidden(a, errors.New("by policy"))
	}
	return nil
}

func newCommits(t *testing.T, p *policy) (*CommitsREST, *stored, context.Context) {
	t.Helper()
	scheme := runtime.NewScheme()
	install.Install(scheme)
	s := &stored{}
	config := CommitsConfig{Targets: s, History: s, Requests: s, Scheme: scheme}
	if p != nil {
		config.Admission = p
	}
	ctx := genericapirequest.WithUser(genericapirequest.WithNamespace(t.Context(), "team"), &user.DefaultInfo{Name: "alice"})
	return NewCommitsREST(config), s, ctx
}

func request(name, target string, labels map[string]string) *v1alpha1.CommitRequest {
	return &v1alpha1.CommitRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "team", Labels: labels},
		Spec:       v1alpha1.CommitRequestSpec{GitTargetRef: v1alpha1.LocalObjectReference{Name: target}},
	}
}

func TestPostIsASave(t *testing.T) {
	r, s, ctx := newCommits(t, nil)
	for _, r2 := range []*v1alpha1.CommitRequest{request("mine", "prod", nil), request("", "", nil)} {
		if _, err := r.Create(ctx, "prod", r2, nil, &metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.created[0]; got.Name != "mine" || got.GenerateName != "" || got.Spec.GitTargetRef.Name != "prod" {
		t.Errorf("created %+v", got)
	}
	if got := s.created[1]; got.Name != "" || got.GenerateName != "prod-" || got.Spec.GitTargetRef.Name != "prod" {
		t.Errorf("created %+v", got)
	}
	if _, err := r.Create(ctx, "prod", request("mine", "stage", nil), nil, &metav1.CreateOptions{}); !apierrors.IsBadRequest(err) {
		t.Errorf("another target than the path's: %v", err)
	}
	if _, err := r.Create(ctx, "prod", &v1alpha1.GitTarget{}, nil, &metav1.CreateOptions{}); !apierrors.IsBadRequest(err) {
		t.Errorf("another kind: %v", err)
	}
	if len(s.created) != 2 {
		t.Errorf("%d were created, want 2", len(s.created))
	}
}

// What guards commitrequests is not to be got around by the subresource.
func TestPostGoesThroughAdmissionOfCommitRequests(t *testing.T) {
	p := &policy{}
	r, s, ctx := newCommits(t, p)
	dry := &metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	if _, err := r.Create(ctx, "prod", request("mine", "", nil), nil, dry); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"admit CREATE commitrequests/ as alice dry=true", "validate CREATE commitrequests/ as alice dry=true"} {
		if len(p.asked) <= i || p.asked[i] != want {
			t.Fatalf("asked %q, want %q", p.asked, want)
		}
	}
	if s.created[0].Labels["admitted"] != "yes" || s.options != dry {
		t.Errorf("created %+v with %+v", s.created[0], s.options)
	}
	if _, err := r.Create(ctx, "prod", request("mine", "", map[string]string{"forbidden": "x"}), nil, &metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("denied by policy: %v", err)
	}
	var own error = apierrors.NewForbidden(v1alpha1.Resource("gittargets"), "prod", nil)
	if _, err := r.Create(ctx, "prod", request("mine", "", nil), func(context.Context, runtime.Object) error { return own }, &metav1.CreateOptions{}); !errors.Is(err, own) {
		t.Errorf("admission of the subresource itself: %v", err)
	}
	p.redirect = true
	if _, err := r.Create(ctx, "prod", request("mine", "", nil), nil, &metav1.CreateOptions{}); !apierrors.IsBadRequest(err) {
		t.Errorf("sent elsewhere by a plugin: %v", err)
	}
	if len(s.created) != 1 {
		t.Errorf("%d were created, want 1", len(s.created))
	}
}

func TestPagesOfCommits(t *testing.T) {
	r, s, ctx := newCommits(t, nil)
	for _, test := range []struct {
		target  string
		options v1alpha1.CommitListOptions
		want    string
		err     func(error) bool
	}{
		{target: "prod", want: "prod 50 "},
		{target: "prod", options: v1alpha1.CommitListOptions{Limit: 500, Continue: "x"}, want: "prod 500 x"},
		{target: "prod", options: v1alpha1.CommitListOptions{Limit: 501}, err: apierrors.IsBadRequest},
		{target: "prod", options: v1alpha1.CommitListOptions{Limit: -1}, err: apierrors.IsBadRequest},
		{target: "stage", err: apierrors.IsNotFound},
	} {
		s.pages = nil
		_, err := r.Get(ctx, test.target, &test.options)
		switch {
		case test.err != nil:
			if !test.err(err) || len(s.pages) > 0 {
				t.Errorf("%s %+v: %v, read %q", test.target, test.options, err, s.pages)
			}
		case err != nil || len(s.pages) != 1 || s.pages[0] != test.want:
			t.Errorf("%s %+v: %v, read %q, want %q", test.target, test.options, err, s.pages, test.want)
		}
	}
}
