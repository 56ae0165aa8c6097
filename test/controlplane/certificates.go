// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	authorityLifetime   = 10 * 365 * 24 * time.Hour
	certificateLifetime = 365 * 24 * time.Hour
	// renewBefore: a certificate found on disk is used only if it lasts longer.
	renewBefore = 7 * 24 * time.Hour
)

// subject is what a certificate says about its holder. Client certificates
// carry the Kubernetes user name as common name and the groups as organizations.
type subject struct {
	Name   string
	Groups []string
	// Hosts, DNS names, make it a serving certificate (127.0.0.1 is added).
	Hosts  []string
	Client bool
}

// certificate is a certificate and its key, in memory and on disk.
type certificate struct {
	CertFile, KeyFile string
	CertPEM, KeyPEM   []byte
	cert              *x509.Certificate
	key               crypto.Signer
}

// authority is a certificate that issues others into one folder.
type authority struct{ certificate }

// newAuthority loads the authority name from dir, or makes it.
func newAuthority(dir, name string, now time.Time) (*authority, error) {
	c, err := load(dir, name)
	if err == nil && now.Add(certificateLifetime).Before(c.cert.NotAfter) {
		return &authority{c}, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	c, err = issue(&x509.Certificate{
		Subject:  pkix.Name{CommonName: "kommit-test-" + name},
		NotAfter: now.Add(authorityLifetime),
		IsCA:     true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
	}, nil, now)
	if err != nil {
		return nil, fmt.Errorf("make authority %s: %w", name, err)
	}
	return &authority{c}, c.save(dir, name)
}

// ensure returns the certificate name in dir: the one on disk when it says the
// same and lasts, a new one else.
func (a *authority) ensure(dir, name string, s subject, now time.Time) (certificate, error) {
	want := x509.Certificate{
		Subject:  pkix.Name{CommonName: s.Name, Organization: s.Groups},
		NotAfter: now.Add(certificateLifetime),
		KeyUsage: x509.KeyUsageDigitalSignature,
		DNSNames: s.Hosts,
	}
	if len(s.Hosts) > 0 {
		want.ExtKeyUsage = append(want.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		// 10.96.0.1: the ClusterIP of the kubernetes Service.
		want.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 96, 0, 1)}
	}
	if s.Client {
		want.ExtKeyUsage = append(want.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	have, err := load(dir, name)
	switch {
	case err == nil && a.issuedAlike(have.cert, &want) && now.Add(renewBefore).Before(have.cert.NotAfter):
		return have, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return certificate{}, err
	}
	c, err := issue(&want, a, now)
	if err != nil {
		return certificate{}, fmt.Errorf("issue certificate %s: %w", name, err)
	}
	if err := c.save(dir, name); err != nil {
		return certificate{}, err
	}
	return c, nil
}

func (a *authority) issuedAlike(have, want *x509.Certificate) bool {
	return have.CheckSignatureFrom(a.cert) == nil &&
		have.Subject.CommonName == want.Subject.CommonName &&
		slices.Equal(have.Subject.Organization, want.Subject.Organization) &&
		slices.Equal(have.DNSNames, want.DNSNames) &&
		slices.Equal(have.ExtKeyUsage, want.ExtKeyUsage)
}

func issue(template *x509.Certificate, by *authority, now time.Time) (certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return certificate{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return certificate{}, err
	}
	template.SerialNumber = serial
	template.NotBefore = now.Add(-5 * time.Minute) // clocks of one machine may be set back
	template.BasicConstraintsValid = true
	parent, signer := template, crypto.Signer(key)
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return certificate{}, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return certificate{}, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return certificate{}, err
	}
	return certificate{
		CertPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		KeyPEM:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
		cert:    cert,
		key:     key,
	}, nil
}

func (c *certificate) save(dir, name string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	c.CertFile, c.KeyFile = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	// Key first: a certificate on disk always has its key beside it.
	if err := os.WriteFile(c.KeyFile, c.KeyPEM, 0o600); err != nil {
		return err
	}
	return os.WriteFile(c.CertFile, c.CertPEM, 0o600)
}

func load(dir, name string) (certificate, error) {
	c := certificate{CertFile: filepath.Join(dir, name+".crt"), KeyFile: filepath.Join(dir, name+".key")}
	var err error
	if c.CertPEM, err = os.ReadFile(c.CertFile); err != nil {
		return certificate{}, err
	}
	if c.KeyPEM, err = os.ReadFile(c.KeyFile); err != nil {
		return certificate{}, err
	}
	certBlock, _ := pem.Decode(c.CertPEM)
	keyBlock, _ := pem.Decode(c.KeyPEM)
	if certBlock == nil || keyBlock == nil {
		return certificate{}, fmt.Errorf("%s or its key holds no PEM block: remove both", c.CertFile)
	}
	if c.cert, err = x509.ParseCertificate(certBlock.Bytes); err != nil {
		return certificate{}, fmt.Errorf("%s: %w", c.CertFile, err)
	}
	key, err := x509.ParsePKCS8PrivateKey(keyBlock.Bytes)
	if err != nil {
		return certificate{}, fmt.Errorf("%s: %w", c.KeyFile, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return certificate{}, fmt.Errorf("%s: a %T cannot sign", c.KeyFile, key)
	}
	c.key = signer
	return c, nil
}

// serviceAccountKeys returns the files of the key pair that signs the tokens
// of ServiceAccounts, making them first if need be.
func serviceAccountKeys(dir string) (private, public string, err error) {
	private, public = filepath.Join(dir, "service-account.key"), filepath.Join(dir, "service-account.pub")
	if b, err := os.ReadFile(public); err == nil && bytes.Contains(b, []byte("PUBLIC KEY")) {
		return private, public, nil
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return "", "", err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return "", "", err
	}
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	if err := os.WriteFile(private, keyPEM, 0o600); err != nil {
		return "", "", err
	}
	return private, public, os.WriteFile(public, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600)
}
