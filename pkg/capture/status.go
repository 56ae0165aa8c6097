// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// severity orders the problems of a rule: the first is the reason of its
// conditions, all are in the message.
var severity = []string{
	v1alpha1.ReasonTargetNotFound,
	v1alpha1.ReasonSensitiveResource,
	v1alpha1.ReasonUnknownResource,
	v1alpha1.ReasonListFailed,
}

// ruleStatus computes the whole status of a rule: problems that its user has to
// mend stall it, although its other resources are captured; pending counts the
// resources that were not compared with Git yet.
func ruleStatus(old v1alpha1.WatchRuleStatus, generation int64, resources int, problems []problem, pending int, now time.Time) v1alpha1.WatchRuleStatus {
	status := *old.DeepCopy()
	status.ObservedGeneration = generation
	set := func(conditionType string, value metav1.ConditionStatus, reason, message string) {
		apimeta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: conditionType, Status: value, Reason: reason, Message: message,
			ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now),
		})
	}
	ready, reconciling, stalled := metav1.ConditionFalse, metav1.ConditionFalse, metav1.ConditionFalse
	var reason, message string
	switch {
	case len(problems) > 0:
		stalled = metav1.ConditionTrue
		problems = slices.Clone(problems)
		slices.SortStableFunc(problems, func(a, b problem) int {
			return slices.Index(severity, a.reason) - slices.Index(severity, b.reason)
		})
		reason = problems[0].reason
		var messages []string
		for _, p := range problems {
			if !slices.Contains(messages, p.message) {
				messages = append(messages, p.message)
			}
		}
		message = strings.Join(messages, "; ")
	case pending > 0:
		reconciling = metav1.ConditionTrue
		reason, message = v1alpha1.ReasonProgressing, fmt.Sprintf("%d of %d resources are still being compared with Git", pending, resources)
	default:
		ready = metav1.ConditionTrue
		reason, message = v1alpha1.ReasonReady, fmt.Sprintf("%d resources are being captured", resources)
	}
	set(v1alpha1.ConditionReady, ready, reason, message)
	set(v1alpha1.ConditionReconciling, reconciling, reason, message)
	set(v1alpha1.ConditionStalled, stalled, reason, message)
	return status
}

// report writes the statuses that changed. It returns when to reconcile again by
// itself, 0 for never.
func (c *Capture) report(ctx context.Context, p plan) time.Duration {
	again := time.Duration(0)
	if p.unknown {
		again = unknownRetry
	}
	for _, planned := range p.rules {
		resources, problems, pending := c.progress(planned)
		status := ruleStatus(planned.rule.Status, planned.rule.Generation, resources, problems, pending, time.Now())
		if reflect.DeepEqual(status, planned.rule.Status) {
			continue
		}
		rule := planned.rule.DeepCopy()
		rule.Status = status
		err := c.WriteStatus(ctx, rule)
		switch {
		case err == nil, apierrors.IsNotFound(err), ctx.Err() != nil:
		case apierrors.IsConflict(err): // the informer brings the newer one
		default:
			klog.FromContext(ctx).Error(err, "Status not written, will be repeated", "watchRule", klog.KObj(rule))
			again = statusRetry
		}
	}
	return again
}

// progress returns how many resources a rule has, what is wrong with them, and how
// many were not compared with Git yet.
func (c *Capture) progress(planned plannedRule) (resources int, problems []problem, pending int) {
	problems = planned.problems
	for _, key := range planned.sources {
		resources++
		c.mu.Lock()
		s := c.sources[key]
		c.mu.Unlock()
		if s == nil {
			pending++
			continue
		}
		claim := s.claimOf(planned.target)
		s.mu.Lock()
		failure := s.failure
		if failure == nil && (claim == nil || claim.done == 0) {
			pending++
		}
		s.mu.Unlock()
		if failure != nil {
			problems = append(slices.Clip(problems), problem{v1alpha1.ReasonListFailed,
				fmt.Sprintf("%s cannot be read: %v; kommit tries again", s.key.resource.GroupResource(), failure)})
		}
	}
	return resources, problems, pending
}
