// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// wait until d is over or ctx ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// until asks again and again until there is nothing left to wait for. The error says
// what was left when bound was over.
func until(ctx context.Context, bound time.Duration, left func(context.Context) (string, error)) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	for {
		what, err := left(ctx)
		if err == nil && what == "" {
			return nil
		}
		if wait(ctx, 200*time.Millisecond); ctx.Err() != nil {
			return errors.Join(fmt.Errorf("not within %s: %s", bound, what), err)
		}
	}
}

// between is a random duration from least to most.
func between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)))
}
