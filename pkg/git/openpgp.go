// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	pgpecdsa "github.com/ProtonMail/go-crypto/openpgp/ecdsa"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// What can be wrong with an OpenPGP private key; see errKeyFormat.
var (
	errPGPFormat         = errors.New("must be one armored OpenPGP private key, as gpg --export-secret-keys --armor writes it")
	errPGPSeveral        = errors.New("must hold one key, not several: export the one that is to sign")
	errPGPVersion        = errors.New("must be a key of version 4, as gpg makes them")
	errPGPPublic         = errors.New("holds no private key that can sign: export it with gpg --export-secret-keys")
	errPGPPassphrase     = errors.New("is encrypted: put its passphrase into the key passphrase of the Secret")
	errPGPPassphraseFits = errors.New("cannot be decrypted with the passphrase: correct one of the two")
	errPGPProtection     = errors.New("is encrypted in a way that is not accepted: export it with gpg, which uses iterated and salted passphrases")
	errPGPKind           = errors.New("must be an RSA, Ed25519 or NIST-curve ECDSA key: signatures of other kinds differ each time")
)

// openPGPSigningKey signs as gpg does.
type openPGPSigningKey struct{ entity *openpgp.Entity }

var _ signingKey = openPGPSigningKey{}

// parseOpenPGPKey reads an armored private key. The error is one of the above.
func parseOpenPGPKey(armored []byte, passphrase string) (signingKey, error) {
	ring, err := openpgp.ReadArmoredKeyRing(bytes.NewReader(armored))
	switch {
	case err != nil || len(ring) == 0:
		return nil, errPGPFormat
	case len(ring) > 1:
		return nil, errPGPSeveral
	}
	entity := ring[0]
	if entity.PrimaryKey.Version != 4 {
		return nil, errPGPVersion
	}
	// What has no private part here cannot be chosen. A primary key without one is
	// common: it is kept elsewhere, and a subkey signs.
	entity.Subkeys = slices.DeleteFunc(entity.Subkeys, func(s openpgp.Subkey) bool {
		return !usable(s.PrivateKey) || !s.PublicKey.PubKeyAlgo.CanSign()
	})
	var keys []*packet.PrivateKey
	if usable(entity.PrivateKey) {
		keys = append(keys, entity.PrivateKey)
	}
	for _, s := range entity.Subkeys {
		keys = append(keys, s.PrivateKey)
	}
	if len(keys) == 0 {
		return nil, errPGPPublic
	}
	if err := unlock(keys, passphrase); err != nil {
		return nil, err
	}
	for _, key := range keys {
		if err := makeDeterministic(key); err != nil {
			return nil, err
		}
	}
	return openPGPSigningKey{entity}, nil
}

func usable(key *packet.PrivateKey) bool { return key != nil && !key.Dummy() }

func unlock(keys []*packet.PrivateKey, passphrase string) error {
	for _, key := range keys {
		if !key.Encrypted {
			continue
		}
		if passphrase == "" {
			return errPGPPassphrase
		}
		if err := checkProtection(key); err != nil {
			return err
		}
	}
	if err := packet.DecryptPrivateKeys(keys, []byte(passphrase)); err != nil {
		return errPGPPassphraseFits
	}
	return nil
}

// checkProtection accepts a key that costs a bounded effort to decrypt: with
// Argon2, whoever wrote the Secret would say how much memory that takes.
func checkProtection(key *packet.PrivateKey) error {
	private, err := contents(key.Serialize)
	if err != nil {
		return errPGPFormat
	}
	public, err := contents(key.PublicKey.Serialize)
	if err != nil {
		return errPGPFormat
	}
	// After the public part: how it is protected, the cipher, the kind of derivation
	// (RFC 9580, 5.5.3 and 3.7.1).
	rest, ok := bytes.CutPrefix(private, public)
	const (
		checkedBySHA1, checkedBySum = 254, 255
		argon2                      = 4
	)
	if !ok || len(rest) < 3 || (rest[0] != checkedBySHA1 && rest[0] != checkedBySum) || rest[2] == argon2 {
		return errPGPProtection
	}
	return nil
}

// contents is what a packet holds.
func contents(serialize func(io.Writer) error) ([]byte, error) {
	var b bytes.Buffer
	if err := serialize(&b); err != nil {
		return nil, err
	}
	p, err := packet.NewOpaqueReader(&b).Next()
	if err != nil {
		return nil, err
	}
	return p.Contents, nil
}

