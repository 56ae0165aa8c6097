// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"context"
	"io"
)

// service is one of the two programs that a Git server offers.
type service string

const (
	uploadPack  service = "git-upload-pack"
	receivePack service = "git-receive-pack"
)

// transport opens sessions with one remote. It carries bytes and knows nothing
// of what they say. Safe for concurrent use; its errors are the typed ones of
// this package.
type transport interface {
	// open starts a session, with fresh credentials, and reads the advertisement.
	// A caller that does not need the refs may be given what an earlier session
	// learnt about the capabilities.
	open(ctx context.Context, s service, refs bool) (session, error)
	// close drops idle connections.
	close()
}

// session is one conversation with one service: an advertisement, and at most
// one request. Not safe for concurrent use.
type session interface {
	advertised() *advertisement
	// exchange sends the request and returns the reader of the answer.
	exchange(ctx context.Context, request []byte) (io.ReadCloser, error)
	// redact removes this session's secrets from a text.
	redact(text string) string
	close()
}
