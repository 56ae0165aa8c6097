// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

// writeUntilKilled names the file that a child process of TestKilledWriter
// writes to.
const writeUntilKilled = "KOMMIT_TEST_WRITE_UNTIL_KILLED"

func TestMain(m *testing.M) {
	if path := os.Getenv(writeUntilKilled); path != "" {
		if err := writeForever(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// D4 at kill -9: what was acknowledged is there.
func TestKilledWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kommit.db")
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), writeUntilKilled+"="+path)
	child.Stderr = os.Stderr
	acknowledged, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	// The pipe keeps what the child had written when it died, so every line
	// that arrives is an acknowledged write.
	want := map[string]string{}
	for lines := bufio.NewScanner(acknowledged); lines.Scan(); {
		name, rv, complete := strings.Cut(lines.Text(), " ")
		if !complete || !strings.HasSuffix(rv, ".") {
			break // cut by the kill
		}
		want[name] = strings.TrimSuffix(rv, ".")
		if len(want) == 200 {
			if err := child.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = child.Wait() // killed, as it should be
	if len(want) < 200 {
		t.Fatalf("the child acknowledged %d writes only", len(want))
	}
	db, s := reopen(t, path)
	check(t, db)
	got := map[string]string{}
	for _, p := range mustList(t, s, storage.ListOptions{}).Items {
		got[p.Name] = p.ResourceVersion
	}
	for name, rv := range want {
		if got[name] != rv {
			t.Errorf("%s was acknowledged at %s, found %q", name, rv, got[name])
		}
	}
}

// writeForever is the child process of TestKilledWriter.
func writeForever(path string) error {
	ctx := context.Background()
	db, err := Open(ctx, Config{Path: path})
	if err != nil {
		return err
	}
	s, err := db.newStore(podStoreConfig())
	if err != nil {
		return err
	}
	failed := make(chan error)
	for w := range 8 {
		go func() {
			for i := 0; ; i++ {
				name, out := fmt.Sprintf("%d-%d", w, i), &example.Pod{}
				if err := s.Create(ctx, podKey(name), pod(name), out, 0); err != nil {
					failed <- err
					return
				}
				fmt.Printf("%s %s.\n", name, out.ResourceVersion)
			}
		}()
	}
	return <-failed
}
