// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// target is the name of each namespace's GitTarget.
const target = "prod"

// save asks for a commit, with any of the options. Whether it was created when there
// is no answer, the list at the end tells.
func (a *author) save(ctx context.Context, namespace string) {
	spec := randomSpec(a.random)
	if a.random.IntN(3) > 0 || spec.WhenNothingToCommit == v1alpha1.NothingCommitEmpty {
		spec.Message = fmt.Sprintf("%s saves for the %dth time", a.name, a.sequence)
	}
	a.send(ctx, namespace, spec)
}

// saveAll asks for a commit of what is open now, and says whether the server has
// taken it.
func (a *author) saveAll(ctx context.Context, namespace string) bool {
	a.sequence++
	return a.send(ctx, namespace, v1alpha1.CommitRequestSpec{
		Message: fmt.Sprintf("%s saves the rest, for the %dth time", a.name, a.sequence),
		Window:  v1alpha1.RequestWindow{AttachTimeout: duration(time.Second), MaxDuration: duration(0)},
	})
}

func (a *author) send(ctx context.Context, namespace string, spec v1alpha1.CommitRequestSpec) bool {
	spec.GitTargetRef.Name = target
	s := Save{
		Object: Object{Namespace: namespace, Name: fmt.Sprintf("%s-%d", a.name, a.sequence)},
		Author: a.name, Sequence: a.sequence, Message: spec.Message,
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := a.kommit.KommitV1alpha1().CommitRequests(namespace).Create(ctx,
		&v1alpha1.CommitRequest{ObjectMeta: metav1.ObjectMeta{Name: s.Name}, Spec: spec}, metav1.CreateOptions{})
	s.Acknowledged = err == nil
	a.history.addSave(s)
	return err == nil
}

func randomSpec(random *rand.Rand) v1alpha1.CommitRequestSpec {
	attach := []time.Duration{0, 500 * time.Millisecond, 2 * time.Second}[random.IntN(3)]
	most := []time.Duration{0, 300 * time.Millisecond, 2 * time.Second}[random.IntN(3)]
	spec := v1alpha1.CommitRequestSpec{
		Window: v1alpha1.RequestWindow{AttachTimeout: duration(attach), MaxDuration: duration(most)},
	}
	if most > 0 && random.IntN(3) == 0 {
		spec.Window.IdleTimeout = duration(most / 2)
	}
	if attach > 0 && random.IntN(3) == 0 {
		spec.Window.Attach = v1alpha1.AttachNext
	}
	if random.IntN(3) == 0 {
		spec.WhenNothingToCommit = v1alpha1.NothingCommitEmpty
	}
	return spec
}

func duration(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }
