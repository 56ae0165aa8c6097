// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package branch

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/generated/clientset/versioned/fake"
	clientset "github.com/kommit-dev/kommit/generated/clientset/versioned/typed/kommit/v1alpha1"
)

// stored stands for the informer of GitTargets: one that is never behind.
type stored struct {
	ctx    context.Context
	client clientset.KommitV1alpha1Interface
}

func (s stored) Get(name types.NamespacedName) (*v1alpha1.GitTarget, error) {
	return s.client.GitTargets(name.Namespace).Get(s.ctx, name.Name, metav1.GetOptions{})
}

func (s stored) List() ([]*v1alpha1.GitTarget, error) { return nil, nil } // none overlaps

// TestC12AttributionDegraded: a target says by itself when its changes cannot find
// their authors, why, and when they can again; one without attribution never does.
func TestC12AttributionDegraded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		newTarget := func(name string, mode v1alpha1.AttributionMode) *v1alpha1.GitTarget {
			return &v1alpha1.GitTarget{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), Generation: 3, Finalizers: []string{v1alpha1.FlushFinalizer}},
				Spec:       v1alpha1.GitTargetSpec{GitProviderRef: v1alpha1.LocalObjectReference{Name: "git"}, Branch: "main", Attribution: mode},
			}
		}
		client := fake.NewClientset(newTarget("prod", v1alpha1.AttributionAudit), newTarget("none", v1alpha1.AttributionNone)).KommitV1alpha1()
		var mu sync.Mutex // protects the variables below
		var reason, message string
		var asked []types.NamespacedName
		d := &destinations{targets: stored{ctx, client}, providers: fixed[*v1alpha1.GitProvider]{
			{Namespace: namespace, Name: "git"}: {
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "git"},
				Spec:       v1alpha1.GitProviderSpec{URL: "https://git.example.com/shop.git"},
			},
		}}
		r := newReadiness(client, d, nil, func(target types.NamespacedName) (string, string) {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, target)
			return reason, message
		})
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.run(ctx)
		}()
		r.check(prod)
		r.check(types.NamespacedName{Namespace: namespace, Name: "none"})
		for _, step := range []struct {
			reason, message string
			want            metav1.ConditionStatus
			wantReason      string
		}{
			{"", "", metav1.ConditionFalse, v1alpha1.ReasonNothingAmiss},
			{v1alpha1.ReasonNoAuditEvents, "set a flag", metav1.ConditionTrue, v1alpha1.ReasonNoAuditEvents},
			{v1alpha1.ReasonAuditEventsLate, "set another", metav1.ConditionTrue, v1alpha1.ReasonAuditEventsLate},
			{"", "", metav1.ConditionFalse, v1alpha1.ReasonNothingAmiss},
		} {
			mu.Lock()
			reason, message = step.reason, step.message
			mu.Unlock()
			<-time.After(attributionInterval + time.Second)
			synctest.Wait()
			for _, name := range []string{"prod", "none"} {
				target, err := client.GitTargets(namespace).Get(ctx, name, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if !apimeta.IsStatusConditionTrue(target.Status.Conditions, v1alpha1.ConditionReady) {
					t.Errorf("%s is not Ready: %+v", name, target.Status.Conditions)
				}
				got := apimeta.FindStatusCondition(target.Status.Conditions, v1alpha1.ConditionAttributionDegraded)
				switch {
				case name == "none" && got != nil:
					t.Errorf("without attribution: got %+v", got)
				case name == "prod" && (got == nil || got.Status != step.want || got.Reason != step.wantReason || got.Message != step.message || got.ObservedGeneration != 3):
					t.Errorf("got %+v, want %+v", got, step)
				}
			}
		}
		cancel()
		<-done
		for _, name := range asked {
			if name != prod {
				t.Errorf("asked for %v", name)
			}
		}
	})
}
