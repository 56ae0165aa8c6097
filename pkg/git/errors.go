// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"errors"
	"fmt"
	"time"
)

// ErrMoved says that the branch kept moving until the replays were used up. The
// caller tries again later.
var ErrMoved = errors.New("the branch moved during every attempt to push to it")

// RefusedError says that the remote does not take the push: a hook, a protected
// branch, a limit. The branch was read again and does not hold the commits.
// Trying the same again helps only when something on the remote changes.
type RefusedError struct {
	// Ref is the full name of the ref, empty when the refusal was not about one.
	Ref string
	// Text is what the remote said, in its own words: bounded, without control
	// characters and credentials. For people; nothing is decided on it.
	Text string
}

func (e *RefusedError) Error() string {
	if e.Ref == "" {
		return "the remote refused: " + e.Text
	}
	return fmt.Sprintf("the remote refused to update %s: %s", e.Ref, e.Text)
}

// UnauthorizedError says that the remote does not accept the credentials, or
// that they may not do this.
type UnauthorizedError struct {
	// Text is what the remote said; see RefusedError.
	Text string
}

func (e *UnauthorizedError) Error() string {
	return "the remote does not accept the credentials: " + e.Text
}

// HostKeyProblem is what is wrong with the key that an SSH server shows.
type HostKeyProblem string

const (
	// HostKeyUnknown: known_hosts has no key of the host.
	HostKeyUnknown HostKeyProblem = "Unknown"
	// HostKeyChanged: known_hosts has others of the host.
	HostKeyChanged HostKeyProblem = "Changed"
	// HostKeyRevoked: known_hosts says so.
	HostKeyRevoked HostKeyProblem = "Revoked"
	// HostKeyCertificateInvalid: it is certified by an authority of known_hosts, but
	// not for this host or not for today.
	HostKeyCertificateInvalid HostKeyProblem = "CertificateInvalid"
)

// HostKeyError says that an SSH server shows a key that is not known to be its
// own. Nothing was sent to it, no credentials either (G9).
type HostKeyError struct {
	// Host as known_hosts writes it: with the port, unless it is 22.
	Host    string
	Problem HostKeyProblem
	// KeyType such as ssh-ed25519, and Fingerprint (SHA256:…) of the key that was seen.
	KeyType, Fingerprint string
}

func (e *HostKeyError) Error() string {
	seen := fmt.Sprintf("the %s key %s of host %s ", e.KeyType, e.Fingerprint, e.Host)
	switch e.Problem {
	case HostKeyRevoked:
		return seen + "is revoked by known_hosts in the Secret"
	case HostKeyCertificateInvalid:
		return seen + "has a certificate that is not valid for it now: renew the server's host certificate"
	case HostKeyChanged:
		return seen + "is not one of those that known_hosts in the Secret lists for it: somebody may be in between; if the host publishes this fingerprint, add its key"
	case HostKeyUnknown:
	}
	return seen + "is not in known_hosts in the Secret: compare the fingerprint with the one that the host publishes, and add the line of ssh-keyscan"
}

// UnreachableError says that the remote gave no usable answer; the same push may
// succeed later. Whether this one did could not be learnt (Commit.Recorded).
type UnreachableError struct {
	Err error
	// RetryAfter is how long the remote asked to be left alone; 0 when it did not say.
	RetryAfter time.Duration
}

func (e *UnreachableError) Error() string {
	return "cannot reach the remote: " + e.Err.Error()
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// UnsupportedError says that the remote needs something that this version does
// not do.
type UnsupportedError struct{ What string }

func (e *UnsupportedError) Error() string {
	return "not supported: " + e.What
}

// NotRegularError says that a path cannot be read or written as a file because
// it, or a directory on the way to it, is something else. Nothing is written
// through a symbolic link, a submodule or an LFS pointer (G8).
type NotRegularError struct {
	// Path of the entry that is in the way.
	Path string
	Kind Kind
}

func (e *NotRegularError) Error() string {
	return fmt.Sprintf("%s is not a regular file but a %s: move it away, or use another path", e.Path, e.Kind)
}

// CollisionError says that a new file would differ from an existing neighbour in
// nothing that a case-insensitive or normalising file system keeps apart.
type CollisionError struct {
	Path     string
	Existing string
}

func (e *CollisionError) Error() string {
	return fmt.Sprintf("%s would collide with %s on case-insensitive file systems: rename one of them", e.Path, e.Existing)
}

// InvalidError says that a URL, a branch, a path or a commit's hash cannot be used.
type InvalidError struct {
	// Subject is "url", "branch", "path" or "commit".
	Subject string
	// Value is empty when it may hold a credential.
	Value string
	// Reason reads on from the subject: "must not …".
	Reason string
}

func (e *InvalidError) Error() string {
	if e.Value == "" {
		return e.Subject + " " + e.Reason
	}
	return fmt.Sprintf("%s %q %s", e.Subject, e.Value, e.Reason)
}

// SecretError says that a Secret does not hold usable credentials. It never
// holds content of the Secret.
type SecretError struct {
	// Key of the Secret's data; empty when no single one is to blame.
	Key    string
	Reason string
}

func (e *SecretError) Error() string {
	if e.Key == "" {
		return "secret " + e.Reason
	}
	return fmt.Sprintf("secret key %q %s", e.Key, e.Reason)
}
