// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git_test

import (
	"context"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/kommit-dev/kommit/pkg/git"
	"github.com/kommit-dev/kommit/test/gitserver"
)

// What is tested over HTTP and does not depend on it holds over SSH too, on
// OpenSSH's own server.
func TestOverSSH(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"FirstCommitOfEmptyRepository":          TestFirstCommitOfEmptyRepository,
		"HeadPointsToMissingBranch":             TestHeadPointsToMissingBranch,
		"BranchIsCreated":                       TestBranchIsCreated,
		"BranchUnderneathABranch":               TestBranchUnderneathABranch,
		"C10CommitSaysWhoAndWhen":               TestC10CommitSaysWhoAndWhen,
		"G1OnlyTheTreesOnTheChangedPathAreSent": TestG1OnlyTheTreesOnTheChangedPathAreSent,
		"G3ReplayOnAMovedBranch":                TestG3ReplayOnAMovedBranch,
		"G3ReplayAfterALostRace":                TestG3ReplayAfterALostRace,
		"G3ReplayOnARewrittenBranch":            TestG3ReplayOnARewrittenBranch,
		"G4RefusalsInTheRemotesOwnWords":        TestG4RefusalsInTheRemotesOwnWords,
		"G6BatchIsOnePush":                      TestG6BatchIsOnePush,
		"PushersOfOneBranchLoseNothing":         TestPushersOfOneBranchLoseNothing,
		"NothingToCommitIsNoPush":               TestNothingToCommitIsNoPush,
		"D2HashesAreRecordedBeforeTheyAreSent":  TestD2HashesAreRecordedBeforeTheyAreSent,
		"ReplayedCommitsAreSignedAgain":         TestReplayedCommitsAreSignedAgain,
		"LogGoesOnFromItsTip":                   TestLogGoesOnFromItsTip,
		"SHA256RepositoryIsUnsupported":         TestSHA256RepositoryIsUnsupported,
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(transportVariable, "ssh")
			test(t)
		})
	}
}

func TestSSHUnreachableRemoteThatReturns(t *testing.T) {
	f := setupSSH(t, gitserver.SSHConfig{})
	f.pushOne(t, "main", commit("a", "1\n"))
	if err := f.ssh.Down(); err != nil {
		t.Fatal(err)
	}
	wantError[*git.UnreachableError](t, f.tryPush(t))
	wantError[*git.UnreachableError](t, f.repo.Probe(t.Context()))
	if err := f.ssh.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := f.tryPush(t); err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "commits", f.count(t, "main"), 2)
}

func TestSSHProbeAsksForThePushAndSendsNothing(t *testing.T) {
	f := setupSSH(t, gitserver.SSHConfig{})
	if err := f.repo.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	commands, err := f.ssh.Commands()
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "commands", strings.Join(commands, "\n"), "git-receive-pack '"+f.Dir+"'")
	wantEqual(t, "pushes", f.posts(t), 0)
}

// A server gives out trees and files by hash over SSH only if it is told to: the
// whole tip is read from one that does not, and says "not our ref".
func TestSSHObjectsThatAreNotServedByHash(t *testing.T) {
	for _, tc := range []struct {
		name, filter, any string
	}{
		{"plain", "false", "false"}, {"filter alone", "true", "false"}, {"both", "true", "true"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := setupSSH(t, gitserver.SSHConfig{})
			for key, value := range map[string]string{"uploadpack.allowFilter": tc.filter, "uploadpack.allowAnySHA1InWant": tc.any} {
				if err := f.Configure(t.Context(), key, value); err != nil {
					t.Fatal(err)
				}
			}
			first := f.MustCommit("main", map[string]string{"d/a": "1\n", "d/b": "1\n"})
			f.MustCommit("main", map[string]string{"d/a": "2\n"})
			tree, err := f.repo.Tree(t.Context(), "main")
			if err != nil {
				t.Fatal(err)
			}
			got, err := tree.Read(t.Context(), "d/a")
			if err != nil {
				t.Fatal(err)
			}
			wantEqual(t, "content", string(got), "2\n")
			f.pushOne(t, "main", commit("d/c", "1\n"))
			wantEqual(t, "files", f.Must("ls-tree", "-r", "--name-only", "main"), "d/a\nd/b\nd/c")

			log, err := f.open(t, nil).Log(t.Context(), git.LogOptions{Branch: "main", Limit: 10})
			if err != nil {
				t.Fatal(err)
			}
			wantEqual(t, "commits in the log", len(log.Commits), 3)
			wantEqual(t, "first commit", log.Commits[2].Hash, first)
			var changed []string
			for _, c := range log.Commits[1].Files {
				changed = append(changed, c.Path)
			}
			wantEqual(t, "changed in the second", strings.Join(changed, ","), "d/a")
		})
	}
}

