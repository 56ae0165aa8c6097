// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode"
)

// Credentials are what a Secret says about how to reach a repository. The zero
// value is anonymous. They are immutable, and print as a constant in every
// format, nested in other values too.
type Credentials struct {
	// A function, because package fmt cannot call the methods below on somebody's
	// unexported field, but looks into everything else that it may find there.
	m func() material
}

type material struct {
	username    string
	password    string
	bearerToken string

	ca                []byte
	clientCertificate []byte
	clientKey         []byte

	sshKeyName    string // the key of the Secret that holds the next
	sshPrivateKey []byte
	sshPassphrase string
	knownHosts    []byte
}

const redacted = "git.Credentials{redacted}"

// String does not tell.
func (Credentials) String() string { return redacted }

// GoString does not tell.
func (Credentials) GoString() string { return redacted }

// Format does not tell, whatever the verb.
func (Credentials) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, redacted) }

// MarshalJSON does not tell.
func (Credentials) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// MarshalText does not tell.
func (Credentials) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalLog does not tell (logr).
func (Credentials) MarshalLog() any { return redacted }

// ParseSecret reads the data of a Secret in the shapes that Kubernetes, Flux and
// Argo CD use:
//
//	username, password                               basic authentication; without a username, "git"
//	bearerToken                                      bearer authentication
//	ssh-privatekey | identity | sshPrivateKey        with passphrase (or password, as Flux) and known_hosts
//	ca.crt | caFile                                  the only authorities that the remote's certificate may come from
//	tls.crt, tls.key | certFile, keyFile |
//	tlsClientCertData, tlsClientCertKey              a client certificate
//
// Line breaks at the end of user names, passwords and tokens are cut off. Other
// keys are ignored. The error is a *SecretError without content of the Secret.
func ParseSecret(data map[string][]byte) (Credentials, error) {
	p := secretParser{data: data}
	m := &material{
		username:          p.line("username"),
		password:          p.line("password"),
		bearerToken:       p.line("bearerToken"),
		sshPassphrase:     p.line("passphrase"),
		knownHosts:        p.first("known_hosts"),
		ca:                p.first("ca.crt", "caFile"),
		clientCertificate: p.first("tls.crt", "certFile", "tlsClientCertData"),
		clientKey:         p.first("tls.key", "keyFile", "tlsClientCertKey"),
	}
	m.sshKeyName, m.sshPrivateKey = p.sshKey()
	if len(m.sshPrivateKey) > 0 && m.sshPassphrase == "" {
		m.sshPassphrase, m.password = m.password, ""
	}
	p.check(m)
	if p.err != nil {
		return Credentials{}, p.err
	}
	return Credentials{func() material { return *m }}, nil
}

type secretParser struct {
	data map[string][]byte
	err  error
}

func (p *secretParser) fail(key, reason string) {
	if p.err == nil {
		p.err = &SecretError{Key: key, Reason: reason}
	}
}

// line reads a value that has to be one line.
func (p *secretParser) line(key string) string {
	value := strings.TrimRight(string(p.data[key]), "\r\n")
	if strings.ContainsFunc(value, unicode.IsControl) {
		p.fail(key, "must not contain line breaks or other control characters")
	}
	return value
}

func (p *secretParser) first(keys ...string) []byte {
	for _, key := range keys {
		if value := p.data[key]; len(bytes.TrimSpace(value)) > 0 {
			return bytes.Clone(value)
		}
	}
	return nil
}

func (p *secretParser) check(m *material) {
	hasKey := len(m.sshPrivateKey) > 0
	switch {
	case m.password == "" && m.bearerToken == "" && !hasKey && m.ca == nil && m.clientCertificate == nil:
		if m.username != "" {
			p.fail("password", "must not be empty when username is set")
			return
		}
		p.fail("", "holds no credentials: expected username and password, bearerToken, ssh-privatekey and known_hosts, ca.crt, or tls.crt and tls.key")
	case m.password != "" && m.bearerToken != "":
		p.fail("bearerToken", "must not be set together with password")
	case strings.Contains(m.username, ":"):
		p.fail("username", "must not contain a colon")
	}
	if m.ca != nil && !x509.NewCertPool().AppendCertsFromPEM(m.ca) {
		p.fail("ca.crt", "must hold a PEM certificate")
	}
	if (m.clientCertificate == nil) != (m.clientKey == nil) {
		p.fail("tls.crt", "and tls.key must be set together")
	} else if m.clientCertificate != nil {
		if _, err := tls.X509KeyPair(m.clientCertificate, m.clientKey); err != nil {
			p.fail("tls.crt", "and tls.key must be a PEM certificate and its PEM key")
		}
	}
}

func (c Credentials) material() material {
	if c.m == nil {
		return material{}
	}
	return c.m()
}

// freshCredentials reads them for one session (G9).
func freshCredentials(ctx context.Context, read func(context.Context) (Credentials, error)) (Credentials, error) {
	if read == nil {
		return Credentials{}, nil
	}
	c, err := read(ctx)
	if err != nil {
		return Credentials{}, fmt.Errorf("reading the credentials: %w", err)
	}
	return c, nil
}

func (c Credentials) equal(d Credentials) bool {
	a, b := c.material(), d.material()
	return a.username == b.username && a.password == b.password && a.bearerToken == b.bearerToken && c.sameTLS(d) && c.sameSSH(d)
}

func (c Credentials) sameSSH(d Credentials) bool {
	a, b := c.material(), d.material()
	return a.sshPassphrase == b.sshPassphrase && bytes.Equal(a.sshPrivateKey, b.sshPrivateKey) && bytes.Equal(a.knownHosts, b.knownHosts)
}

func (c Credentials) sameTLS(d Credentials) bool {
	a, b := c.material(), d.material()
	return bytes.Equal(a.ca, b.ca) && bytes.Equal(a.clientCertificate, b.clientCertificate) && bytes.Equal(a.clientKey, b.clientKey)
}

// defaultUsername goes with a password that came without one: the hosts that
// take tokens as passwords ignore it, but refuse an empty one.
const defaultUsername = "git"

func (c Credentials) authorize(r *http.Request) {
	switch m := c.material(); {
	case m.bearerToken != "":
		r.Header.Set("Authorization", "Bearer "+m.bearerToken)
	case m.password != "":
		username := m.username
		if username == "" {
			username = defaultUsername
		}
		r.SetBasicAuth(username, m.password)
	}
}

// tlsConfig is nil when the credentials say nothing about TLS.
func (c Credentials) tlsConfig() (*tls.Config, error) {
	m := c.material()
	if m.ca == nil && m.clientCertificate == nil {
		return nil, nil
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if m.ca != nil {
		conf.RootCAs = x509.NewCertPool()
		conf.RootCAs.AppendCertsFromPEM(m.ca)
	}
	if m.clientCertificate != nil {
		pair, err := tls.X509KeyPair(m.clientCertificate, m.clientKey)
		if err != nil {
			return nil, &SecretError{Key: "tls.crt", Reason: "and tls.key must be a PEM certificate and its PEM key"}
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf, nil
}

// redact removes the secrets from a text that a remote sent.
func (c Credentials) redact(text string) string {
	m := c.material()
	for _, secret := range []string{m.password, m.bearerToken, m.sshPassphrase} {
		if len(secret) >= 4 {
			text = strings.ReplaceAll(text, secret, "[redacted]")
		}
	}
	return text
}
