// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/kommit-dev/kommit/pkg/git"
	"github.com/kommit-dev/kommit/test/gitserver"
)

func newKey(t *testing.T, keyType string) ssh.Signer {
	t.Helper()
	signer, _, err := gitserver.NewKey(keyType, "")
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

// probeKnowing probes with these lines as known_hosts.
func (f *fixture) probeKnowing(t *testing.T, lines string) error {
	t.Helper()
	secret := maps.Clone(f.secret)
	secret["known_hosts"] = []byte(lines)
	return f.open(t, secret).Probe(t.Context())
}

func TestG9HostKeysFailClosed(t *testing.T) {
	authority, otherAuthority := newKey(t, "ed25519"), newKey(t, "ed25519")
	f := setupSSH(t, gitserver.SSHConfig{HostKeyTypes: []string{"rsa", "ecdsa", "ed25519"}, Authority: authority})
	rsa, ecdsa, ed25519 := f.ssh.HostKeys()[0], f.ssh.HostKeys()[1], f.ssh.HostKeys()[2]
	others := map[string]ssh.PublicKey{}
	for _, keyType := range []string{"rsa", "ecdsa", "ed25519"} {
		others[keyType] = newKey(t, keyType).PublicKey()
	}
	addr := f.ssh.Addr()
	line := func(k ssh.PublicKey) string { return knownhosts.Line([]string{addr}, k) + "\n" }
	name := strings.Fields(line(rsa))[0]
	at := func(hosts string, k ssh.PublicKey) string {
		return hosts + " " + string(bytes.TrimSpace(ssh.MarshalAuthorizedKey(k))) + "\n"
	}
	ca := at("@cert-authority "+name, authority.PublicKey())

	for name, lines := range map[string]string{
		// go-git: the type that the server prefers was asked for, and called changed.
		"rsa alone":                     line(rsa),
		"ecdsa alone":                   line(ecdsa),
		"ed25519 alone":                 line(ed25519),
		"all, another order":            line(ecdsa) + line(rsa) + line(ed25519),
		"two of a type, the second":     line(others["rsa"]) + line(rsa),
		"hashed":                        at(knownhosts.HashHostname(name), ecdsa),
		"wildcard":                      at("[127.0.0.*]:*", ed25519),
		"in a list":                     at("example.com,"+name+",192.0.2.1", ed25519),
		"comments and unknown types":    "# " + addr + " SSH-2.0-x\r\n\r\n" + name + " ssh-future AAAA\r\n" + strings.TrimSuffix(line(rsa), "\n") + " a comment\r\n",
		"another key of it is revoked":  line(rsa) + at("@revoked *", others["rsa"]),
		"certificate":                   ca,
		"certificate beside wrong keys": ca + line(others["ed25519"]),
		"certificate of nobody, key":    at("@cert-authority "+name, otherAuthority.PublicKey()) + line(ed25519),
	} {
		t.Run("known/"+name, func(t *testing.T) {
			if err := f.probeKnowing(t, lines); err != nil {
				t.Error(err)
			}
		})
	}

	for name, tc := range map[string]struct {
		lines   string
		problem git.HostKeyProblem
		seen    []ssh.PublicKey // any of them
	}{
		"no line of the host":         {at("[127.0.0.1]:1", ed25519), git.HostKeyUnknown, f.ssh.HostKeys()},
		"the host on port 22":         {at("127.0.0.1", ed25519), git.HostKeyUnknown, f.ssh.HostKeys()},
		"excepted":                    {at("[127.0.0.*]:*,!"+name, ed25519), git.HostKeyUnknown, f.ssh.HostKeys()},
		"comments only":               {"# nothing\n", git.HostKeyUnknown, f.ssh.HostKeys()},
		"changed rsa":                 {line(others["rsa"]), git.HostKeyChanged, []ssh.PublicKey{rsa}},
		"changed ed25519":             {line(others["ed25519"]), git.HostKeyChanged, []ssh.PublicKey{ed25519}},
		"all changed":                 {line(others["rsa"]) + line(others["ecdsa"]) + line(others["ed25519"]), git.HostKeyChanged, f.ssh.HostKeys()},
		"revoked":                     {line(rsa) + at("@revoked "+name, rsa), git.HostKeyRevoked, []ssh.PublicKey{rsa}},
		"revoked everywhere":          {line(rsa) + at("@revoked *", rsa), git.HostKeyRevoked, []ssh.PublicKey{rsa}},
		"another authority":           {at("@cert-authority *", otherAuthority.PublicKey()), git.HostKeyChanged, f.ssh.HostKeys()},
		"revoked authority":           {ca + at("@revoked *", authority.PublicKey()), git.HostKeyRevoked, f.ssh.HostKeys()},
		"an authority is not a key":   {at(name, authority.PublicKey()), git.HostKeyChanged, f.ssh.HostKeys()},
		"a key is not an authority":   {at("@cert-authority "+name, ed25519), git.HostKeyChanged, f.ssh.HostKeys()},
		"the authority of other host": {at("@cert-authority example.com", authority.PublicKey()), git.HostKeyUnknown, f.ssh.HostKeys()},
	} {
		t.Run("refused/"+name, func(t *testing.T) {
			e := wantError[*git.HostKeyError](t, f.probeKnowing(t, tc.lines))
			wantEqual(t, "problem", e.Problem, tc.problem)
			wantEqual(t, "host", e.Host, addrName(f))
			if !slices.ContainsFunc(tc.seen, func(k ssh.PublicKey) bool {
				return e.Fingerprint == ssh.FingerprintSHA256(k) && e.KeyType == k.Type()
			}) {
				t.Errorf("saw %s %s, which the server does not have or should not have shown", e.KeyType, e.Fingerprint)
			}
		})
	}

	// Nothing but host keys was exchanged with a server that is not known.
	log, err := f.ssh.Log()
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "logins", strings.Count(log, "Accepted publickey for"), 13)
}

func addrName(f *fixture) string {
	host, port, _ := strings.Cut(f.ssh.Addr(), ":")
	return fmt.Sprintf("[%s]:%s", host, port)
}

// A certificate of a listed authority that is for another host is refused, even
// though the server's plain key might be unknown as well.
func TestG9HostCertificateForAnotherHost(t *testing.T) {
	authority := newKey(t, "ed25519")
	f := setupSSH(t, gitserver.SSHConfig{Authority: authority, CertifiedFor: "example.com"})
	lines := "@cert-authority * " + string(ssh.MarshalAuthorizedKey(authority.PublicKey()))
	e := wantError[*git.HostKeyError](t, f.probeKnowing(t, lines))
	wantEqual(t, "problem", e.Problem, git.HostKeyCertificateInvalid)
}

func TestSSHKnownHostsThatCannotBeRead(t *testing.T) {
	f := setupSSH(t, gitserver.SSHConfig{})
	good := string(f.ssh.KnownHosts())
	for name, lines := range map[string]string{
		"two fields":             "host ssh-ed25519\n",
		"broken base64":          good + "* ssh-ed25519 AAAA!\n",
		"a revocation is broken": good + "@revoked * ssh-ed25519 AAAA\n",
		"another type inside":    strings.Replace(good, "ssh-ed25519", "ssh-rsa", 1),
		"unknown marker":         "@trusted " + good,
	} {
		t.Run(name, func(t *testing.T) {
			e := wantError[*git.SecretError](t, f.probeKnowing(t, lines))
			wantEqual(t, "key", e.Key, "known_hosts")
		})
	}
}
