// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/kommit-dev/kommit/pkg/git"
)

func wantInvalid(t *testing.T, subject, value string, err error) {
	t.Helper()
	var e *git.InvalidError
	switch {
	case !errors.As(err, &e):
		t.Errorf("%q is accepted (%v)", value, err)
	case e.Subject != subject || e.Reason == "":
		t.Errorf("%q: %+v", value, e)
	}
}

func TestCheckURL(t *testing.T) {
	for _, url := range []string{
		"https://github.com/org/repo", "https://github.com/org/repo.git", "https://host:8443/a/b/", "https://dev.azure.com/o/p/_git/r%20x",
		"ssh://git@github.com/org/repo.git", "ssh://host:2222/repo", "git@github.com:org/repo.git", "host:repo", "HTTPS://host/x", "https://[::1]:8443/x",
		"ssh://git@[::1]:2222/repo", "git@[::1]:repo", "[fe80::1]:a/b", "ssh://host/with%20space", "ssh://host/~user/repo", "host:/abs/repo",
	} {
		if err := git.CheckURL(url, false); err != nil {
			t.Errorf("%q: %v", url, err)
		}
	}
	if err := git.CheckURL("http://host/repo", true); err != nil {
		t.Error(err)
	}
	for _, url := range []string{
		"", "http://host/repo", "https://user:s3cret@host/repo", "https://s3cret@host/repo", "ssh://git:s3cret@host/repo", "git://host/repo", "file:///repo",
		"/repo", "./repo", "repo", "https://", "https://host", "https://host/", "https:///repo", "https://host/repo?token=s3cret", "https://host/repo#s3cret",
		"https://host/re po", "https://host/re\npo", "ext::sh -c s3cret", "-oProxyCommand=x:repo", "-x@host:repo", "git@-host:repo", "ssh://-host/repo",
		"host:", "git@:repo", "https://host\x00/x", "https://s3cret%zz@host/x", "https://@host/repo",
		"host:-oProxyCommand=x", "ssh://-x@host/repo", "ssh://a%0Ab@host/repo", "ssh://host/a%0Ab", "ssh://host/a%00", "ssh://host/%ff", "git@[::1]repo", "git@[host]:repo", "git@[::1:repo",
	} {
		err := git.CheckURL(url, false)
		wantInvalid(t, "url", url, err)
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the error about %q repeats the secret: %v", url, err)
		}
	}
}

func TestNewRepositoryRefusesWhatItCannotUse(t *testing.T) {
	_, err := git.NewRepository(git.Config{URL: "http://host/repo"})
	wantError[*git.InvalidError](t, err)
}

// What git check-ref-format says, but for the names that other commands misread.
func TestCheckBranch(t *testing.T) {
	misread := map[string]bool{"HEAD": true, "@": true, "-x": true, "refs/heads/main": true, "\xff": true}
	for _, name := range []string{
		"main", "feature/x", "a.b", "a/b/c", "ünïcode", "a@b", "@x", "x@", "{", "a{b}", "a--b", "a/-b", "1", "a,b;c!$&'()", "HEADS", "x/HEAD",
		"", ".", "..", "a..b", "a/../b", ".a", "a/.b", "a.", "a./b", "a.lock", "a.lock/b", "a/b.lock", "/a", "a/", "a//b", "a b", "a~b", "a^b", "a:b",
		"a?b", "a*b", "a[b", `a\b`, "a\x7fb", "a\tb", "a\nb", "a@{b", "@{", "@/@",
		"HEAD", "@", "-x", "refs/heads/main", "\xff",
	} {
		err := git.CheckBranch(name)
		want := exec.CommandContext(t.Context(), "git", "check-ref-format", "refs/heads/"+name).Run() == nil && !misread[name]
		if want != (err == nil) {
			t.Errorf("%q: %v, want accepted: %t", name, err, want)
		}
		if !want {
			wantInvalid(t, "branch", name, err)
		}
	}
	wantInvalid(t, "branch", "long", git.CheckBranch(strings.Repeat("x", 300)))
}