func TestSSHKeysAreAccepted(t *testing.T) {
	for _, tc := range []struct{ keyType, passphrase string }{
		{"ed25519", ""}, {"ecdsa", ""}, {"rsa", ""}, {"ed25519", "correct horse"},
	} {
		for _, field := range []string{"passphrase", "password"} {
			if tc.passphrase == "" && field == "password" {
				continue
			}
			t.Run(tc.keyType+" "+tc.passphrase+" "+field, func(t *testing.T) {
				signer, key, err := gitserver.NewKey(tc.keyType, tc.passphrase)
				if err != nil {
					t.Fatal(err)
				}
				f := setupSSH(t, gitserver.SSHConfig{Authorized: []ssh.PublicKey{signer.PublicKey()}})
				secret := map[string][]byte{"ssh-privatekey": key, "known_hosts": f.ssh.KnownHosts()}
				if tc.passphrase != "" {
					secret[field] = []byte(tc.passphrase + "\n")
				}
				f.repo = f.open(t, secret)
				if err := f.tryPush(t); err != nil {
					t.Fatal(err)
				}
				if log, err := f.ssh.Log(); err != nil || strings.Contains(log, "ssh-rsa SHA1") {
					t.Errorf("sshd logs %q, %v", log, err)
				}
			})
		}
	}
}

func TestSSHSecretsThatCannotBeUsed(t *testing.T) {
	f := setupSSH(t, gitserver.SSHConfig{})
	_, locked, err := gitserver.NewKey("ed25519", "correct horse")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		change map[string][]byte
		key    string
	}{
		"no known_hosts":     {map[string][]byte{"known_hosts": nil}, "known_hosts"},
		"blank known_hosts":  {map[string][]byte{"known_hosts": []byte("\n \n")}, "known_hosts"},
		"broken known_hosts": {map[string][]byte{"known_hosts": []byte("host ssh-ed25519 s3cret\n")}, "known_hosts"},
		"not a key":          {map[string][]byte{"identity": []byte("s3cret")}, "identity"},
		"no passphrase":      {map[string][]byte{"identity": locked}, "identity"},
		"wrong passphrase":   {map[string][]byte{"identity": locked, "passphrase": []byte("s3cret")}, "identity"},
		"nothing for SSH":    {map[string][]byte{"identity": nil, "bearerToken": []byte("s3cret")}, "ssh-privatekey"},
	} {
		t.Run(name, func(t *testing.T) {
			secret := maps.Clone(f.secret)
			maps.Copy(secret, tc.change)
			err := f.open(t, secret).Probe(t.Context())
			e := wantError[*git.SecretError](t, err)
			wantEqual(t, "key", e.Key, tc.key)
			if strings.Contains(e.Error(), "s3cret") {
				t.Errorf("the error repeats the secret: %v", e)
			}
		})
	}
	t.Run("no Secret", func(t *testing.T) {
		repo, err := git.NewRepository(git.Config{URL: f.URL})
		if err != nil {
			t.Fatal(err)
		}
		wantError[*git.SecretError](t, repo.Probe(t.Context()))
	})
	commands, err := f.ssh.Commands()
	if err != nil || !slices.Equal(commands, []string{""}) {
		t.Errorf("commands %q, %v", commands, err)
	}
}

func TestSSHWrongKeyIsUnauthorized(t *testing.T) {
	f := setupSSH(t, gitserver.SSHConfig{})
	signer, key, err := gitserver.NewKey("ed25519", "")
	if err != nil {
		t.Fatal(err)
	}
	secret := maps.Clone(f.secret)
	secret["identity"] = key
	f.repo = f.open(t, secret)
	e := wantError[*git.UnauthorizedError](t, f.tryPush(t))
	if !strings.Contains(e.Text, ssh.FingerprintSHA256(signer.PublicKey())) {
		t.Errorf("text %q does not name the key that was offered", e.Text)
	}
	wantError[*git.UnauthorizedError](t, f.repo.Probe(t.Context()))
}

