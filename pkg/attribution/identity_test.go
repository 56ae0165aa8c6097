// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"net/mail"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// TestIdentity is C10.
func TestIdentity(t *testing.T) {
	long := strings.Repeat("x", 70)
	tests := []struct{ username, domain, name, email string }{
		{"alice", "example.com", "alice", "alice@example.com"},
		{"alice", "", "alice", "alice@kommit.invalid"},
		{"alice", "not a domain>", "alice", "alice@kommit.invalid"},
		{"alice@example.org", "example.com", "alice@example.org", "alice@example.org"},
		{"alice+k8s@mail.example.org", "example.com", "alice+k8s@mail.example.org", "alice+k8s@mail.example.org"},
		{"oidc:alice@example.org", "example.com", "oidc:alice@example.org", "oidc%3Aalice%40example.org@example.com"},
		{"a@b@c", "example.com", "a@b@c", "a%40b%40c@example.com"},
		{"alice@", "example.com", "alice@", "alice%40@example.com"},
		{"@example.org", "example.com", "@example.org", "%40example.org@example.com"},
		{"system:serviceaccount:shop:deployer", "example.com", "system:serviceaccount:shop:deployer", "shop.deployer@serviceaccount.example.com"},
		{"system:serviceaccount:shop:", "example.com", "system:serviceaccount:shop", "system%3Aserviceaccount%3Ashop%3A@example.com"},
		{"system:admin", "example.com", "system:admin", "system%3Aadmin@example.com"},
		{"system:node:n1", "example.com", "system:node:n1", "system%3Anode%3An1@example.com"},
		{"Alice Example", "example.com", "Alice Example", "Alice%20Example@example.com"},
		{"Zoë", "example.com", "Zoë", "Zo%C3%AB@example.com"},
		{"corp/alice", "example.com", "corp/alice", "corp/alice@example.com"},
		{`CORP\alice`, "example.com", `CORP\alice`, "CORP%5Calice@example.com"},
		{"uid=alice,ou=people", "example.com", "uid=alice,ou=people", "uid=alice%2Cou=people@example.com"},
		{".alice..b.", "example.com", "alice..b", "%2Ealice.%2Eb%2E@example.com"},
		{"evil> <root@example.org>\nparent x", "example.com", "evil root@example.org parent x", "evil%3E%20%3Croot%40example.org%3E%0Aparent%20x@example.com"},
		{"a\x00b", "example.com", "ab", "a%00b@example.com"},
		{"\u202ealice", "example.com", "alice", "%E2%80%AEalice@example.com"},
		{"\xff", "example.com", "\uFFFD", "%FF@example.com"},
		{"<>", "example.com", "unknown", "%3C%3E@example.com"},
		{"", "example.com", "unknown", "unknown@example.com"},
	}
	for _, tt := range tests {
		name, email := Identity(tt.username, tt.domain)
		if name != tt.name || email != tt.email {
			t.Errorf("%q: got %q <%s>, want %q <%s>", tt.username, name, email, tt.name, tt.email)
		}
	}
	_, one := Identity(long+"1", "example.com")
	_, two := Identity(long+"2", "example.com")
	if local, _, _ := strings.Cut(one, "@"); one == two || len(local) > maxLocal {
		t.Errorf("long names: got %s and %s", one, two)
	}
}

// TestIdentityIsSafe: any username gives a header-safe name and a valid address,
// and different users of one domain different addresses (C10).
func TestIdentityIsSafe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		usernames := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.RuneFrom([]rune("ab.@:<>%-\n\x00 é")))).Filter(func(s string) bool { return s != "" })
		a, b := usernames.Draw(t, "a"), usernames.Draw(t, "b")
		name, email := Identity(a, "example.com")
		if name == "" || !utf8.ValidString(name) || strings.ContainsAny(name, "<>\n\r\x00") || strings.TrimSpace(name) != name {
			t.Errorf("%q: name %q", a, name)
		}
		parsed, err := mail.ParseAddress("<" + email + ">")
		if err != nil || parsed.Address != email || strings.ContainsAny(email, "<> \n\r\x00") {
			t.Errorf("%q: address %q, %v", a, email, err)
		}
		if _, other := Identity(b, "example.com"); a != b && other == email && b != email && a != email && a != "unknown" && b != "unknown" {
			t.Errorf("%q and %q share %s", a, b, email)
		}
	})
}
