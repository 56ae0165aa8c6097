// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	// userAgent starts as git's own does: some hosts choose their answer by that.
	userAgent = "git/2.0 (kommit)"
	// expectContinue is the size from which the remote is asked before the body is
	// sent, so that its refusal is read instead of a broken connection.
	expectContinue = 1 << 20
)

// httpTransport speaks smart HTTP.
type httpTransport struct {
	base        string // the repository's URL without a slash at the end
	timeout     time.Duration
	credentials func(context.Context) (Credentials, error)

	mu     sync.Mutex // protects the fields below
	client *http.Client
	tls    Credentials // whose TLS settings the client has
	// upload is what an earlier session learnt about upload-pack.
	upload *httpSession
}

var _ transport = (*httpTransport)(nil)

func newHTTPTransport(r remote, c Config) *httpTransport {
	return &httpTransport{
		base:        r.scheme + "://" + r.host + strings.TrimRight(r.path, "/"),
		timeout:     c.Timeout,
		credentials: c.Credentials,
	}
}

type httpSession struct {
	t       *httpTransport
	service service
	base    string // after redirects
	client  *http.Client
	creds   Credentials
	refs    *advertisement
}

var _ session = (*httpSession)(nil)

func (t *httpTransport) open(ctx context.Context, s service, refs bool) (session, error) {
	creds, err := freshCredentials(ctx, t.credentials)
	if err != nil {
		return nil, err
	}
	client, err := t.clientFor(creds)
	if err != nil {
		return nil, err
	}
	if !refs && s == uploadPack {
		t.mu.Lock()
		known := t.upload
		t.mu.Unlock()
		if known != nil {
			return &httpSession{t, s, known.base, client, creds, known.refs}, nil
		}
	}
	h := &httpSession{t: t, service: s, base: t.base, client: client, creds: creds}
	if err := h.advertise(ctx); err != nil {
		return nil, err
	}
	if s == uploadPack {
		t.mu.Lock()
		t.upload = h
		t.mu.Unlock()
	}
	return h, nil
}

// clientFor keeps one client, and with it one pool of connections, for as long
// as the TLS settings stay the same.
func (t *httpTransport) clientFor(c Credentials) (*http.Client, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.client != nil && t.tls.sameTLS(c) {
		return t.client, nil
	}
	conf, err := c.tlsConfig()
	if err != nil {
		return nil, err
	}
	if t.client != nil {
		t.client.CloseIdleConnections()
	}
	t.tls = c
	t.client = &http.Client{
		CheckRedirect: checkRedirect,
		Transport: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: 15 * time.Second}).DialContext,
			TLSClientConfig:       conf,
			TLSHandshakeTimeout:   15 * time.Second,
			ForceAttemptHTTP2:     true,
			MaxIdleConnsPerHost:   4,
			IdleConnTimeout:       90 * time.Second,
			ExpectContinueTimeout: 2 * time.Second,
		},
	}
	return t.client, nil
}

func (t *httpTransport) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.client != nil {
		t.client.CloseIdleConnections()
	}
}

// checkRedirect follows a moved repository on the same host. A push is never
// sent on, and credentials cross neither to another host nor to plain http (G9).
func checkRedirect(next *http.Request, via []*http.Request) error {
	first, last := via[0], via[len(via)-1]
	target := next.URL.Scheme + "://" + next.URL.Host
	switch {
	case first.Method != http.MethodGet:
		return &UnsupportedError{What: "a redirect of the push to " + target + next.URL.Path + ": use that URL for the repository"}
	case !strings.HasSuffix(next.URL.Path, "/info/refs"):
		return &UnauthorizedError{Text: "it redirects to " + target + ", as hosts do that want a sign-in"}
	case last.URL.Scheme == "https" && next.URL.Scheme != "https":
		return &UnsupportedError{What: "a redirect from https to " + target}
	case len(via) >= 5:
		return &UnsupportedError{What: "more than 5 redirects in a row"}
	}
	upgrade := last.URL.Scheme == "http" && next.URL.Scheme == "https" && last.URL.Hostname() == next.URL.Hostname()
	if next.URL.Host != last.URL.Host && !upgrade && first.Header.Get("Authorization") != "" {
		return &UnsupportedError{What: "a redirect to another host, " + target + ", which must not get the credentials: use that URL for the repository"}
	}
	return nil
}

// advertise reads the list of refs. Credentials that the remote does not accept
// are read again, and tried once more if they have changed since.
func (h *httpSession) advertise(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.t.timeout)
	defer cancel()
	resp, err := h.do(ctx, http.MethodGet, "/info/refs?service="+string(h.service), nil)
	if err != nil {
		return err
	}
	defer drain(resp.Body)
	body := bufio.NewReader(resp.Body)
	if start, err := body.Peek(5); len(start) < 5 || !isPacket(start) {
		if err != nil && err != io.EOF {
			return h.unreachable(ctx, http.MethodGet, err)
		}
		return h.notSmart(resp)
	}
	h.refs, err = parseAdvertisement(body)
	if err != nil {
		var said *remoteError
		var unsupported *UnsupportedError
		switch {
		case errors.As(err, &said):
			return &RefusedError{Text: cleanText(h.redact(said.text))}
		case errors.As(err, &unsupported):
			return err
		}
		return h.unreachable(ctx, http.MethodGet, err)
	}
	// A repository that was renamed answers elsewhere; the push goes there too.
	final := *resp.Request.URL
	final.RawQuery = ""
	h.base = strings.TrimSuffix(final.String(), "/info/refs")
	return nil
}

