// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Keys are made when the tests run, by the programs that users make them with.

const phrase = "s3cret phrase"

// program fails the test, with the cure, where the program is missing.
func program(t *testing.T, name, debian string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("this test needs %s: apt-get install %s: %v", name, debian, err)
	}
	return path
}

func runProgram(t *testing.T, env []string, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...) // #nosec G204 -- programs of the test's own choice
	cmd.Env = append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, stderr.Bytes())
	}
	return stdout.Bytes()
}

// sshKeygen makes an SSH key, and returns the private and the public one.
func sshKeygen(t *testing.T, passphrase string, args ...string) (private, public []byte) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	runProgram(t, nil, program(t, "ssh-keygen", "openssh-client"), append([]string{"-q", "-f", file, "-N", passphrase, "-C", "test"}, args...)...)
	return readFile(t, file), readFile(t, file+".pub")
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(name) // #nosec G304 -- a file of the test's own
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// gnupg is a GnuPG home of the test's own.
type gnupg struct {
	t       *testing.T
	program string
	home    string
}

func newGnuPG(t *testing.T) *gnupg {
	t.Helper()
	// Short: the agent's socket is in it. t.TempDir would name the test.
	home, err := os.MkdirTemp("", "gnupg") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	g := &gnupg{t: t, program: program(t, "gpg", "gnupg"), home: home}
	stop := program(t, "gpgconf", "gpgconf")
	t.Cleanup(func() {
		cmd := exec.Command(stop, "--kill", "gpg-agent") // #nosec G204 -- this home's own agent
		cmd.Env = append(os.Environ(), "GNUPGHOME="+home)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("ending the agent: %v: %s", err, out)
		}
		if err := os.RemoveAll(home); err != nil {
			t.Error(err)
		}
	})
	return g
}

func (g *gnupg) run(args ...string) []byte {
	g.t.Helper()
	return runProgram(g.t, []string{"GNUPGHOME=" + g.home}, g.program, append([]string{"--batch", "--quiet", "--pinentry-mode", "loopback"}, args...)...)
}

// generate makes a key. args come before the command.
func (g *gnupg) generate(algorithm, passphrase, expires string, args ...string) {
	g.t.Helper()
	g.run(append(args, "--passphrase", passphrase, "--quick-generate-key", "kommit <kommit@example.com>", algorithm, "sign", expires)...)
}

// export returns the private key, armored; command is export-secret-keys or
// export-secret-subkeys.
func (g *gnupg) export(command, passphrase string, args ...string) []byte {
	g.t.Helper()
	return g.run(append(args, "--passphrase", passphrase, "--armor", "--"+command)...)
}

// verifier is a program that git can run as gpg.program: it looks into this home.
func (g *gnupg) verifier() string {
	g.t.Helper()
	file := filepath.Join(g.t.TempDir(), "gpg")
	script := "#!/bin/sh\nGNUPGHOME='" + g.home + "' exec '" + g.program + "' \"$@\"\n"
	if err := os.WriteFile(file, []byte(script), 0o700); err != nil { // #nosec G306 -- it is run
		g.t.Fatal(err)
	}
	return file
}

// allowedSigners is a file in which git finds who may have signed.
func allowedSigners(t *testing.T, public []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "allowed_signers")
	if err := os.WriteFile(file, []byte("kommit@example.com namespaces=\"git\" "+string(public)), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// secretOf makes the data of a Secret: key, value, key, value.
func secretOf(pairs ...string) map[string][]byte {
	data := map[string][]byte{}
	for i := 0; i < len(pairs); i += 2 {
		data[pairs[i]] = []byte(pairs[i+1])
	}
	return data
}

// wantNoSecret fails when a text holds a part of what must not be told.
func wantNoSecret(t *testing.T, text string, secrets ...[]byte) {
	t.Helper()
	for _, secret := range append(secrets, []byte(phrase)) {
		for line := range strings.Lines(string(secret)) {
			if line = strings.TrimSpace(line); len(line) > 8 && !strings.HasPrefix(line, "-----") && strings.Contains(text, line) {
				t.Errorf("%q holds content of the Secret", text)
			}
		}
	}
}
