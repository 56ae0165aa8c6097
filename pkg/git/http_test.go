// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kommit-dev/kommit/pkg/git"
	"github.com/kommit-dev/kommit/test/gitserver"
)

func TestRenamedRepositoryIsFollowed(t *testing.T) { // source-controller#772, gitea#28460
	f, i := interfered(t)
	i.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if rest, ok := strings.CutPrefix(r.URL.Path, "/old"); ok && r.Method == http.MethodGet {
			http.Redirect(w, r, "/repo.git"+rest+"?"+r.URL.RawQuery, http.StatusMovedPermanently)
			return
		}
		next.ServeHTTP(w, r)
	})
	f.URL = f.server.URL() + "/old"
	f.repo = f.open(t, nil)
	b := f.pushOne(t, "main", commit("a", "1\n"))
	wantEqual(t, "head", f.MustHead("main"), b.Hash)
	if _, err := f.repo.Tree(t.Context(), "main"); err != nil {
		t.Error(err)
	}
}

func TestG9CredentialsDoNotFollowARedirect(t *testing.T) {
	f, i := interfered(t)
	elsewhere := "http://localhost" + f.server.URL()[len("http://127.0.0.1"):]
	leaked := false
	to := ""
	i.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if strings.HasPrefix(r.Host, "localhost") {
			leaked = leaked || r.Header.Get("Authorization") != ""
			next.ServeHTTP(w, r)
			return
		}
		http.Redirect(w, r, to+"?"+r.URL.RawQuery, http.StatusFound)
	})
	to = elsewhere + "/repo.git/info/refs"
	f.repo = f.open(t, map[string][]byte{"password": []byte("s3cret")})
	wantError[*git.UnsupportedError](t, f.tryPush(t))
	if len(f.server.Requests()) != 1 || leaked {
		t.Error("the other host was asked")
	}
	// argo-cd#23100: the sign-in page of a host whose token expired.
	to = elsewhere + "/_signin"
	wantError[*git.UnauthorizedError](t, f.tryPush(t))
	// Without credentials there is nothing to lose.
	to = elsewhere + "/repo.git/info/refs"
	f.repo = f.open(t, nil)
	f.pushOne(t, "main", commit("a", "1\n"))
}

func TestRedirectOfThePushIsRefused(t *testing.T) {
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		f, i := interfered(t)
		i.set(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if isPush(r) && !strings.HasPrefix(r.URL.Path, "/x") {
				http.Redirect(w, r, "/x"+r.URL.Path, status)
				return
			}
			next.ServeHTTP(w, r)
		})
		e := wantError[*git.UnsupportedError](t, f.tryPush(t))
		if !strings.Contains(e.Error(), "/x/repo.git/git-receive-pack") {
			t.Errorf("error %v does not say where to", e)
		}
		wantEqual(t, "pushes", f.posts(t), 1)
	}
}

func TestOddAnswersToTheAdvertisement(t *testing.T) {
	page := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "<!DOCTYPE html><html>Sign in</html>")
		}
	}
	text := func(status int, said string, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			http.Error(w, said, status)
		}
	}
	unauthorized := func(t *testing.T, err error) { wantError[*git.UnauthorizedError](t, err) }
	refused := func(t *testing.T, err error) { wantError[*git.RefusedError](t, err) }
	unreachable := func(retry time.Duration) func(*testing.T, error) {
		return func(t *testing.T, err error) {
			wantEqual(t, "retry after", wantError[*git.UnreachableError](t, err).RetryAfter, retry)
		}
	}
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		want   func(*testing.T, error)
		text   string
	}{
		"Azure DevOps, expired token":      {page(http.StatusNonAuthoritativeInfo), unauthorized, "renew the token"},
		"a sign-in page":                   {page(http.StatusOK), unauthorized, "web page"},
		"GitLab, 403 with a reason":        {text(http.StatusForbidden, "You are not allowed to push code to this project."), unauthorized, "You are not allowed to push"},
		"401":                              {text(http.StatusUnauthorized, "Invalid username or token."), unauthorized, "Invalid username or token."},
		"proxy":                            {text(http.StatusProxyAuthRequired, "x"), unauthorized, "407"},
		"404":                              {text(http.StatusNotFound, "Repository not found."), refused, "Repository not found."},
		"GitHub, 403 as a rate limit":      {text(http.StatusForbidden, "rate limit", "Retry-After", "60"), unreachable(time.Minute), "rate limit"},
		"429":                              {text(http.StatusTooManyRequests, "slow down", "Retry-After", "7"), unreachable(7 * time.Second), "slow down"},
		"503":                              {text(http.StatusServiceUnavailable, "maintenance"), unreachable(0), "maintenance"},
		"502 as a page":                    {page(http.StatusBadGateway), unreachable(0), "502"},
		"400":                              {text(http.StatusBadRequest, "TF401041: one or more errors"), refused, "TF401041"},
		"a file server":                    {text(http.StatusOK, "0123\trefs/heads/main"), func(t *testing.T, err error) { wantError[*git.UnsupportedError](t, err) }, "smart HTTP"},
		"ERR":                              {text(http.StatusOK, "0017ERR access denied."), refused, "access denied."},
		"a list that is cut":               {text(http.StatusOK, "001f# service=git-receive-pack\n000000"), unreachable(0), "list of refs"},
		"the answer stops before anything": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, unreachable(0), "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			f, i := interfered(t)
			i.set(func(w http.ResponseWriter, r *http.Request, _ http.Handler) { tc.answer(w, r) })
			for _, err := range []error{f.repo.Probe(t.Context()), f.tryPush(t)} {
				tc.want(t, err)
				if !strings.Contains(err.Error(), tc.text) || strings.Contains(err.Error(), "DOCTYPE") {
					t.Errorf("error %v, want it to say %q", err, tc.text)
				}
			}
		})
	}
}