func TestG9SSHRefusedCredentialsAreReadAgainOnce(t *testing.T) {
	f := setupSSH(t, gitserver.SSHConfig{})
	_, old, err := gitserver.NewKey("ed25519", "")
	if err != nil {
		t.Fatal(err)
	}
	var reads atomic.Int32
	newest := f.secret["identity"]
	repo, err := git.NewRepository(git.Config{URL: f.URL, Credentials: func(context.Context) (git.Credentials, error) {
		secret := maps.Clone(f.secret)
		secret["identity"] = newest
		if reads.Add(1) == 1 {
			secret["identity"] = old // a cache that is about to learn
		}
		return git.ParseSecret(secret)
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := repo.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "reads", reads.Load(), 2)

	// The same again is not tried again.
	newest = old
	reads.Store(1)
	wantError[*git.UnauthorizedError](t, repo.Probe(t.Context()))
	wantEqual(t, "reads", reads.Load(), 3)
	log, err := f.ssh.Log()
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "connections", strings.Count(log, "Connection from "), 3)
}

func TestSSHMissingRepositoryInTheServersWords(t *testing.T) {
	f := setupSSH(t, gitserver.SSHConfig{})
	f.URL = f.ssh.URL("missing.git")
	f.repo = f.open(t, nil)
	for name, err := range map[string]error{
		"push": f.tryPush(t), "probe": f.repo.Probe(t.Context()), "tree": func() error { _, err := f.repo.Tree(t.Context(), "main"); return err }(),
	} {
		e := wantError[*git.RefusedError](t, err)
		if !strings.Contains(e.Text, "missing.git' does not appear to be a git repository") {
			t.Errorf("%s: text %q", name, e.Text)
		}
	}
}

// go-git, CVE-2026-45570: the path is an argument of a remote shell.
func TestSSHPathsAreOneArgument(t *testing.T) {
	s := gitserver.New(t, gitserver.Config{})
	h, key := s.NewSSH(t, gitserver.SSHConfig{})
	for _, name := range []string{"with space.git", "with'quote.git", "with!mark.git", `with"double.git`, `back\slash.git`, "$(touch pwned).git", "a;touch pwned;.git", "--upload-pack=x.git"} {
		t.Run(name, func(t *testing.T) {
			r := s.NewRepository(t, "in/"+name)
			r.URL = h.URL("in/" + name)
			f := &fixture{TestRepository: r, server: s, ssh: h, secret: map[string][]byte{"identity": key, "known_hosts": h.KnownHosts()}}
			f.repo = f.open(t, nil)
			b := f.pushOne(t, "main", commit("a", "1\n"))
			wantEqual(t, "head", f.MustHead("main"), b.Hash)
		})
	}
	if found, err := filepath.Glob(filepath.Join(filepath.Dir(s.Repository("x").Dir), "pwned")); err != nil || len(found) > 0 {
		t.Errorf("a path was executed: %q, %v", found, err)
	}
}

// B1 case 46: the server stops reading the pack in the middle. go-git gives EOF
// without a word.
func TestSSHEarlyRejectInTheServersWords(t *testing.T) {
	f := setupSSH(t, gitserver.SSHConfig{})
	head := f.MustCommit("main", map[string]string{"README": "1\n"})
	if err := f.Configure(t.Context(), "receive.maxInputSize", "100k"); err != nil {
		t.Fatal(err)
	}
	_, err := f.repo.Push(t.Context(), "main", []git.Commit{commit("big", string(noise(8<<20)))}, nil)
	e := wantError[*git.RefusedError](t, err)
	if !strings.Contains(e.Text, "pack exceeds maximum allowed size") {
		t.Errorf("text %q", e.Text)
	}
	wantEqual(t, "head", f.MustHead("main"), head)
}

// What the server says beside the protocol reaches the error, cleaned.
func TestSSHWordsOfAServerThatIsNotGit(t *testing.T) {
	for name, tc := range map[string]struct {
		script string
		want   string
	}{
		"plain words":      {"echo 'Hi alice! You are in, but there is no shell.'", "Hi alice! You are in, but there is no shell."},
		"words on stderr":  {"printf '\\033[31mERROR\\033[0m: the project moved\\r\\n' >&2; exit 1", "ERROR: the project moved"},
		"ERR of the forge": {`printf '001dERR access is not granted'`, "access is not granted"},
		"silent":           {"exit 7", "git-receive-pack ended with status 7"},
	} {
		t.Run(name, func(t *testing.T) {
			f := setupSSH(t, gitserver.SSHConfig{})
			if err := f.ssh.SetCommand(tc.script); err != nil {
				t.Fatal(err)
			}
			e := wantError[*git.RefusedError](t, f.tryPush(t))
			if !strings.HasPrefix(e.Text, tc.want) {
				t.Errorf("text %q, want %q", e.Text, tc.want)
			}
		})
	}
}

func TestSSHUserIsGitUnlessTheURLOrTheSecretNamesOne(t *testing.T) {
	f := setupSSH(t, gitserver.SSHConfig{})
	u, err := url.Parse(f.URL)
	if err != nil {
		t.Fatal(err)
	}
	user := u.User.Username()
	u.User = nil
	f.URL = u.String()
	e := wantError[*git.UnauthorizedError](t, f.open(t, nil).Probe(t.Context()))
	if !strings.Contains(e.Text, "user git with") {
		t.Errorf("text %q", e.Text)
	}
	secret := maps.Clone(f.secret)
	secret["username"] = []byte(user)
	if err := f.open(t, secret).Probe(t.Context()); err != nil {
		t.Error(err)
	}
}
