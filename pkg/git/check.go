// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// remote is a parsed repository URL.
type remote struct {
	scheme string // http, https or ssh
	user   string // ssh only
	host   string // with the port, if one is given
	path   string // over ssh as the remote's shell is given it
}

// CheckURL accepts https://host/path, ssh://[user@]host[:port]/path and the
// scp-like user@host:path; http:// only with allowInsecureHTTP. A URL never
// holds credentials. The error is an *InvalidError.
func CheckURL(rawURL string, allowInsecureHTTP bool) error {
	_, err := parseURL(rawURL, allowInsecureHTTP)
	return err
}

func parseURL(raw string, allowInsecureHTTP bool) (remote, error) {
	// The error never repeats the URL, which may hold a password.
	invalid := func(format string, a ...any) (remote, error) {
		return remote{}, &InvalidError{Subject: "url", Reason: fmt.Sprintf(format, a...)}
	}
	if raw == "" {
		return invalid("must not be empty")
	}
	if strings.ContainsFunc(raw, func(r rune) bool { return r <= ' ' || r == 0x7f }) || !utf8.ValidString(raw) {
		return invalid("must not contain white space or control characters")
	}
	if !strings.Contains(raw, "://") {
		return parseSCP(raw)
	}
	u, err := url.Parse(raw)
	if err != nil {
		return invalid("cannot be parsed: expected https://host/path, ssh://user@host/path or user@host:path")
	}
	r := remote{scheme: strings.ToLower(u.Scheme), host: u.Host, path: u.EscapedPath()}
	if _, set := u.User.Password(); set {
		return invalid("must not contain a password: put it into the Secret")
	}
	switch r.scheme {
	case "https":
	case "http":
		if !allowInsecureHTTP {
			return invalid("must not use http: credentials and commits would travel unprotected; use https, or let the server allow it with --allow-insecure-http")
		}
	case "ssh":
		r.user, r.path = u.User.Username(), sshPath(u.Path)
		if unfitForSSH(r.user) || unfitForSSH(u.Path) {
			return invalid("must not contain control characters, nor a user name that starts with a dash")
		}
	default:
		return invalid("must use https, ssh or the scp-like form user@host:path, not %s", r.scheme)
	}
	switch {
	case r.scheme != "ssh" && u.User != nil:
		return invalid("must not contain a user name: put it into the Secret")
	case u.Hostname() == "" || strings.HasPrefix(u.Hostname(), "-"):
		return invalid("must name a host")
	case strings.Trim(u.Path, "/") == "":
		return invalid("must name a repository after the host")
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return invalid("must not contain a query or a fragment")
	}
	return r, nil
}

// sshPath gives the home directory that git's URLs write as /~user.
func sshPath(path string) string {
	if strings.HasPrefix(path, "/~") {
		return path[1:]
	}
	return path
}

// unfitForSSH says whether an argument could be taken for an option, or for more
// than one line.
func unfitForSSH(s string) bool {
	return strings.HasPrefix(s, "-") || strings.ContainsFunc(s, unicode.IsControl) || !utf8.ValidString(s)
}

// parseSCP reads user@host:path, the form that git clone takes for SSH; the host
// may be an IPv6 address in brackets.
func parseSCP(raw string) (remote, error) {
	host, path, ok := strings.Cut(raw, ":")
	if user, rest, bracket := strings.Cut(raw, "["); bracket && (user == "" || strings.HasSuffix(user, "@")) {
		var address string
		address, path, ok = strings.Cut(rest, "]:")
		host, ok = user+"["+address+"]", ok && net.ParseIP(address) != nil
	}
	if !ok || strings.Contains(host, "/") {
		return remote{}, &InvalidError{Subject: "url", Reason: "must be https://host/path, ssh://user@host/path or user@host:path"}
	}
	r := remote{scheme: "ssh", host: host, path: path}
	if user, h, ok := strings.Cut(host, "@"); ok {
		r.user, r.host = user, h
	}
	switch {
	case r.host == "" || strings.HasPrefix(r.host, "-") || strings.Contains(r.host, "@"):
		return remote{}, &InvalidError{Subject: "url", Reason: "must name a host before the colon"}
	case unfitForSSH(r.user) || unfitForSSH(path):
		return remote{}, &InvalidError{Subject: "url", Reason: "must not have a user name or a path that starts with a dash"}
	case strings.Trim(path, "/") == "":
		return remote{}, &InvalidError{Subject: "url", Reason: "must name a repository after the colon"}
	}
	return r, nil
}

// maxBranch leaves room for refs/heads/ and .lock in a file name's 255 bytes.
const maxBranch = 239

