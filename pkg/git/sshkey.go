// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"slices"
	"sync"

	"golang.org/x/crypto/ssh"
)

// What can be wrong with an SSH private key. The texts read on from the name of
// the key of the Secret, and hold nothing of its content.
var (
	errKeyFormat         = errors.New("must be a private key in the form that ssh-keygen writes: RSA, ECDSA or Ed25519")
	errKeyPKCS8          = errors.New("is in encrypted PKCS #8, which cannot be read: rewrite it with ssh-keygen -p -f FILE")
	errKeyPassphrase     = errors.New("is encrypted: put its passphrase into the key passphrase of the Secret")
	errKeyPassphraseFits = errors.New("cannot be decrypted with the passphrase: correct one of the two")
	errKeyType           = errors.New("is of a type that is not accepted: make another one with ssh-keygen -t ed25519")
)

// parseSSHKey reads an SSH private key in the format of OpenSSH, or in PEM as
// PKCS #1, PKCS #8 or SEC 1. The passphrase is ignored when the key is not
// encrypted. The error is one of the above.
func parseSSHKey(key []byte, passphrase string) (ssh.Signer, error) {
	signer, err := ssh.ParsePrivateKey(key)
	if _, encrypted := errors.AsType[*ssh.PassphraseMissingError](err); encrypted {
		if passphrase == "" {
			return nil, errKeyPassphrase
		}
		signer, err = ssh.ParsePrivateKeyWithPassphrase(key, []byte(passphrase))
	}
	switch {
	case errors.Is(err, x509.IncorrectPasswordError):
		return nil, errKeyPassphraseFits
	case err != nil:
		if block, _ := pem.Decode(key); block != nil && block.Type == "ENCRYPTED PRIVATE KEY" {
			return nil, errKeyPKCS8
		}
		return nil, errKeyFormat
	case !slices.Contains(plainHostKeyTypes(), signer.PublicKey().Type()):
		return nil, errKeyType
	}
	return signer, nil
}

// keyring keeps the last private key unlocked: a passphrase is made slow to try.
// Safe for concurrent use.
type keyring struct {
	mu         sync.Mutex // protects the fields below
	key        []byte
	passphrase string
	signer     ssh.Signer
}

// unlock returns the key to log in with. The error is a *SecretError.
func (k *keyring) unlock(m material) (ssh.Signer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.signer != nil && bytes.Equal(k.key, m.sshPrivateKey) && k.passphrase == m.sshPassphrase {
		return k.signer, nil
	}
	signer, err := parseSSHKey(m.sshPrivateKey, m.sshPassphrase)
	if err != nil {
		return nil, &SecretError{Key: m.sshKeyName, Reason: err.Error()}
	}
	if algorithms, ok := signer.(ssh.AlgorithmSigner); ok { // no RSA with SHA-1
		if signer, err = ssh.NewSignerWithAlgorithms(algorithms, signatures(signer.PublicKey().Type())); err != nil {
			return nil, &SecretError{Key: m.sshKeyName, Reason: errKeyType.Error()}
		}
	}
	k.key, k.passphrase, k.signer = m.sshPrivateKey, m.sshPassphrase, signer
	return signer, nil
}
