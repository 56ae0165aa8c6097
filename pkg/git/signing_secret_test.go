// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git_test

import (
	"bytes"
	"crypto/dsa" //nolint:staticcheck // to see that it is refused
	"crypto/rand"
	"encoding/asn1"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/ProtonMail/go-crypto/openpgp/s2k"

	"github.com/kommit-dev/kommit/pkg/git"
)

func TestParseSigningSecretRefuses(t *testing.T) {
	private, public := sshKeygen(t, "", "-t", "ed25519")
	encrypted, _ := sshKeygen(t, phrase, "-t", "ed25519")
	encryptedPEM, _ := sshKeygen(t, phrase, "-t", "rsa", "-b", "2048", "-m", "PEM")
	g := newGnuPG(t)
	g.generate("ed25519", phrase, "never")
	pgp := g.export("export-secret-keys", phrase)
	pgpPublic := g.run("--armor", "--export")
	pgpBinary := g.run("--passphrase", phrase, "--export-secret-keys")
	g.generate("rsa2048", phrase, "never", "--allow-freeform-uid", "--yes")
	two := g.export("export-secret-keys", phrase)

	for name, tc := range map[string]struct {
		data map[string][]byte
		key  string
		cure string // a part of the reason
	}{
		"empty":                            {nil, "", "expected an SSH"},
		"other keys only":                  {secretOf("username", "x", "password", "y"), "", "expected an SSH"},
		"blank":                            {secretOf("ssh-privatekey", " \n"), "", "expected an SSH"},
		"no key at all":                    {secretOf("identity", "s3cret phrase"), "identity", "ssh-keygen"},
		"the public SSH key":               {secretOf("ssh-privatekey", string(public)), "ssh-privatekey", "private key"},
		"SSH, passphrase missing":          {secretOf("sshPrivateKey", string(encrypted)), "sshPrivateKey", "put its passphrase"},
		"SSH, passphrase wrong":            {secretOf("ssh-privatekey", string(encrypted), "passphrase", phrase+"!"), "ssh-privatekey", "correct one"},
		"SSH in PEM, passphrase missing":   {secretOf("ssh-privatekey", string(encryptedPEM)), "ssh-privatekey", "put its passphrase"},
		"SSH in PEM, passphrase wrong":     {secretOf("ssh-privatekey", string(encryptedPEM), "passphrase", phrase+"!"), "ssh-privatekey", "correct one"},
		"SSH, cut short":                   {secretOf("ssh-privatekey", string(private[:len(private)/2])), "ssh-privatekey", "ssh-keygen"},
		"SSH DSA":                          {secretOf("ssh-privatekey", string(dsaKey(t))), "ssh-privatekey", "ed25519"},
		"both kinds":                       {secretOf("ssh-privatekey", string(private), "git.asc", string(pgp), "passphrase", phrase), "git.asc", "together with ssh-privatekey"},
		"several lines in the passphrase":  {secretOf("git.asc", string(pgp), "passphrase", phrase+"\nmore"), "passphrase", "line breaks"},
		"OpenPGP, passphrase missing":      {secretOf("git.asc", string(pgp)), "git.asc", "put its passphrase"},
		"OpenPGP, passphrase wrong":        {secretOf("git.asc", string(pgp), "passphrase", phrase+"!"), "git.asc", "correct one"},
		"OpenPGP, the public key":          {secretOf("git.asc", string(pgpPublic)), "git.asc", "export-secret-keys"},
		"OpenPGP, not armored":             {secretOf("git.asc", string(pgpBinary), "passphrase", phrase), "git.asc", "--armor"},
		"OpenPGP, cut short":               {secretOf("git.asc", string(pgp[:len(pgp)/2]), "passphrase", phrase), "git.asc", "--armor"},
		"OpenPGP, two keys":                {secretOf("git.asc", string(two), "passphrase", phrase), "git.asc", "not several"},
		"OpenPGP, SSH key under its name":  {secretOf("git.asc", string(private)), "git.asc", "--armor"},
		"SSH, OpenPGP key under its name":  {secretOf("identity", string(pgp), "passphrase", phrase), "identity", "ssh-keygen"},
		"OpenPGP DSA, random signatures":   {secretOf("git.asc", string(gpgKey(t, "dsa1024"))), "git.asc", "RSA, Ed25519"},
		"OpenPGP brainpool":                {secretOf("git.asc", string(gpgKey(t, "brainpoolP256r1"))), "git.asc", "NIST-curve"},
		"OpenPGP, as much memory as asked": {secretOf("git.asc", string(argon2Key(t)), "passphrase", phrase), "git.asc", "export it with gpg"},
	} {
		t.Run(name, func(t *testing.T) {
			signer, err := git.ParseSigningSecret(tc.data)
			e := wantError[*git.SecretError](t, err)
			wantEqual(t, "key", e.Key, tc.key)
			if !strings.Contains(e.Reason, tc.cure) {
				t.Errorf("reason is %q, want the cure: %s", e.Reason, tc.cure)
			}
			var contents [][]byte
			for _, value := range tc.data {
				contents = append(contents, value)
			}
			wantNoSecret(t, e.Error(), contents...)
			wantError[*git.SecretError](t, signer.ValidAt(time.Now())) // the zero value never signs
		})
	}
}

