// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// 5.5: a save contains what came before it.
func TestCatchUp(t *testing.T) {
	target := types.NamespacedName{Namespace: "shop", Name: "a"}
	try := func(t *testing.T, b *bench, bound time.Duration) (time.Duration, error) {
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		start := time.Now()
		err := b.capture.CatchUp(ctx, target)
		return time.Since(start), err
	}
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, oneTarget)
		if took, err := try(t, b, time.Minute); err != nil || took != 0 {
			t.Errorf("nothing there: %v after %v", err, took)
		}

		// Seen, not attributed.
		uid, version := b.write(configMaps, configMap("x", "1"))
		time.AfterFunc(3*time.Second, func() { b.says("alice", uid, version) })
		if took, err := try(t, b, time.Minute); err != nil || took != 3*time.Second {
			t.Errorf("waiting for the fact: %v after %v", err, took)
		}
		b.expect(t, "a create configmaps/x alice")

		// Neither seen nor attributed; a later change of the same object is none of it.
		b.disconnect(configMaps)
		_, version = b.write(configMaps, configMap("x", "2"))
		b.says("alice", uid, version)
		time.AfterFunc(2*time.Second, func() { b.release(configMaps) })
		time.AfterFunc(time.Second, func() { b.write(configMaps, configMap("x", "3")) })
		if took, err := try(t, b, 20*time.Second); err != nil || took != 2*time.Second {
			t.Errorf("waiting for the watch: %v after %v", err, took)
		}
		time.Sleep(2 * grace)
		synctest.Wait()
		b.take()

		// A deletion that was not seen.
		b.disconnect(configMaps)
		b.remove(configMaps, "x")
		b.says("bob", uid, "deleted")
		var lag *LagError
		if took, err := try(t, b, 5*time.Second); !errors.As(err, &lag) || took != 5*time.Second {
			t.Errorf("want a LagError after 5s, got %v after %v", err, took)
		} else if lag.Resource != configMaps.GroupResource() || lag.Object != "x" {
			t.Errorf("the wrong one lags: %v", err)
		}
		b.release(configMaps)
		if took, err := try(t, b, 5*time.Second); err != nil || took != 0 {
			t.Errorf("the deletion was seen: %v after %v", err, took)
		}

		// What cannot be read cannot be proven.
		b.cluster.mu.Lock()
		b.forbidden["services"] = true
		b.cluster.mu.Unlock()
		if took, err := try(t, b, time.Minute); !errors.As(err, &lag) || lag.Resource != services.GroupResource() || took != 0 {
			t.Errorf("want a LagError for services at once, got %v after %v", err, took)
		}
	})
}