// isPacket says whether an answer starts as the smart protocol does, whatever
// its Content-Type says.
func isPacket(start []byte) bool {
	return isHex(start[:4]) && bytes.IndexByte([]byte("#v0123456789abcdefE"), start[4]) >= 0
}

// notSmart explains an answer with a good status that is no list of refs: the
// sign-in page of a host that takes the credentials for expired, or a plain
// file server.
func (h *httpSession) notSmart(resp *http.Response) error {
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	if resp.StatusCode == http.StatusNonAuthoritativeInfo || kind == "text/html" || kind == "application/xhtml+xml" {
		return &UnauthorizedError{Text: "it answers with a web page, as hosts do that want a sign-in: check the URL and renew the token"}
	}
	return &UnsupportedError{What: fmt.Sprintf("a server that does not speak the smart HTTP protocol at %s (it answers with %q)", h.base, kind)}
}

func (h *httpSession) advertised() *advertisement { return h.refs }

func (h *httpSession) redact(text string) string { return h.creds.redact(text) }

func (h *httpSession) close() {}

func (h *httpSession) exchange(ctx context.Context, request []byte) (io.ReadCloser, error) {
	ctx, cancel := context.WithTimeout(ctx, h.t.timeout)
	resp, err := h.do(ctx, http.MethodPost, "/"+string(h.service), request)
	if err != nil {
		cancel()
		return nil, err
	}
	return &httpAnswer{resp.Body, cancel}, nil
}

// httpAnswer ends the request's time with the reading of its answer.
type httpAnswer struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (a *httpAnswer) Close() error {
	drain(a.ReadCloser)
	a.cancel()
	return nil
}

// drain reads what little is left, so that the connection can be used again.
func drain(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, 64<<10)
	_ = body.Close()
}

// do sends one request. Whatever is not a good status is a typed error.
func (h *httpSession) do(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	resp, err := h.once(ctx, method, path, body)
	if err != nil || !mayBeCredentials(resp.StatusCode) || h.t.credentials == nil {
		return h.judge(ctx, method, resp, err)
	}
	fresh, ferr := h.t.credentials(ctx)
	if ferr != nil || fresh.equal(h.creds) {
		return h.judge(ctx, method, resp, err)
	}
	client, ferr := h.t.clientFor(fresh)
	if ferr != nil {
		return h.judge(ctx, method, resp, err)
	}
	drain(resp.Body)
	h.creds, h.client = fresh, client
	resp, err = h.once(ctx, method, path, body)
	return h.judge(ctx, method, resp, err)
}

// mayBeCredentials: hosts answer 404 and 403 as well to a token that expired.
func mayBeCredentials(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusNotFound
}

func (h *httpSession) once(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		content = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, h.base+path, content)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", userAgent)
	if body != nil {
		req.Header.Set("Content-Type", "application/x-"+string(h.service)+"-request")
		req.Header.Set("Accept", "application/x-"+string(h.service)+"-result")
		if len(body) >= expectContinue {
			req.Header.Set("Expect", "100-continue")
		}
	}
	h.creds.authorize(req)
	return h.client.Do(req)
}

func (h *httpSession) judge(ctx context.Context, method string, resp *http.Response, err error) (*http.Response, error) {
	if err != nil {
		var unsupported *UnsupportedError
		var unauthorized *UnauthorizedError
		switch {
		case errors.As(err, &unsupported):
			err = unsupported
		case errors.As(err, &unauthorized):
			err = unauthorized
		default:
			err = h.unreachable(ctx, method, err)
		}
		return nil, err
	}
	if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusNonAuthoritativeInfo {
		return resp, nil
	}
	defer drain(resp.Body)
	text := h.statusText(resp)
	switch code := resp.StatusCode; {
	case code == http.StatusTooManyRequests, code == http.StatusRequestTimeout, code >= 500,
		code == http.StatusForbidden && resp.Header.Get("Retry-After") != "":
		return nil, &UnreachableError{Err: errors.New(text), RetryAfter: retryAfter(resp.Header.Get("Retry-After"), resp.Header.Get("Date"))}
	case code == http.StatusUnauthorized, code == http.StatusForbidden, code == http.StatusProxyAuthRequired:
		return nil, &UnauthorizedError{Text: text}
	case code == http.StatusNotFound:
		return nil, &RefusedError{Text: text + " (no such repository, or the credentials may not see it)"}
	}
	return nil, &RefusedError{Text: text}
}

// statusText is the status with what the body adds to it, unless that is a page.
func (h *httpSession) statusText(resp *http.Response) string {
	text := "HTTP " + resp.Status
	if kind := resp.Header.Get("Content-Type"); strings.Contains(kind, "html") {
		return text
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxText))
	if said := cleanText(h.redact(string(body))); said != "" {
		text += ": " + said
	}
	return text
}

// retryAfter reads seconds, or a date against the answer's own clock.
func retryAfter(value, date string) time.Duration {
	if value == "" {
		return 0
	}
	if d, err := time.ParseDuration(value + "s"); err == nil && d > 0 {
		return d
	}
	until, err := http.ParseTime(value)
	now, err2 := http.ParseTime(date)
	if err != nil || err2 != nil {
		return 0
	}
	return max(0, until.Sub(now))
}

// unreachable words a failure of the network. The URL that package http puts in
// front is left out: after a redirect it may hold a token.
func (h *httpSession) unreachable(ctx context.Context, method string, err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("no answer within %s: %w", h.t.timeout, ctx.Err())
	}
	host := strings.TrimPrefix(strings.TrimPrefix(h.base, "https://"), "http://")
	host, _, _ = strings.Cut(host, "/")
	return &UnreachableError{Err: fmt.Errorf("%s %s: %w", method, host, err)}
}
