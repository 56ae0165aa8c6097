// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package broken

import "testing"

func TestBroken(t *testing.T) { undefinedName(t) }
