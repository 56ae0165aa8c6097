// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package window

import (
	"testing"
	"time"
)

// TestNamesWithoutNewName: an Engine needs no Config to tell its windows apart.
func TestNamesWithoutNewName(t *testing.T) {
	e, now := New(Config{}), time.Now()
	e.SetTarget(now, Target{Name: targetName("prod")})
	for _, object := range []string{"cm/a", "cm/b"} {
		c := parseChange(object)
		c.Target, c.Author = targetName("prod"), Author{Username: object}
		e.Change(now, c)
	}
	open := e.Windows()
	if len(open) != 2 || open[0].Name != "prod-1" || open[1].Name != "prod-2" {
		t.Errorf("open are %+v", open)
	}
}

// TestSnapshotsAreCopies: what was handed out does not change with the window.
func TestSnapshotsAreCopies(t *testing.T) {
	e, now := New(Config{}), time.Now()
	e.SetTarget(now, Target{Name: targetName("prod")})
	c := parseChange("cm/a")
	c.Target, c.Author, c.ResourceVersion = targetName("prod"), Author{Username: "alice"}, "1"
	e.Change(now, c)
	before := e.Windows()
	c.ResourceVersion = "2"
	e.Change(now, c)
	if version := before[0].Changes[0].ResourceVersion; version != "1" {
		t.Errorf("the snapshot changed to version %s", version)
	}
}
