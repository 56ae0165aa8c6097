// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	serviceAccountPrefix = "system:serviceaccount:"
	// unnamed stands for a username of which nothing can be written into a header.
	unnamed = "unknown"
	// noDomain never receives mail (RFC 2606).
	noDomain = "kommit.invalid"
	// maxLocal is the longest local part of an address (RFC 5321).
	maxLocal = 64
)

// Identity is how a Kubernetes user signs in Git (C10): name is the username; email
// is the username when it is an address, ns.name@serviceaccount.emailDomain for a
// service account, and user@emailDomain for anybody else. Both are safe in a commit
// header and never empty, whatever is given. The address is plain ASCII: a
// byte that an address cannot hold is percent-encoded, so that different users keep
// different addresses.
func Identity(username, emailDomain string) (name, email string) {
	name = cmp.Or(headerSafe(username), unnamed)
	domain := cmp.Or(domainSafe(emailDomain), noDomain)
	if isAddress(username) {
		return name, username
	}
	if ns, account, ok := serviceAccount(username); ok {
		return name, localPart(ns+"."+account) + "@serviceaccount." + domain
	}
	return name, localPart(cmp.Or(username, unnamed)) + "@" + domain
}

// headerSafe leaves out what ends or garbles a commit header: angle brackets, line
// breaks and other control characters, and the punctuation that Git strips from
// both ends of a name.
func headerSafe(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t' || r == '\u2028' || r == '\u2029':
			return ' '
		case r == '<' || r == '>' || unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	return strings.TrimFunc(s, func(r rune) bool {
		return unicode.IsSpace(r) || strings.ContainsRune(`.,:;"'\`, r)
	})
}

// serviceAccount splits system:serviceaccount:<namespace>:<name>.
func serviceAccount(username string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(username, serviceAccountPrefix)
	if !ok {
		return "", "", false
	}
	namespace, name, ok = strings.Cut(rest, ":")
	return namespace, name, ok && namespace != "" && name != "" && !strings.Contains(name, ":")
}

// isAddress reports whether the username is an address that a commit can carry as
// it is: one "@", a plain local part and a host name.
func isAddress(s string) bool {
	local, domain, ok := strings.Cut(s, "@")
	if !ok || len(local) > maxLocal || local == "" || domainSafe(domain) != domain || domain == "" {
		return false
	}
	for i, r := range local {
		if !plain(r) && r != '.' {
			return false
		}
		if r == '.' && (i == 0 || i == len(local)-1 || local[i-1] == '.') {
			return false
		}
	}
	return true
}

// domainSafe is the domain when it is a host name, else empty.
func domainSafe(domain string) string {
	if len(domain) > 253 {
		return ""
	}
	for label := range strings.SplitSeq(domain, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return ""
		}
		for _, r := range label {
			if !isAlphanumeric(r) && r != '-' {
				return ""
			}
		}
	}
	return domain
}

// localPart writes s as the local part of an address. What does not fit is cut, and
// keeps its difference in a hash.
func localPart(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		dot := c == '.' && i > 0 && i < len(s)-1 && s[i-1] != '.'
		if dot || plain(rune(c)) && c != '%' {
			b.WriteByte(c)
			continue
		}
		fmt.Fprintf(&b, "%%%02X", c)
	}
	local := b.String()
	if len(local) <= maxLocal {
		return local
	}
	sum := sha256.Sum256([]byte(s))
	hash := hex.EncodeToString(sum[:8])
	return strings.TrimRight(local[:maxLocal-len(hash)-1], ".") + "-" + hash
}

// plain reports whether an address holds r as it is, anywhere; "." may not stand
// everywhere.
func plain(r rune) bool {
	return isAlphanumeric(r) || r < utf8.RuneSelf && strings.ContainsRune("!#$%&'*+-/=?^_`{|}~", r)
}

func isAlphanumeric(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
}