// A read-only server lets one in, but not to push.
func TestProbeNeedsReceivePack(t *testing.T) {
	f := setup(t)
	if err := f.repo.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := f.Configure(t.Context(), "http.receivepack", "false"); err != nil {
		t.Fatal(err)
	}
	wantError[*git.UnauthorizedError](t, f.repo.Probe(t.Context()))
	if _, err := f.repo.Tree(t.Context(), "main"); err != nil {
		t.Error(err)
	}
}

// authority makes certificates for the loopback interface.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.cert, a.key, a.pem = issue(t, nil)
	return a
}

func issue(t *testing.T, by *authority) (*x509.Certificate, *ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := template, key
	if by == nil {
		template.IsCA, template.KeyUsage = true, x509.KeyUsageCertSign
	} else {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func (a *authority) pair(t *testing.T) (cert, key []byte) {
	t.Helper()
	_, private, cert := issue(t, a)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func TestG9CustomCAAndClientCertificate(t *testing.T) { // go-git#590
	a, stranger := newAuthority(t), newAuthority(t)
	pair, err := tls.X509KeyPair(a.pair(t))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	s := gitserver.New(t, gitserver.Config{Password: "pw", TLS: &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
	}})
	f := setupOn(t, s)
	cert, key := a.pair(t)
	secret := map[string][]byte{"password": []byte("pw"), "ca.crt": a.pem, "tls.crt": cert, "tls.key": key}
	f.repo = f.open(t, secret)
	f.pushOne(t, "main", commit("a", "1\n"))
	f.repo = f.open(t, map[string][]byte{"password": []byte("pw"), "caFile": a.pem, "tlsClientCertData": cert, "tlsClientCertKey": key})
	f.pushOne(t, "main", commit("b", "1\n"))

	for name, bad := range map[string]map[string][]byte{
		"unknown authority":     {"password": []byte("pw"), "ca.crt": stranger.pem, "tls.crt": cert, "tls.key": key},
		"no authority":          {"password": []byte("pw"), "tls.crt": cert, "tls.key": key},
		"no client certificate": {"password": []byte("pw"), "ca.crt": a.pem},
	} {
		t.Run(name, func(t *testing.T) {
			wantError[*git.UnreachableError](t, f.open(t, bad).Probe(t.Context()))
		})
	}

	// A CA that is put right needs no restart.
	current := map[string][]byte{"password": []byte("pw"), "ca.crt": stranger.pem, "tls.crt": cert, "tls.key": key}
	repo, err := git.NewRepository(git.Config{URL: f.URL, Credentials: func(context.Context) (git.Credentials, error) {
		return git.ParseSecret(current)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(repo.Close)
	if err := repo.Probe(t.Context()); err == nil {
		t.Fatal("the wrong authority is accepted")
	}
	current = secret
	if err := repo.Probe(t.Context()); err != nil {
		t.Error(err)
	}
}
