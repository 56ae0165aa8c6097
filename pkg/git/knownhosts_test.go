// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh/knownhosts"
)

const someKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB9zCsc6AlpoGM1xiSfPoqiUpUYYlxqZ2dbkjZPlEJeJ"

// What ssh-keygen finds for a name is what we find.
func TestHostPatternsAsOpenSSHReadsThem(t *testing.T) {
	file := filepath.Join(t.TempDir(), "known_hosts")
	matched := 0
	for _, patterns := range []string{
		"host", "HOST", "host.example.com", "*", "*.example.com", "h?st", "host*", "*host", "h*t", "h**t", "*a*b*",
		"[host]:2222", "[*]:2222", "[host]:*", "*:2222", "[host]:22", "host:2222",
		"host,other", "other,host", "!host,*", "*,!host", "!host", "!h*,host", "!other,host",
		"::1", "[::1]:2222", "192.0.2.1", "192.0.2.?", "?", "??", "",
		knownhosts.HashHostname("host"), knownhosts.HashHostname("[host]:2222"), "|1|AAAA|AAAA", "|2|AAAA|AAAA", "|1|!|x",
	} {
		if err := os.WriteFile(file, []byte(patterns+" "+someKey+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"host", "host.example.com", "[host]:2222", "[other]:2222", "::1", "[::1]:2222", "192.0.2.1", "h", "xaybz"} {
			out, _ := exec.CommandContext(t.Context(), "ssh-keygen", "-F", name, "-f", file).Output()
			want := strings.Contains(string(out), "found")
			if got := matchHost(strings.Split(patterns, ","), name); got != want {
				t.Errorf("%q for %q: %t, ssh-keygen says %t", patterns, name, got, want)
			}
			if want {
				matched++
			}
		}
	}
	if matched < 30 {
		t.Errorf("ssh-keygen found %d matches, which is too few to compare with", matched)
	}
}

func TestKnownHostsName(t *testing.T) {
	for want, in := range map[string][2]string{
		"host": {"Host", "22"}, "[host]:2222": {"HOST", "2222"}, "::1": {"::1", "22"}, "[::1]:2222": {"::1", "2222"},
	} {
		if got := knownHostsName(in[0], in[1]); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestShellQuoteIsOneWord(t *testing.T) {
	for _, s := range []string{"", "a", "a b", "it's", "''", "!x!", "$(x)`x`$X\\", "a\nb", "-x", "ünï", "*?[a]~"} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf '%s|' "+shellQuote(s)).Output()
		// The exclamation mark is quoted for csh as well, where the backslash goes away.
		if err != nil || string(out) != s+"|" {
			t.Errorf("%q: sh reads %q, %v", s, out, err)
		}
	}
}

func TestSSHTransportOfAURL(t *testing.T) {
	for raw, want := range map[string]struct{ user, host, port, path string }{
		"ssh://git@host/a/b.git":          {"git", "host", "22", "/a/b.git"},
		"ssh://host:2222/a%20b/it's.git/": {"", "host", "2222", "/a b/it's.git/"},
		"ssh://alice@[::1]:2222/repo":     {"alice", "::1", "2222", "/repo"},
		"ssh://[::1]/~alice/repo":         {"", "::1", "22", "~alice/repo"},
		"ssh://host:/repo":                {"", "host", "22", "/repo"},
		"git@host:org/repo.git":           {"git", "host", "22", "org/repo.git"},
		"host:/abs/re%20po":               {"", "host", "22", "/abs/re%20po"},
		"git@[::1]:org/repo":              {"git", "::1", "22", "org/repo"},
		"git@host:2222/repo":              {"git", "host", "22", "2222/repo"},
	} {
		r, err := parseURL(raw, false)
		if err != nil {
			t.Errorf("%q: %v", raw, err)
			continue
		}
		got := newSSHTransport(r, Config{})
		if got.user != want.user || got.host != want.host || got.port != want.port || got.path != want.path {
			t.Errorf("%q: %q@%q:%q %q, want %+v", raw, got.user, got.host, got.port, got.path, want)
		}
	}
}
