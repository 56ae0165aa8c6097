// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package stacktest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDataRacesAreFound(t *testing.T) {
	for name, test := range map[string]struct {
		logs map[string]string
		want string // in the error; empty for none
	}{
		"none":         {map[string]string{"kommit-apiserver.log": "I1201 all is well\n"}, ""},
		"in any log":   {map[string]string{"etcd.log": "", "kommit-apiserver.log": "x\nWARNING: DATA RACE\nWrite at 0x1\n"}, "kommit-apiserver.log has data races:\n\nWrite at 0x1"},
		"in no others": {map[string]string{"notes.txt": "WARNING: DATA RACE"}, ""},
	} {
		dir := t.TempDir()
		for file, content := range test.logs {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := dataRaces(dir)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}
