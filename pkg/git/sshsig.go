// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"crypto/sha512"
	"encoding/pem"
	"time"

	"golang.org/x/crypto/ssh"
)

// sshSigningKey signs in the SSHSIG format of OpenSSH (PROTOCOL.sshsig).
type sshSigningKey struct{ key ssh.Signer }

var _ signingKey = sshSigningKey{}

const (
	sshsigVersion   = 1
	sshsigNamespace = "git" // what git asks ssh-keygen to verify for
	sshsigHash      = "sha512"
)

var sshsigMagic = [6]byte{'S', 'S', 'H', 'S', 'I', 'G'}

// signedData is what the key signs instead of the message.
type signedData struct {
	Magic     [6]byte
	Namespace string
	Reserved  string
	Hash      string
	Digest    []byte
}

// sshSignature is the signature as it is kept.
type sshSignature struct {
	Magic     [6]byte
	Version   uint32
	PublicKey []byte
	Namespace string
	Reserved  string
	Hash      string
	Signature []byte
}

// validAt always holds: until when a key counts is in the verifier's file of
// allowed signers.
func (sshSigningKey) validAt(time.Time) error { return nil }

func (s sshSigningKey) sign(message []byte, _, _ time.Time) (string, error) {
	digest := sha512.Sum512(message)
	algorithm := s.key.PublicKey().Type()
	if algorithm == ssh.KeyAlgoRSA {
		algorithm = ssh.KeyAlgoRSASHA512 // the type of the key would mean SHA-1
	}
	signature, err := s.signWith(ssh.Marshal(signedData{sshsigMagic, sshsigNamespace, "", sshsigHash, digest[:]}), algorithm)
	if err != nil {
		return "", err
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "SSH SIGNATURE", Bytes: ssh.Marshal(sshSignature{
		Magic: sshsigMagic, Version: sshsigVersion, PublicKey: s.key.PublicKey().Marshal(),
		Namespace: sshsigNamespace, Hash: sshsigHash, Signature: ssh.Marshal(signature),
	})})), nil
}

// signWith leaves no room for chance (G5): without a source of randomness an
// ECDSA key signs as RFC 6979 says. The other kinds never need one.
func (s sshSigningKey) signWith(data []byte, algorithm string) (*ssh.Signature, error) {
	if key, ok := s.key.(ssh.AlgorithmSigner); ok {
		return key.SignWithAlgorithm(nil, data, algorithm)
	}
	return s.key.Sign(nil, data)
}
