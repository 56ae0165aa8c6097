// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func TestFlags(t *testing.T) {
	for _, test := range []struct {
		name    string
		args    []string
		valid   bool
		catchUp time.Duration
	}{
		{"defaults", nil, true, 45 * time.Second},
		{"5.5 catching up is bounded by the grace", []string{"--attribution-grace=10s"}, true, 10 * time.Second},
		{"5.5 or by its own flag", []string{"--attribution-grace=10s", "--catch-up-timeout=3s"}, true, 3 * time.Second},
		{"negative grace", []string{"--attribution-grace=-1s"}, false, 0},
		{"negative bound", []string{"--catch-up-timeout=-1s"}, false, 0},
		{"W5 a bound on what a window collects", []string{"--max-window-bytes=1000000"}, true, 45 * time.Second},
		{"W5 no bound", []string{"--max-window-bytes=0"}, true, 45 * time.Second},
		{"negative bytes", []string{"--max-window-bytes=-1"}, false, 0},
		{"a stop at once, which waits for nothing", []string{"--shutdown-delay-duration=0s", "--flush-timeout=0s"}, true, 45 * time.Second},
		{"negative delay", []string{"--shutdown-delay-duration=-1s"}, false, 0},
		{"negative flush", []string{"--flush-timeout=-1s"}, false, 0},
		{"no storage file", []string{"--storage-file="}, false, 0},
		{"a directory", []string{"--storage-file=/"}, false, 0},
		{"no port", []string{"--secure-port=0"}, false, 0},
		{"encryption that is reloaded", []string{"--encryption-provider-config=/etc/kommit/encryption.yaml", "--encryption-provider-config-automatic-reload"}, true, 45 * time.Second},
		{"a reload of nothing", []string{"--encryption-provider-config-automatic-reload"}, false, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			options := NewOptions()
			flags := pflag.NewFlagSet("kommit-apiserver", pflag.ContinueOnError)
			options.AddFlags(flags)
			if err := flags.Parse(test.args); err != nil {
				t.Fatal(err)
			}
			err := options.Validate()
			if (err == nil) != test.valid {
				t.Fatalf("valid is %t, want %t: %v", err == nil, test.valid, err)
			}
			if test.valid && options.catchUpTimeout() != test.catchUp {
				t.Errorf("catching up is bounded by %s, want %s", options.catchUpTimeout(), test.catchUp)
			}
		})
	}
}