func gpgKey(t *testing.T, algorithm string) []byte {
	t.Helper()
	g := newGnuPG(t)
	g.generate(algorithm, "", "never")
	return g.export("export-secret-keys", "")
}

// dsaKey is in OpenSSL's form; ssh-keygen does not make any more.
func dsaKey(t *testing.T) []byte {
	t.Helper()
	var key dsa.PrivateKey
	if err := dsa.GenerateParameters(&key.Parameters, rand.Reader, dsa.L1024N160); err != nil {
		t.Fatal(err)
	}
	if err := dsa.GenerateKey(&key, rand.Reader); err != nil {
		t.Fatal(err)
	}
	der, err := asn1.Marshal(struct {
		Version       int
		P, Q, G, Y, X *big.Int
	}{0, key.P, key.Q, key.G, key.Y, key.X})
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "DSA PRIVATE KEY", Bytes: der})
}

// argon2Key takes the memory that it says to decrypt: up to terabytes.
func argon2Key(t *testing.T) []byte {
	t.Helper()
	config := &packet.Config{
		Algorithm:  packet.PubKeyAlgoEdDSA,
		AEADConfig: &packet.AEADConfig{},
		S2KConfig:  &s2k.Config{S2KMode: s2k.Argon2S2K, Argon2Config: &s2k.Argon2Config{NumberOfPasses: 1, DegreeOfParallelism: 1, Memory: 1 << 10}},
	}
	entity, err := openpgp.NewEntity("kommit", "", "kommit@example.com", config)
	if err != nil {
		t.Fatal(err)
	}
	if err := entity.EncryptPrivateKeys([]byte(phrase), config); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w, err := armor.Encode(&b, openpgp.PrivateKeyType, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := entity.SerializePrivateWithoutSigning(w, config); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// What a key is worth changes with time; what is wrong with it is said.
func TestOpenPGPKeyIsValidForATime(t *testing.T) {
	made := time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
	g := newGnuPG(t)
	g.generate("ed25519", "", "1y", "--faked-system-time", made.Format("20060102T150405")+"!")
	data := secretOf("git.asc", string(g.export("export-secret-keys", "")))
	signer, err := git.ParseSigningSecret(data)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		now  time.Time
		said string
	}{
		"before it was made": {made.Add(-time.Hour), "2024-05-01T12:00:00Z"},
		"when it was made":   {made, ""},
		"later":              {made.AddDate(0, 6, 0), ""},
		"when it is over":    {made.AddDate(2, 0, 0), "2025-05-01T12:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			err := signer.ValidAt(tc.now)
			if tc.said == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			e := wantError[*git.SecretError](t, err)
			wantEqual(t, "key", e.Key, "git.asc")
			if !strings.Contains(e.Reason, tc.said) {
				t.Errorf("reason is %q, want the time %s", e.Reason, tc.said)
			}
		})
	}
	// It has expired: Push sees that by itself.
	f := setup(t)
	_, err = f.openSigned(t, data).Push(t.Context(), "main", []git.Commit{commit("a.yaml", "a: 1\n")}, nil)
	wantError[*git.SecretError](t, err)
	wantEqual(t, "head", f.MustHead("main"), "")
}

func TestG9SignersPrintNowhere(t *testing.T) {
	private, _ := sshKeygen(t, phrase, "-t", "ed25519")
	signer, err := git.ParseSigningSecret(secretOf("ssh-privatekey", string(private), "passphrase", phrase))
	if err != nil {
		t.Fatal(err)
	}
	type holder struct {
		Exported   git.Signer
		unexported git.Signer
		pointer    *git.Signer
	}
	h := holder{signer, signer, &signer}
	_, _ = h.unexported, h.pointer
	for _, v := range []any{signer, &signer, []git.Signer{signer}, map[string]any{"s": signer}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			if s := fmt.Sprintf(verb, v); !strings.Contains(s, "redacted") && !strings.HasPrefix(s, "0x") {
				t.Errorf("%s prints %s", verb, s)
			}
		}
		b, err := json.Marshal(v)
		if err != nil || !strings.Contains(string(b), "redacted") {
			t.Errorf("JSON is %s (%v)", b, err)
		}
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%x"} {
		s := fmt.Sprintf(verb, h)
		wantNoSecret(t, s, private)
		if len(s) > 300 {
			t.Errorf("%s prints %d bytes: %s", verb, len(s), s)
		}
	}
}