func TestG8CheckPath(t *testing.T) {
	for _, p := range []string{
		"a", "a/b/c.yaml", "ns/roles.rbac.authorization.k8s.io/system:node.yaml", ".github/x", ".gitignore", "git", "gitx", "a.git", ".gitx", "...a", "a..b",
		"ünï/山", "git~x", "git~10", "con", "x y", "-x", ".a",
	} {
		if err := git.CheckPath(p); err != nil {
			t.Errorf("%q: %v", p, err)
		}
	}
	for _, p := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "./a", "a/.", "a/..", "a/../b", "../a",
		".git", ".git/config", "a/.git/config", ".GIT", ".Git/x", "git~1", "GIT~1/x", "git~2", ".git.", ".git ", ".git. .", ".git::$INDEX_ALLOCATION", ".git:x",
		".g\u200cit", "\u200d.git", ".gi\ufefft/x", `.git\x`, `a\.git\x`, `..\x`, ".gitmodules", ".GITMODULES", "gitmod~1", "gi7eba~1", ".gitattributes", ".. ", "...",
		"a\x00b", "a\nb", "a\x7f", "\xff", strings.Repeat("x", 256), strings.Repeat("x/", 3000) + "x",
	} {
		wantInvalid(t, "path", p, git.CheckPath(p))
	}
}

func TestParseSecretRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		data map[string]string
		key  string
	}{
		"empty":                {nil, ""},
		"unknown keys only":    {map[string]string{"token": "s3cret"}, ""},
		"user name only":       {map[string]string{"username": "robot"}, "password"},
		"blank password":       {map[string]string{"username": "robot", "password": "\n"}, "password"},
		"two ways":             {map[string]string{"password": "s3cret", "bearerToken": "s3cret"}, "bearerToken"},
		"line break inside":    {map[string]string{"password": "s3cret\nX-Header: y"}, "password"},
		"line break in token":  {map[string]string{"bearerToken": "s3cret\r\nx"}, "bearerToken"},
		"colon in user name":   {map[string]string{"username": "a:b", "password": "s3cret"}, "username"},
		"no certificate":       {map[string]string{"ca.crt": "s3cret"}, "ca.crt"},
		"half a client":        {map[string]string{"tls.crt": "s3cret"}, "tls.crt"},
		"not a client at all":  {map[string]string{"tls.crt": "s3cret", "tls.key": "s3cret"}, "tls.crt"},
		"half, in Flux's form": {map[string]string{"keyFile": "s3cret", "password": "s3cret"}, "tls.crt"},
	} {
		t.Run(name, func(t *testing.T) {
			data := map[string][]byte{}
			for k, v := range tc.data {
				data[k] = []byte(v)
			}
			_, err := git.ParseSecret(data)
			e := wantError[*git.SecretError](t, err)
			wantEqual(t, "key", e.Key, tc.key)
			if strings.Contains(e.Error(), "s3cret") {
				t.Errorf("the error repeats the secret: %v", e)
			}
		})
	}
}

func TestParseSecretReadsSSHKeys(t *testing.T) {
	for _, key := range []string{"ssh-privatekey", "identity", "sshPrivateKey"} {
		if _, err := git.ParseSecret(map[string][]byte{key: []byte("key"), "known_hosts": []byte("host x y"), "password": []byte("phrase")}); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func TestG9CredentialsPrintNowhere(t *testing.T) {
	c, err := git.ParseSecret(map[string][]byte{"username": []byte("s3cret-user"), "password": []byte("s3cret-password")})
	if err != nil {
		t.Fatal(err)
	}
	type holder struct {
		Exported   git.Credentials
		unexported git.Credentials
		pointer    *git.Credentials
	}
	h := holder{c, c, &c}
	_ = h.unexported
	_ = h.pointer
	for _, v := range []any{c, &c, h, &h, []git.Credentials{c}, map[string]any{"c": c}, fmt.Errorf("x: %v", c)} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%T"} {
			if s := fmt.Sprintf(verb, v); strings.Contains(s, "s3cret") || strings.Contains(s, fmt.Sprintf("%x", "s3cret")) {
				t.Errorf("%s prints %s", verb, s)
			}
		}
		if b, err := json.Marshal(v); err == nil && strings.Contains(string(b), "s3cret") {
			t.Errorf("JSON is %s", b)
		}
	}
}
