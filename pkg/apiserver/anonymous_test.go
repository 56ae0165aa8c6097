// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

func TestAnonymousMayOnlyProbe(t *testing.T) {
	for _, test := range []struct {
		user, path string
		want       bool
	}{
		{user.Anonymous, "/readyz", true},
		{user.Anonymous, "/livez/ping", true},
		{user.Anonymous, "/healthz", true},
		{user.Anonymous, "/apis/kommit.dev/v1alpha1/commitrequests", false},
		{user.Anonymous, "/audit", false},
		{user.Anonymous, "/metrics", false},
		{user.Anonymous, "/readyzz", false},
		{"alice", "/apis/kommit.dev/v1alpha1/commitrequests", true},
	} {
		everyone := authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: &user.DefaultInfo{Name: test.user}}, true, nil
		})
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, test.path, nil)
		_, ok, err := refuseAnonymous(everyone).AuthenticateRequest(request)
		if ok != test.want || err != nil {
			t.Errorf("%s at %s: %v, %v; want %v", test.user, test.path, ok, err, test.want)
		}
	}
}
