// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"crypto/x509"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// trustTimeout is how long after its start a server may not have read yet which
// certificates to trust.
const trustTimeout = 30 * time.Second

// untilTrusted answers 503 with Retry-After, for a while after the start, to who comes
// with a certificate that nobody vouches for: the cluster's CAs are read from a
// ConfigMap while the server serves already. kube-apiserver's audit webhook takes a 401
// for final, and drops the events (C5), but comes again after a 503 that says when.
func untilTrusted(trusted dynamiccertificates.CAContentProvider, started time.Time, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if time.Since(started) < trustTimeout && r.TLS != nil && len(r.TLS.PeerCertificates) > 0 && !isProbe(r.URL.Path) && !vouchedFor(trusted, r) {
			writeStatus(w, metav1.Status{
				Status: metav1.StatusFailure, Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable,
				Message: "the server has just started and does not know yet which certificates to trust, or yours is not from a CA of the cluster",
				Details: &metav1.StatusDetails{RetryAfterSeconds: 1},
			})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// vouchedFor says whether one of the CAs that are known now has issued the client's
// certificate.
func vouchedFor(trusted dynamiccertificates.CAContentProvider, r *http.Request) bool {
	options, ok := trusted.VerifyOptions()
	if !ok {
		return false
	}
	if options.Intermediates == nil {
		options.Intermediates = x509.NewCertPool()
		for _, intermediate := range r.TLS.PeerCertificates[1:] {
			options.Intermediates.AddCert(intermediate)
		}
	}
	_, err := r.TLS.PeerCertificates[0].Verify(options)
	return err == nil
}
