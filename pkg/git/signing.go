// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"context"
	"fmt"
	"io"
	"time"
)

// Signer signs commits with a private key, always the same way: a commit that is
// made again gets the same signature and the same hash (G5). It is immutable, safe
// for concurrent use, and prints as a constant in every format. The zero value has
// no key, and nothing is committed with it.
type Signer struct {
	key func() signingKey // a function for the reason that Credentials has
}

// signingKey is one kind of key.
type signingKey interface {
	// validAt says whether the key can be used at that time: nil or a *SecretError.
	validAt(now time.Time) error
	// sign returns an armored signature of the message. It depends on made, when the
	// commit was made, and not on now but for which key of several is the present one.
	// validAt(now) is nil.
	sign(message []byte, made, now time.Time) (string, error)
}

const redactedSigner = "git.Signer{redacted}"

// String does not tell.
func (Signer) String() string { return redactedSigner }

// GoString does not tell.
func (Signer) GoString() string { return redactedSigner }

// Format does not tell, whatever the verb.
func (Signer) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, redactedSigner) }

// MarshalJSON does not tell.
func (Signer) MarshalJSON() ([]byte, error) { return []byte(`"` + redactedSigner + `"`), nil }

// MarshalText does not tell.
func (Signer) MarshalText() ([]byte, error) { return []byte(redactedSigner), nil }

// MarshalLog does not tell (logr).
func (Signer) MarshalLog() any { return redactedSigner }

// openPGPKey is the key of a Secret under which Flux has the OpenPGP key.
const openPGPKey = "git.asc"

// ParseSigningSecret reads the data of a Secret with the key that commits are to be
// signed with, one of
//
//	git.asc                                    an armored OpenPGP private key, with passphrase; as Flux has it
//	ssh-privatekey | identity | sshPrivateKey  an SSH private key, with passphrase (or password)
//
// Other keys are ignored. DSA keys, and OpenPGP keys on curves other than NIST's
// and Ed25519, are not accepted: their signatures differ each time. The error is a
// *SecretError without content of the Secret.
func ParseSigningSecret(data map[string][]byte) (Signer, error) {
	p := secretParser{data: data}
	passphrase, password := p.line("passphrase"), p.line("password")
	armored := p.first(openPGPKey)
	name, sshKey := p.sshKey()
	var key signingKey
	switch {
	case p.err != nil:
	case armored != nil && sshKey != nil:
		p.fail(openPGPKey, fmt.Sprintf("must not be set together with %s: which of the two is to sign?", name))
	case armored != nil:
		pgp, err := parseOpenPGPKey(armored, passphrase)
		if err != nil {
			p.fail(openPGPKey, err.Error())
		}
		key = pgp
	case sshKey != nil:
		if passphrase == "" {
			passphrase = password
		}
		signer, err := parseSSHKey(sshKey, passphrase)
		if err != nil {
			p.fail(name, err.Error())
		}
		key = sshSigningKey{signer}
	default:
		p.fail("", "holds no key to sign with: expected an SSH private key in ssh-privatekey, identity or sshPrivateKey, or an OpenPGP private key in git.asc")
	}
	if p.err != nil {
		return Signer{}, p.err
	}
	return Signer{func() signingKey { return key }}, nil
}

// sshKey returns the SSH private key, and the key of the Secret that it is under.
func (p *secretParser) sshKey() (name string, value []byte) {
	for _, name := range []string{"ssh-privatekey", "identity", "sshPrivateKey"} {
		if value := p.first(name); value != nil {
			return name, value
		}
	}
	return "", nil
}

// ValidAt says whether the key can be used at that time: nil, or a *SecretError
// about a key that has expired, was revoked, or was made in the future. Push looks
// at it too.
func (s Signer) ValidAt(now time.Time) error {
	if s.key == nil {
		return &SecretError{Reason: "holds no key to sign with"}
	}
	return s.key().validAt(now)
}

// signFunc signs a commit that was made at that time.
type signFunc func(ctx context.Context, commit []byte, made time.Time) (string, error)

// signing returns what one Push signs with, nil when commits stay unsigned. The key
// is read when the first commit needs it: what is on the branch already, or changes
// nothing, needs none.
func (r *Repository) signing() signFunc {
	if r.signer == nil {
		return nil
	}
	var key signingKey
	return func(ctx context.Context, commit []byte, made time.Time) (string, error) {
		now := time.Now()
		if key == nil {
			signer, err := r.readSigner(ctx, now)
			if err != nil {
				return "", err
			}
			key = signer.key()
		}
		signature, err := key.sign(commit, made, now)
		if err != nil {
			return "", &SecretError{Reason: "holds a key that cannot sign: " + err.Error()}
		}
		return signature, nil
	}
}

// CheckSigner reads the key that commits are signed with, as Push does, and says
// what it would fail with. It is nil where commits stay unsigned.
func (r *Repository) CheckSigner(ctx context.Context) error {
	if r.signer == nil {
		return nil
	}
	_, err := r.readSigner(ctx, time.Now())
	return err
}

func (r *Repository) readSigner(ctx context.Context, now time.Time) (Signer, error) {
	signer, err := r.signer(ctx)
	if err == nil {
		err = signer.ValidAt(now)
	}
	if err != nil {
		return Signer{}, fmt.Errorf("reading the key that commits are signed with: %w", err)
	}
	return signer, nil
}
