// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/kommit-dev/kommit/pkg/git"
)

// openSigned makes a Repository on the remote whose commits are signed.
func (f *fixture) openSigned(t *testing.T, secret map[string][]byte) *git.Repository {
	t.Helper()
	return f.openWith(t, f.secret, func(context.Context) (git.Signer, error) { return git.ParseSigningSecret(secret) })
}

// mustVerify has git check the signature of each commit of the branch.
func (f *fixture) mustVerify(t *testing.T, branch string, commits int) {
	t.Helper()
	hashes := strings.Fields(f.Must("log", "--format=%H", branch))
	if len(hashes) != commits {
		t.Fatalf("%d commits on %s, want %d", len(hashes), branch, commits)
	}
	f.Must(append([]string{"verify-commit"}, hashes...)...)
}

// signingCase is a kind of key: its Secret, and the setting of git that makes
// verify-commit know it.
type signingCase struct {
	secret         map[string][]byte
	setting, value string
}

func sshCase(t *testing.T, key, passphrase string, args ...string) signingCase {
	t.Helper()
	private, public := sshKeygen(t, passphrase, args...)
	data := secretOf(key, string(private))
	if passphrase != "" {
		data["passphrase"] = []byte(passphrase + "\n") // as an editor leaves it
	}
	return signingCase{data, "gpg.ssh.allowedSignersFile", allowedSigners(t, public)}
}

func pgpCase(t *testing.T, algorithm, passphrase string) signingCase {
	t.Helper()
	g := newGnuPG(t)
	g.generate(algorithm, passphrase, "never")
	data := secretOf("git.asc", string(g.export("export-secret-keys", passphrase)))
	if passphrase != "" {
		data["passphrase"] = []byte(passphrase)
	}
	return signingCase{data, "gpg.program", g.verifier()}
}

// pgpSubkeyCase is a key whose primary part is kept elsewhere.
func pgpSubkeyCase(t *testing.T) signingCase {
	t.Helper()
	g := newGnuPG(t)
	g.run("--passphrase", phrase, "--quick-generate-key", "kommit <kommit@example.com>", "ed25519", "cert", "never")
	fingerprint := ""
	for line := range strings.Lines(string(g.run("--with-colons", "--list-secret-keys"))) {
		if rest, ok := strings.CutPrefix(line, "fpr:::::::::"); ok && fingerprint == "" {
			fingerprint, _, _ = strings.Cut(rest, ":")
		}
	}
	g.run("--passphrase", phrase, "--quick-add-key", fingerprint, "ed25519", "sign", "never")
	return signingCase{secretOf("git.asc", string(g.export("export-secret-subkeys", phrase)), "passphrase", phrase), "gpg.program", g.verifier()}
}

// kargo#2627, IAC#122: what the key signs, git verifies; a commit that is made
// again is the same one, whatever the kind of key (G5).
func TestG5SignedCommitsVerifyAndRepeat(t *testing.T) {
	for name, prepare := range map[string]func(*testing.T) signingCase{
		"SSH Ed25519":            func(t *testing.T) signingCase { return sshCase(t, "ssh-privatekey", "", "-t", "ed25519") },
		"SSH Ed25519, encrypted": func(t *testing.T) signingCase { return sshCase(t, "identity", phrase, "-t", "ed25519") },
		"SSH ECDSA P-256":        func(t *testing.T) signingCase { return sshCase(t, "ssh-privatekey", "", "-t", "ecdsa", "-b", "256") },
		"SSH ECDSA P-384":        func(t *testing.T) signingCase { return sshCase(t, "sshPrivateKey", "", "-t", "ecdsa", "-b", "384") },
		"SSH ECDSA P-521": func(t *testing.T) signingCase {
			return sshCase(t, "ssh-privatekey", phrase, "-t", "ecdsa", "-b", "521")
		},
		"SSH RSA": func(t *testing.T) signingCase { return sshCase(t, "ssh-privatekey", "", "-t", "rsa", "-b", "2048") },
		"SSH RSA, PEM, encrypted": func(t *testing.T) signingCase {
			return sshCase(t, "ssh-privatekey", phrase, "-t", "rsa", "-b", "2048", "-m", "PEM")
		},
		"SSH ECDSA, PKCS #8":       func(t *testing.T) signingCase { return sshCase(t, "ssh-privatekey", "", "-t", "ecdsa", "-m", "PKCS8") },
		"OpenPGP Ed25519":          func(t *testing.T) signingCase { return pgpCase(t, "ed25519", "") },
		"OpenPGP Ed25519, phrase":  func(t *testing.T) signingCase { return pgpCase(t, "ed25519", phrase) },
		"OpenPGP RSA, phrase":      func(t *testing.T) signingCase { return pgpCase(t, "rsa2048", phrase) },
		"OpenPGP ECDSA, phrase":    func(t *testing.T) signingCase { return pgpCase(t, "nistp256", phrase) },
		"OpenPGP, a subkey signs":  pgpSubkeyCase,
		"OpenPGP ECDSA over P-521": func(t *testing.T) signingCase { return pgpCase(t, "nistp521", "") },
	} {
		t.Run(name, func(t *testing.T) {
			key := prepare(t)
			messages := []string{"no line break at the end", "one\n", "", "Grüße 山\n\n# not a comment\n-----BEGIN SSH SIGNATURE-----\n"}
			push := func() (*fixture, []string) {
				f := setup(t)
				f.configure(t, key.setting, key.value)
				repository := f.openSigned(t, key.secret)
				var commits []git.Commit
				for i, message := range messages {
					c := commit("a.yaml", strings.Repeat("a", i+1)+": 1\n")
					c.Author.Name = "Zoë 山田"
					c.Message = func([]string) string { return message }
					commits = append(commits, c)
				}
				built, err := repository.Push(t.Context(), "main", commits, nil)
				if err != nil {
					t.Fatal(err)
				}
				var hashes []string
				for _, b := range built {
					hashes = append(hashes, b.Hash)
				}
				return f, hashes
			}
			f, first := push()
			f.mustVerify(t, "main", len(messages))
			wantEqual(t, "author", f.Must("show", "-s", "--format=%an <%ae>", first[0]), "Zoë 山田 <alice@example.com>")
			wantEqual(t, "committer", f.Must("show", "-s", "--format=%cn <%ce>", first[0]), "kommit <kommit@example.com>")
			for i, message := range messages {
				wantEqual(t, "message", strings.TrimRight(f.Must("show", "-s", "--format=%B", first[i]), "\n"), strings.TrimRight(message, "\n"))
			}
			_, second := push()
			wantEqual(t, "hashes of the same commits", strings.Join(second, " "), strings.Join(first, " "))
		})
	}
}