// makeDeterministic has the key sign the same way each time (G5).
func makeDeterministic(key *packet.PrivateKey) error {
	switch key.PubKeyAlgo {
	case packet.PubKeyAlgoRSA, packet.PubKeyAlgoRSASignOnly, packet.PubKeyAlgoEdDSA, packet.PubKeyAlgoEd25519, packet.PubKeyAlgoEd448:
		return nil
	case packet.PubKeyAlgoECDSA:
	default:
		return errPGPKind
	}
	private, ok := key.PrivateKey.(*pgpecdsa.PrivateKey)
	if !ok {
		return errPGPKind
	}
	for _, curve := range []elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521()} {
		if curve.Params().Name != private.GetCurve().GetCurveName() {
			continue
		}
		standard, err := ecdsa.ParseRawPrivateKey(curve, private.D.FillBytes(make([]byte, (curve.Params().BitSize+7)/8)))
		if err != nil {
			return errPGPFormat
		}
		key.PrivateKey = deterministicECDSA{standard}
		return nil
	}
	return errPGPKind
}

// deterministicECDSA signs as RFC 6979 says.
type deterministicECDSA struct{ *ecdsa.PrivateKey }

var _ crypto.Signer = deterministicECDSA{}

func (k deterministicECDSA) Sign(_ io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	return k.PrivateKey.Sign(nil, digest, opts)
}

func (k openPGPSigningKey) validAt(now time.Time) error {
	key, ok := k.entity.SigningKey(now)
	if ok && usable(key.PrivateKey) {
		return nil
	}
	return &SecretError{Key: openPGPKey, Reason: k.whyNot(now)}
}

// whyNot says why nothing can be signed now.
func (k openPGPSigningKey) whyNot(now time.Time) string {
	self, identity := k.entity.PrimarySelfSignature()
	revoked := k.entity.Revoked(now) || identity != nil && identity.Revoked(now)
	switch made, last := k.entity.PrimaryKey.CreationTime, k.newest(); {
	case self == nil:
		return "is not signed by itself: export it again with gpg --export-secret-keys --armor"
	case revoked:
		return "was revoked: put another key into the Secret"
	case last.After(now):
		return fmt.Sprintf("was created in the future, at %s: set the clock of this server, or of the machine that made the key", last.UTC().Format(time.RFC3339))
	case k.entity.PrimaryKey.KeyExpired(self, now):
		expired := made.Add(time.Duration(*self.KeyLifetimeSecs) * time.Second)
		return fmt.Sprintf("expired at %s: extend it with gpg --quick-set-expire and export it again", expired.UTC().Format(time.RFC3339))
	}
	return "holds no private key that may sign now: each has expired, was revoked, or is for other uses"
}

// newest is when the last of what makes a key usable was made.
func (k openPGPSigningKey) newest() time.Time {
	last := k.entity.PrimaryKey.CreationTime
	if self, _ := k.entity.PrimarySelfSignature(); self != nil {
		last = later(last, self.CreationTime)
	}
	for _, s := range k.entity.Subkeys {
		last = later(last, later(s.PublicKey.CreationTime, s.Sig.CreationTime))
	}
	return last
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// sign dates the signature as the commit, but not before the key: a commit that
// waited for its key could not be signed otherwise.
func (k openPGPSigningKey) sign(message []byte, made, now time.Time) (string, error) {
	key, ok := k.entity.SigningKey(now)
	if !ok {
		return "", errors.New(openPGPKey + " " + k.whyNot(now))
	}
	self, _ := k.entity.PrimarySelfSignature()
	for _, t := range []time.Time{k.entity.PrimaryKey.CreationTime, self.CreationTime, key.PublicKey.CreationTime, key.SelfSignature.CreationTime} {
		made = later(made, t)
	}
	noSalt := false
	config := &packet.Config{
		DefaultHash:  crypto.SHA512,
		Time:         func() time.Time { return made },
		SigningKeyId: key.PublicKey.KeyId,
		// A random notation would make each signature another one.
		NonDeterministicSignaturesViaNotation: &noSalt,
	}
	var b strings.Builder
	w, err := armor.Encode(&b, openpgp.SignatureType, nil)
	if err != nil {
		return "", err
	}
	if err := openpgp.DetachSign(w, k.entity, bytes.NewReader(message), config); err != nil {
		return "", err
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	return b.String() + "\n", nil
}
