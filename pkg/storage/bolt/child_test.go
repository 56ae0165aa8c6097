// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/apis/example"
)

// childRole makes the test binary the other process of a test: a role and the
// storage file.
const childRole = "KOMMIT_TEST_CHILD"

func TestMain(m *testing.M) {
	if role, path, found := strings.Cut(os.Getenv(childRole), " "); found {
		if err := map[string]func(context.Context, string) error{
			"write": writeForever,
			"hold":  holdFile,
		}[role](context.Background(), path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child is another process.
type child struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.Closer
	stdout *bufio.Scanner
}

func startChild(t *testing.T, role, path string) *child {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childRole+"="+role+" "+path)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &child{t: t, cmd: cmd, stdin: stdin, stdout: bufio.NewScanner(stdout)}
}

// line is the next complete one that the child has printed. The pipe keeps what
// it had written when it was killed; a line cut by that is not complete.
func (c *child) line() (string, bool) {
	for c.stdout.Scan() {
		if line, complete := strings.CutSuffix(c.stdout.Text(), "."); complete {
			return line, true
		}
	}
	return "", false
}

// kill is kill -9.
func (c *child) kill() {
	c.t.Helper()
	if err := c.cmd.Process.Kill(); err != nil {
		c.t.Fatal(err)
	}
}

// wait waits for the end of a child that was killed or told to go.
func (c *child) wait() { _ = c.cmd.Wait() }

// outcomes reads what a writer was answered until it ends, and calls seen after
// each answer.
func (c *child) outcomes(seen func(acknowledged, refused int)) (acknowledged map[string]string, refused map[string]bool) {
	acknowledged, refused = map[string]string{}, map[string]bool{}
	for line, ok := c.line(); ok; line, ok = c.line() {
		name, answer, _ := strings.Cut(line, " ")
		if answer == "full" {
			refused[name] = true
		} else {
			acknowledged[name] = answer
		}
		seen(len(acknowledged), len(refused))
	}
	c.wait()
	return acknowledged, refused
}

// writeForever creates objects from several goroutines and prints each answer: a
// resourceVersion, or that the disk is full.
func writeForever(ctx context.Context, path string) error {
	db, err := Open(ctx, Config{Path: path})
	if err != nil {
		return err
	}
	s, err := db.newStore(podStoreConfig())
	if err != nil {
		return err
	}
	failed, run := make(chan error), time.Now().UnixNano()
	for w := range 8 {
		go func() {
			for i := 0; ; i++ {
				name, out := fmt.Sprintf("%d-%d-%d", run, w, i), &example.Pod{}
				p := pod(name)
				p.Annotations = map[string]string{"a": strings.Repeat("x", 16<<10)}
				err := s.Create(ctx, podKey(name), p, out, 0)
				var full *DiskFullError
				switch {
				case errors.As(err, &full):
					fmt.Printf("%s full.\n", name)
				case err != nil:
					failed <- err
					return
				default:
					fmt.Printf("%s %s.\n", name, out.ResourceVersion)
				}
			}
		}()
	}
	return <-failed
}

// holdFile opens the file, and writes to it once when told so by a closed stdin.
func holdFile(ctx context.Context, path string) error {
	db, err := Open(ctx, Config{Path: path})
	if err != nil {
		return err
	}
	s, err := db.newStore(podStoreConfig())
	if err != nil {
		return err
	}
	fmt.Println("open.")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	return errors.Join(s.Create(ctx, podKey("held"), pod("held"), nil, 0), db.Close())
}
