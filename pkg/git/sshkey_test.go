// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"bytes"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/crypto/ssh"
)

// keygen makes a private key with the real ssh-keygen.
func keygen(t *testing.T, args ...string) (key, public []byte) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "id")
	if out, err := exec.CommandContext(t.Context(), "ssh-keygen", append([]string{"-q", "-f", file}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen %q: %v: %s", args, err, out)
	}
	key, err := os.ReadFile(file)
	if err == nil {
		public, err = os.ReadFile(file + ".pub")
	}
	if err != nil {
		t.Fatal(err)
	}
	return key, public
}

// secretOf holds a key in one of the places that Secrets have for it.
func secretOf(key []byte, passphrase string) material {
	return material{sshKeyName: "identity", sshPrivateKey: key, sshPassphrase: passphrase}
}

// wantKeyError checks what is said about the key that secretOf holds.
func wantKeyError(t *testing.T, what any, err, reason error) {
	t.Helper()
	var secret *SecretError
	if !errors.As(err, &secret) || secret.Key != "identity" || secret.Reason != reason.Error() {
		t.Errorf("%q: %v, want a *SecretError: identity %v", what, err, reason)
	}
}

func TestPrivateKeysInEveryForm(t *testing.T) {
	for _, args := range [][]string{
		{"-t", "ed25519"}, {"-t", "ecdsa"}, {"-t", "ecdsa", "-b", "521"}, {"-t", "rsa", "-b", "2048"},
		{"-t", "rsa", "-b", "2048", "-m", "PEM"}, {"-t", "rsa", "-b", "2048", "-m", "PKCS8"}, {"-t", "ecdsa", "-m", "PEM"}, {"-t", "ecdsa", "-m", "PKCS8"},
	} {
		for _, passphrase := range []string{"", "correct horse"} {
			key, public := keygen(t, append(args, "-N", passphrase)...)
			want, _, _, _, err := ssh.ParseAuthorizedKey(public)
			if err != nil {
				t.Fatal(err)
			}
			signer, err := new(keyring).unlock(secretOf(key, passphrase))
			if block, _ := pem.Decode(key); block.Type == "ENCRYPTED PRIVATE KEY" {
				wantKeyError(t, args, err, errKeyPKCS8)
				continue
			}
			if err != nil {
				t.Errorf("%q with passphrase %q: %v", args, passphrase, err)
				continue
			}
			if !bytes.Equal(signer.PublicKey().Marshal(), want.Marshal()) {
				t.Errorf("%q is read as another key", args)
			}
			if several, ok := signer.(ssh.MultiAlgorithmSigner); !ok || want.Type() == ssh.KeyAlgoRSA && len(several.Algorithms()) != 2 {
				t.Errorf("%q may sign with SHA-1", args)
			}
			// Changes of an editor, or of a Windows machine, and a passphrase too many.
			for _, changed := range [][]byte{bytes.TrimSpace(key), bytes.ReplaceAll(key, []byte("\n"), []byte("\r\n"))} {
				if _, err := parseSSHKey(changed, "correct horse"); err != nil {
					t.Errorf("%q with other line ends: %v", args, err)
				}
			}
			if passphrase == "" {
				continue
			}
			_, err = new(keyring).unlock(secretOf(key, ""))
			wantKeyError(t, args, err, errKeyPassphrase)
			_, err = new(keyring).unlock(secretOf(key, "wrong"))
			wantKeyError(t, args, err, errKeyPassphraseFits)
		}
	}
}

func TestPrivateKeysThatAreNone(t *testing.T) {
	_, public := keygen(t, "-t", "ed25519", "-N", "")
	// Not a safe key, but one that can be parsed: ssh-keygen makes none any more.
	one := big.NewInt(1)
	bits := func(n uint) *big.Int { return new(big.Int).Lsh(one, n-1) }
	dsa, err := asn1.Marshal(struct {
		Version       int
		P, Q, G, Y, X *big.Int
	}{0, bits(1024), bits(160), one, one, one})
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string][]byte{
		"a public key": public,
		"text":         []byte("key"),
		"other PEM":    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}),
		"cut":          []byte("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1r\n-----END OPENSSH PRIVATE KEY-----\n"),
		"DSA":          pem.EncodeToMemory(&pem.Block{Type: "DSA PRIVATE KEY", Bytes: dsa}),
	} {
		want := errKeyFormat
		if name == "DSA" {
			want = errKeyType
		}
		_, err := new(keyring).unlock(secretOf(key, ""))
		wantKeyError(t, name, err, want)
	}
}

func TestKeyringOpensAKeyOnce(t *testing.T) {
	key, _ := keygen(t, "-t", "ed25519", "-N", "correct horse")
	var k keyring
	first, err := k.unlock(secretOf(key, "correct horse"))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := k.unlock(secretOf(bytes.Clone(key), "correct horse")); err != nil || again != first {
		t.Errorf("opened again: %v", err)
	}
	if _, err := k.unlock(secretOf(key, "wrong")); err == nil {
		t.Error("a wrong passphrase opens the key that was opened before")
	}
	other, _ := keygen(t, "-t", "ed25519", "-N", "correct horse")
	if second, err := k.unlock(secretOf(other, "correct horse")); err != nil || bytes.Equal(second.PublicKey().Marshal(), first.PublicKey().Marshal()) {
		t.Errorf("another key is taken for the first: %v", err)
	}
}
