// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

// refuseAnonymous answers 401 to those who say nothing of themselves, or
// something that nobody vouches for, such as X-Remote-User without the front
// proxy's certificate: who asks is what becomes the author. Probes of the
// kubelet stay anonymous. Delegated authentication has no option for this.
func refuseAnonymous(next authenticator.Request) authenticator.Request {
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		response, ok, err := next.AuthenticateRequest(r)
		if ok && response.User.GetName() == user.Anonymous && !isProbe(r.URL.Path) {
			return nil, false, nil
		}
		return response, ok, err
	})
}

// isProbe says whether the path is one that a kubelet asks.
func isProbe(path string) bool {
	probe, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return slices.Contains([]string{"healthz", "livez", "readyz"}, probe)
}
