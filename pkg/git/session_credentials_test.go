// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package git_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kommit-dev/kommit/pkg/git"
	"github.com/kommit-dev/kommit/test/gitserver"
)

func TestCredentialsAreAccepted(t *testing.T) {
	s := gitserver.New(t, gitserver.Config{Password: "s3cret", BearerToken: "t0ken"})
	f := setupOn(t, s)
	for name, secret := range map[string]map[string][]byte{
		"basic":                 {"username": []byte("robot"), "password": []byte("s3cret")},
		"line breaks at ends":   {"username": []byte("robot\n"), "password": []byte("s3cret\r\n")}, // argocd-image-updater#613
		"without a user name":   {"password": []byte("s3cret")},                                    // gitops-promoter 08142535
		"bearer":                {"bearerToken": []byte("t0ken\n")},
		"in Argo CD's own form": {"type": []byte("git"), "url": []byte("x"), "username": []byte("x"), "password": []byte("s3cret")},
	} {
		t.Run(name, func(t *testing.T) {
			if err := f.open(t, secret).Probe(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	for name, secret := range map[string]map[string][]byte{
		"wrong password": {"username": []byte("robot"), "password": []byte("wrong")},
		"wrong token":    {"bearerToken": []byte("wrong")},
		"none":           nil,
	} {
		t.Run(name, func(t *testing.T) {
			f.repo = f.open(t, secret)
			e := wantError[*git.UnauthorizedError](t, f.tryPush(t))
			if strings.Contains(e.Error(), "wrong") {
				t.Errorf("the error repeats the secret: %v", e)
			}
			wantError[*git.UnauthorizedError](t, f.repo.Probe(t.Context()))
		})
	}
}

func TestG9RefusedCredentialsAreReadAgainOnce(t *testing.T) { // argo-cd#11231, fabro#568
	s := gitserver.New(t, gitserver.Config{Password: "first"})
	f := setupOn(t, s)
	var reads atomic.Int32
	password := "first"
	var err error
	f.repo, err = git.NewRepository(git.Config{URL: f.URL, AllowInsecureHTTP: true, Credentials: func(context.Context) (git.Credentials, error) {
		reads.Add(1)
		secret := password
		if password == "rotated" && reads.Load() == 1 {
			secret = "first" // a cache that is about to learn
		}
		return git.ParseSecret(map[string][]byte{"password": []byte(secret)})
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.tryPush(t); err != nil {
		t.Fatal(err)
	}
	s.SetPassword("rotated")
	password = "rotated"
	reads.Store(0)
	f.pushOne(t, "main", commit("b", "1\n"))
	wantEqual(t, "reads", reads.Load(), 2)

	// The same answer again is not tried again.
	s.SetPassword("other")
	s.Requests()
	wantError[*git.UnauthorizedError](t, f.tryPush(t))
	wantEqual(t, "requests", len(s.Requests()), 1)
}

func TestG9CredentialsThatExpireBeforeThePush(t *testing.T) {
	var posts atomic.Int32
	s := gitserver.New(t, gitserver.Config{Password: "pw", Wrap: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, p, _ := r.BasicAuth(); r.Method == http.MethodPost && posts.Add(1) == 1 && p == "pw" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}})
	f := setupOn(t, s)
	var reads atomic.Int32
	var err error
	f.repo, err = git.NewRepository(git.Config{URL: f.URL, AllowInsecureHTTP: true, Credentials: func(context.Context) (git.Credentials, error) {
		return git.ParseSecret(map[string][]byte{"username": []byte(string('a' + reads.Add(1))), "password": []byte("pw")})
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.tryPush(t); err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "posts", posts.Load(), 2)
	wantEqual(t, "commits", f.count(t, "main"), 1)
}

func TestFailedCredentialsEndTheSession(t *testing.T) {
	f := setup(t)
	gone := errors.New("secret not found")
	repo, err := git.NewRepository(git.Config{URL: f.URL, AllowInsecureHTTP: true, Credentials: func(context.Context) (git.Credentials, error) {
		return git.Credentials{}, gone
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := repo.Probe(t.Context()); !errors.Is(err, gone) {
		t.Errorf("error %v", err)
	}
	wantEqual(t, "requests", len(f.server.Requests()), 0)
}
