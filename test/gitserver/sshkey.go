// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package gitserver

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"fmt"

	"golang.org/x/crypto/ssh"
)

// NewKey makes a private key of type ed25519, ecdsa or rsa, and its file in the
// format of OpenSSH, protected by the passphrase unless that is empty.
func NewKey(keyType, passphrase string) (ssh.Signer, []byte, error) {
	var key crypto.PrivateKey
	var err error
	switch keyType {
	case "ed25519":
		_, key, err = ed25519.GenerateKey(rand.Reader)
	case "ecdsa":
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "rsa":
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	default:
		err = fmt.Errorf("no key of type %q can be made", keyType)
	}
	if err != nil {
		return nil, nil, err
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		return nil, nil, err
	}
	var block *pem.Block
	if passphrase == "" {
		block, err = ssh.MarshalPrivateKey(key, "")
	} else {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(key, "", []byte(passphrase))
	}
	if err != nil {
		return nil, nil, err
	}
	return signer, pem.EncodeToMemory(block), nil
}

// certify makes a host certificate that does not expire.
func certify(authority ssh.Signer, key ssh.PublicKey, host string) (*ssh.Certificate, error) {
	cert := &ssh.Certificate{
		Key:             key,
		CertType:        ssh.HostCert,
		KeyId:           "test",
		ValidPrincipals: []string{host},
		ValidBefore:     ssh.CertTimeInfinity,
	}
	return cert, cert.SignCert(rand.Reader, authority)
}
