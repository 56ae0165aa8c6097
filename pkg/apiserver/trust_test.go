// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// issued is a CA and a client's certificate of it.
func issued(t *testing.T, now time.Time) (ca []byte, client *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	create := func(template, parent *x509.Certificate) *x509.Certificate {
		template.NotBefore, template.NotAfter = now.Add(-time.Hour), now.Add(24*time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return certificate
	}
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	root = create(root, root)
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "kommit-audit"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Raw}), create(leaf, root)
}

// unread is a CA bundle that was not read yet.
type unread struct {
	dynamiccertificates.CAContentProvider
}

func (unread) VerifyOptions() (x509.VerifyOptions, bool) { return x509.VerifyOptions{}, false }

// C5: who is not known yet is told to come again, as long as that may change.
func TestUnknownCertificatesComeAgainAfterTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, ours := issued(t, time.Now())
		_, theirs := issued(t, time.Now())
		read, err := dynamiccertificates.NewStaticCAContent("ca", ca)
		if err != nil {
			t.Fatal(err)
		}
		for _, test := range []struct {
			name    string
			trusted dynamiccertificates.CAContentProvider
			client  *x509.Certificate
			path    string
			age     time.Duration
			want    int
		}{
			{"before the CA is read", unread{}, ours, "/audit", 0, http.StatusServiceUnavailable},
			{"after", read, ours, "/audit", 0, http.StatusOK},
			{"of another CA, that may be read next", read, theirs, "/audit", 0, http.StatusServiceUnavailable},
			{"of another CA, later", read, theirs, "/audit", trustTimeout, http.StatusOK}, // the authenticator's 401
			{"without a certificate", unread{}, nil, "/audit", 0, http.StatusOK},
			{"a probe", unread{}, ours, "/readyz", 0, http.StatusOK},
		} {
			handler := untilTrusted(test.trusted, time.Now().Add(-test.age), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, test.path, nil)
			if r.TLS = (&tls.ConnectionState{}); test.client != nil {
				r.TLS.PeerCertificates = []*x509.Certificate{test.client}
			}
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if w.Code != test.want || (w.Header().Get("Retry-After") != "") != (test.want != http.StatusOK) {
				t.Errorf("%s: answered %d, Retry-After %q; want %d", test.name, w.Code, w.Header().Get("Retry-After"), test.want)
			}
		}
	})
}