// CheckBranch accepts what git check-ref-format accepts as refs/heads/<name>,
// except the names that git's own commands then take for something else: HEAD,
// @, and those that start with a dash or with refs/. The error is an
// *InvalidError.
func CheckBranch(name string) error {
	reason := ""
	switch {
	case name == "":
		reason = "must not be empty"
	case len(name) > maxBranch:
		return &InvalidError{Subject: "branch", Reason: fmt.Sprintf("must not be longer than %d bytes", maxBranch)}
	case name == "HEAD" || name == "@":
		reason = "must not be HEAD or @, which mean the current commit"
	case strings.HasPrefix(name, "-"):
		reason = "must not start with a dash"
	case strings.HasPrefix(name, "refs/"):
		reason = "must be the name without refs/heads/"
	case !utf8.ValidString(name):
		reason = "must be valid UTF-8"
	case strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune(`~^:?*[\`, r) }):
		reason = `must not contain white space, control characters or any of ~ ^ : ? * [ \`
	case strings.Contains(name, ".."):
		reason = "must not contain two dots in a row"
	case strings.Contains(name, "@{"):
		reason = "must not contain @{"
	case strings.HasSuffix(name, "."):
		reason = "must not end with a dot"
	default:
		for part := range strings.SplitSeq(name, "/") {
			switch {
			case part == "":
				reason = "must not start or end with a slash or contain two in a row"
			case strings.HasPrefix(part, "."):
				reason = "must not have a part that starts with a dot"
			case strings.HasSuffix(part, ".lock"):
				reason = "must not have a part that ends with .lock"
			}
		}
	}
	if reason == "" {
		return nil
	}
	return &InvalidError{Subject: "branch", Value: name, Reason: reason}
}

const (
	maxPath = 4096
	maxName = 255
)

// CheckPath accepts the path of a file or directory in a repository: relative,
// clean, and with no part that some file system takes for .git or ".." (G8). The
// root, as an empty path, is not accepted. The error is an *InvalidError.
func CheckPath(p string) error {
	reason := ""
	switch {
	case p == "":
		reason = "must not be empty"
	case len(p) > maxPath:
		return &InvalidError{Subject: "path", Reason: fmt.Sprintf("must not be longer than %d bytes", maxPath)}
	case strings.HasPrefix(p, "/"):
		reason = "must be relative"
	case !utf8.ValidString(p):
		reason = "must be valid UTF-8"
	case strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f }):
		reason = "must not contain control characters"
	default:
		for name := range strings.SplitSeq(p, "/") {
			switch {
			case name == "":
				reason = "must not end with a slash or contain two in a row"
			case len(name) > maxName:
				reason = fmt.Sprintf("must not have a part longer than %d bytes", maxName)
			case reserved(name):
				reason = `must not have a part that is, or that a file system takes for, ".", "..", .git, .gitmodules or .gitattributes`
			}
		}
	}
	if reason == "" {
		return nil
	}
	return &InvalidError{Subject: "path", Value: p, Reason: reason}
}

// reserved says whether some file system could take the name for one that Git
// gives a meaning to: NTFS drops trailing dots and spaces and what follows a
// colon, has short names and treats a backslash as a separator; HFS+ ignores
// some invisible characters; both ignore case.
func reserved(name string) bool {
	for part := range strings.SplitSeq(name, `\`) {
		part, _, _ = strings.Cut(part, ":")
		if part == "" && name != "" && !strings.HasPrefix(name, `\`) {
			continue
		}
		if part == "." || part == ".." {
			return true
		}
		part = strings.Map(func(r rune) rune {
			if ignoredByHFS(r) {
				return -1
			}
			return r
		}, part)
		trimmed := strings.ToLower(strings.TrimRight(part, ". "))
		switch {
		case trimmed == "" && part != "":
			return true // nothing but dots and spaces
		case trimmed == ".git" || trimmed == ".gitmodules" || trimmed == ".gitattributes":
			return true
		case shortName(trimmed, "git"), shortName(trimmed, "gitmod"), shortName(trimmed, "gi7eba"),
			shortName(trimmed, "gitatt"), shortName(trimmed, "gi7d29"):
			return true
		}
	}
	return false
}

// shortName says whether name is stem~<digit>, the 8.3 form that NTFS makes.
func shortName(name, stem string) bool {
	rest, ok := strings.CutPrefix(name, stem+"~")
	return ok && len(rest) == 1 && rest[0] >= '1' && rest[0] <= '9'
}

// ignoredByHFS lists the code points that HFS+ leaves out when it compares names.
func ignoredByHFS(r rune) bool {
	switch {
	case r >= 0x200c && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x206a && r <= 0x206f, r == 0xfeff:
		return true
	}
	return false
}
