// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"crypto/x509"
	"errors"

	"golang.org/x/crypto/ssh"
)

// What can be wrong with an SSH private key. The texts read on from the name of
// the key of the Secret, and hold nothing of its content.
var (
	errKeyFormat         = errors.New("must be a private key in the form that ssh-keygen writes: RSA, ECDSA or Ed25519")
	errKeyPassphrase     = errors.New("is encrypted: put its passphrase into the key passphrase of the Secret")
	errKeyPassphraseFits = errors.New("cannot be decrypted with the passphrase: correct one of the two")
	errKeyDSA            = errors.New("is a DSA key, which is not accepted any more: make another one with ssh-keygen -t ed25519")
)

// parseSSHKey reads an SSH private key. The passphrase is ignored when the key is
// not encrypted. The error is one of the above.
func parseSSHKey(pem []byte, passphrase string) (ssh.Signer, error) {
	key, err := ssh.ParsePrivateKey(pem)
	if _, encrypted := errors.AsType[*ssh.PassphraseMissingError](err); encrypted {
		if passphrase == "" {
			return nil, errKeyPassphrase
		}
		key, err = ssh.ParsePrivateKeyWithPassphrase(pem, []byte(passphrase))
	}
	switch {
	case errors.Is(err, x509.IncorrectPasswordError):
		return nil, errKeyPassphraseFits
	case err != nil:
		return nil, errKeyFormat
	case key.PublicKey().Type() == ssh.InsecureKeyAlgoDSA: //nolint:staticcheck // named to be refused
		return nil, errKeyDSA
	}
	return key, nil
}
