// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1" // #nosec G505 -- the hash of host names in known_hosts, which OpenSSH chose
	"encoding/base64"
	"fmt"
	"net"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
)

// hostKeys is what a known_hosts file says about one host. It is read from the
// Secret's bytes for each session: package knownhosts of x/crypto reads files
// only, and knows one key of each type, which a host that changes keys has two of.
type hostKeys struct {
	name        string // the host as known_hosts writes it
	keys        []ssh.PublicKey
	authorities []ssh.PublicKey
	revoked     []ssh.PublicKey
}

// knownHostsName is how known_hosts writes a host: with the port, unless it is 22.
func knownHostsName(host, port string) string {
	host = strings.ToLower(host)
	if port == "22" {
		return host
	}
	return "[" + host + "]:" + port
}

// parseKnownHosts reads the lines about the host: names with wildcards and
// negation, hashed names, @cert-authority and @revoked, as sshd(8) describes them.
// Keys of a type that is not known are skipped, for none could be checked with
// them. The error is a *SecretError.
func parseKnownHosts(data []byte, name string) (*hostKeys, error) {
	h := &hostKeys{name: name}
	number := 0
	for line := range bytes.Lines(data) {
		number++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		fail := func(reason string) error {
			return &SecretError{Key: "known_hosts", Reason: fmt.Sprintf("line %d: %s", number, reason)}
		}
		fields := strings.Fields(string(line))
		if strings.HasPrefix(fields[0], "@") {
			fields = fields[1:]
		}
		if len(fields) < 3 {
			return nil, fail("must be a host, a key type and a key in base64")
		}
		if !slices.Contains(plainHostKeyTypes(), fields[1]) {
			continue
		}
		marker, _, key, _, _, err := ssh.ParseKnownHosts(line)
		if err != nil {
			return nil, fail("does not hold a key of type " + fields[1])
		}
		if !matchHost(strings.Split(fields[0], ","), name) {
			continue
		}
		switch marker {
		case "":
			h.keys = append(h.keys, key)
		case "cert-authority":
			h.authorities = append(h.authorities, key)
		case "revoked":
			h.revoked = append(h.revoked, key)
		default:
			return nil, fail("has a marker that is neither @cert-authority nor @revoked")
		}
	}
	return h, nil
}

// matchHost says whether a list of patterns is about the host: one has to match,
// and none that begins with "!".
func matchHost(patterns []string, name string) bool {
	matched := false
	for _, p := range patterns {
		p, negated := strings.CutPrefix(p, "!")
		hit := false
		if strings.HasPrefix(p, "|") {
			hit = matchHashed(p, name)
		} else {
			hit = matchPattern(strings.ToLower(p), name)
		}
		if hit && negated {
			return false
		}
		matched = matched || hit
	}
	return matched
}

// matchHashed reads |1|salt|hash.
func matchHashed(p, name string) bool {
	parts := strings.Split(p, "|")
	if len(parts) != 4 || parts[1] != "1" {
		return false
	}
	salt, err := base64.StdEncoding.DecodeString(parts[2])
	if err != nil {
		return false
	}
	hash := hmac.New(sha1.New, salt)
	hash.Write([]byte(name))
	return parts[3] == base64.StdEncoding.EncodeToString(hash.Sum(nil))
}

// matchPattern knows * and ?. It goes back to the last * only, which is enough.
func matchPattern(p, s string) bool {
	star, mark := -1, 0
	i, j := 0, 0
	for j < len(s) {
		switch {
		case i < len(p) && p[i] == '*':
			star, mark = i, j
			i++
		case i < len(p) && (p[i] == '?' || p[i] == s[j]):
			i++
			j++
		case star >= 0:
			mark++
			i, j = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(p[i:], "*") == ""
}

func plainHostKeyTypes() []string {
	return []string{ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSA}
}

// signatures are the algorithms for a type of key: no RSA with SHA-1.
func signatures(keyType string) []string {
	if keyType == ssh.KeyAlgoRSA {
		return []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}
	return []string{keyType}
}

// algorithms is the order in which host keys are asked for. A server has keys of
// several types and shows the first one that is asked for, so those that can be
// checked come first: a key of another type would look like a changed one. The
// others follow so that a host without any known key is refused with the
// fingerprint of the one that it has.
func (h *hostKeys) algorithms() []string {
	var order []string
	if len(h.authorities) > 0 {
		order = append(order, ssh.CertAlgoED25519v01, ssh.CertAlgoECDSA256v01, ssh.CertAlgoECDSA384v01,
			ssh.CertAlgoECDSA521v01, ssh.CertAlgoRSASHA512v01, ssh.CertAlgoRSASHA256v01)
	}
	listed := func(keyType string) bool {
		return slices.ContainsFunc(h.keys, func(k ssh.PublicKey) bool { return k.Type() == keyType })
	}
	for _, want := range []bool{true, false} {
		for _, keyType := range plainHostKeyTypes() {
			if listed(keyType) == want {
				order = append(order, signatures(keyType)...)
			}
		}
	}
	return order
}

func has(keys []ssh.PublicKey, key ssh.PublicKey) bool {
	return slices.ContainsFunc(keys, func(k ssh.PublicKey) bool { return bytes.Equal(k.Marshal(), key.Marshal()) })
}

// check is the ssh.HostKeyCallback: a *HostKeyError unless the key is known. A
// certificate of an authority that is not listed counts as the key in it.
func (h *hostKeys) check(address string, remote net.Addr, key ssh.PublicKey) error {
	var cert *ssh.Certificate
	plain := key
	if c, ok := key.(*ssh.Certificate); ok {
		cert, plain = c, c.Key
	}
	fail := func(problem HostKeyProblem) error {
		return &HostKeyError{Host: h.name, Problem: problem, KeyType: plain.Type(), Fingerprint: ssh.FingerprintSHA256(plain)}
	}
	switch {
	case has(h.revoked, plain), cert != nil && has(h.revoked, cert.SignatureKey):
		return fail(HostKeyRevoked)
	case cert != nil && has(h.authorities, cert.SignatureKey):
		checker := &ssh.CertChecker{IsHostAuthority: func(ssh.PublicKey, string) bool { return true }}
		if checker.CheckHostKey(address, remote, cert) != nil {
			return fail(HostKeyCertificateInvalid)
		}
		return nil
	case has(h.keys, plain):
		return nil
	case len(h.keys)+len(h.authorities) == 0:
		return fail(HostKeyUnknown)
	}
	return fail(HostKeyChanged)
}