// A batch, a replay on a tip that moved, and a retry after a failure: each commit is
// signed as it lands.
func TestReplayedCommitsAreSignedAgain(t *testing.T) {
	key := sshCase(t, "ssh-privatekey", "", "-t", "ecdsa")
	f := setup(t)
	f.configure(t, key.setting, key.value)
	repository := f.openSigned(t, key.secret)
	commits := []git.Commit{commit("a.yaml", "a: 1\n"), commit("b.yaml", "b: 1\n")}

	full := errors.New("the disk is full")
	var recorded []string
	_, err := repository.Push(t.Context(), "main", commits, func(built []git.Built) error {
		recorded = []string{built[0].Hash, built[1].Hash}
		return full
	})
	if !errors.Is(err, full) {
		t.Fatalf("Push: %v, want the error of record", err)
	}
	wantEqual(t, "head before the retry", f.MustHead("main"), "")
	foreign, moved := "", commits[1]
	built, err := repository.Push(t.Context(), "main", commits[:1], nil)
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "the retried commit", built[0].Hash, recorded[0])

	plain := moved.Edit
	moved.Edit = func(ctx context.Context, tree *git.Tree) ([]git.File, error) {
		if foreign == "" {
			foreign = f.MustCommit("main", map[string]string{"foreign": "1\n"})
		}
		return plain(ctx, tree)
	}
	var attempts []string
	if _, err := repository.Push(t.Context(), "main", []git.Commit{moved}, func(built []git.Built) error {
		attempts = append(attempts, built[0].Hash)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(attempts) != 2 {
		t.Fatalf("%d attempts, want 2", len(attempts))
	}
	wantEqual(t, "the first attempt, made before the branch moved", attempts[0], recorded[1])
	wantEqual(t, "head", f.MustHead("main"), attempts[1])
	wantEqual(t, "parent", f.Must("rev-parse", "main^"), foreign)
	f.Must("verify-commit", "main")
	f.Must("verify-commit", "main~2")
}

// A server that demands signatures takes ours and no others.
func TestServerThatDemandsSignatures(t *testing.T) {
	for name, key := range map[string]signingCase{
		"SSH":     sshCase(t, "ssh-privatekey", "", "-t", "ed25519"),
		"OpenPGP": pgpCase(t, "ed25519", phrase),
	} {
		t.Run(name, func(t *testing.T) {
			f := setup(t)
			f.configure(t, key.setting, key.value)
			f.MustHook("update", `git verify-commit "$3" || { echo "sign your commits" >&2; exit 1; }`)
			_, err := f.repo.Push(t.Context(), "main", []git.Commit{commit("a.yaml", "a: 1\n")}, nil)
			if refused := wantError[*git.RefusedError](t, err); !strings.Contains(refused.Text, "sign your commits") {
				t.Errorf("text is %q", refused.Text)
			}
			other := sshCase(t, "ssh-privatekey", "", "-t", "ed25519")
			_, err = f.openSigned(t, other.secret).Push(t.Context(), "main", []git.Commit{commit("a.yaml", "a: 1\n")}, nil)
			wantError[*git.RefusedError](t, err)
			wantEqual(t, "head after what was refused", f.MustHead("main"), "")
			built, err := f.openSigned(t, key.secret).Push(t.Context(), "main", []git.Commit{commit("a.yaml", "a: 1\n")}, nil)
			if err != nil {
				t.Fatal(err)
			}
			wantEqual(t, "head", f.MustHead("main"), built[0].Hash)
		})
	}
}

// Without a usable key nothing is committed, and nothing unsigned.
func TestNoKeyNoCommit(t *testing.T) {
	f := setup(t)
	secret := errors.New("the Secret is gone")
	recorded := func([]git.Built) error { t.Error("a commit was made"); return nil }
	_, err := f.openWith(t, f.secret, func(context.Context) (git.Signer, error) { return git.Signer{}, secret }).
		Push(t.Context(), "main", []git.Commit{commit("a.yaml", "a: 1\n")}, recorded)
	if !errors.Is(err, secret) {
		t.Errorf("Push: %v, want the error of Config.Signer", err)
	}
	_, err = f.openWith(t, f.secret, func(context.Context) (git.Signer, error) { return git.Signer{}, nil }).
		Push(t.Context(), "main", []git.Commit{commit("a.yaml", "a: 1\n")}, recorded)
	wantError[*git.SecretError](t, err)
	wantEqual(t, "head", f.MustHead("main"), "")
	wantEqual(t, "pushes", f.posts(t), 0)
}

// The key is read where a commit is made, and not for what is there already, what
// changes nothing, or what is only shown.
func TestKeyIsReadForCommitsOnly(t *testing.T) {
	key := sshCase(t, "ssh-privatekey", "", "-t", "ed25519")
	f := setup(t)
	reads := 0
	repository := f.openWith(t, f.secret, func(context.Context) (git.Signer, error) {
		reads++
		return git.ParseSigningSecret(key.secret)
	})
	built, err := repository.Push(t.Context(), "main", []git.Commit{commit("a.yaml", "a: 1\n"), commit("b.yaml", "b: 1\n")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "reads for a batch", reads, 1)
	unchanged, landed := commit("a.yaml", "a: 1\n"), commit("b.yaml", "other: 1\n")
	landed.Recorded = hashesOf(built[1].Hash)
	again, err := repository.Push(t.Context(), "main", []git.Commit{unchanged, landed}, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "what landed before", again[1].Hash, built[1].Hash)
	if _, err := repository.Preview(t.Context(), "main", commit("c.yaml", "c: 1\n")); err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "reads", reads, 1)
}

func TestSignerIsSafeForConcurrentUse(t *testing.T) {
	for name, key := range map[string]signingCase{
		"SSH":     sshCase(t, "ssh-privatekey", "", "-t", "ecdsa"),
		"OpenPGP": pgpCase(t, "nistp256", ""),
	} {
		t.Run(name, func(t *testing.T) {
			signer, err := git.ParseSigningSecret(key.secret)
			if err != nil {
				t.Fatal(err)
			}
			f := setup(t)
			repository := f.openWith(t, f.secret, func(context.Context) (git.Signer, error) { return signer, nil })
			var pushing sync.WaitGroup
			for _, branch := range []string{"a", "b", "c"} {
				pushing.Go(func() {
					if _, err := repository.Push(t.Context(), branch, []git.Commit{commit("a.yaml", "a: 1\n")}, nil); err != nil {
						t.Error(err)
					}
				})
			}
			pushing.Wait()
			wantEqual(t, "the same commit on b", f.MustHead("b"), f.MustHead("a"))
			wantEqual(t, "the same commit on c", f.MustHead("c"), f.MustHead("a"))
		})
	}
}

// A key that can be read and is then too weak for the library to sign with.
func TestKeyThatCannotSign(t *testing.T) {
	t.Setenv("GODEBUG", "rsa1024min=0") // to make it
	weak, err := rsa.GenerateKey(rand.Reader, 768)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GODEBUG", "")
	key := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(weak)})
	f := setup(t)
	_, err = f.openSigned(t, secretOf("ssh-privatekey", string(key))).Push(t.Context(), "main", []git.Commit{commit("a.yaml", "a: 1\n")}, nil)
	e := wantError[*git.SecretError](t, err)
	wantNoSecret(t, e.Error(), key)
	wantEqual(t, "head", f.MustHead("main"), "")
}
