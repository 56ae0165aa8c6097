// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/rest"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/generated/clientset/versioned"
	"github.com/kommit-dev/kommit/pkg/branch"
	"github.com/kommit-dev/kommit/pkg/storage/bolt"
)

// The cluster's authenticator and authorizer cannot run here: the user is who
// the X-Test-User header says, and eve may do everything but save.

func testAuthenticator(r *http.Request) (*authenticator.Response, bool, error) {
	name := r.Header.Get("X-Test-User")
	return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, name != "", nil
}

func testAuthorizer(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	switch {
	case a.GetUser().GetName() == "eve" && a.GetSubresource() == "commits",
		a.GetPath() == AuditPath && a.GetUser().GetName() != "system:kube-apiserver":
		return authorizer.DecisionNoOpinion, "", nil
	}
	return authorizer.DecisionAllow, "", nil
}

// openWindows stand for a cluster that is edited: a pool without changes, but
// for the names of windows by author.
type openWindows struct {
	*branch.Pool

	byAuthor map[string]string
}

func newOpenWindows(byAuthor map[string]string) openWindows {
	return openWindows{Pool: branch.NewPool(0, nil), byAuthor: byAuthor}
}

func (w openWindows) Binding(_ types.NamespacedName, username string, _ v1alpha1.AttachPolicy) (string, string) {
	return w.byAuthor[username], ""
}

type testServer struct {
	config *rest.Config
	// ready is what the storage says of itself.
	ready func(error)
	// stop shuts the server down and waits.
	stop func()
	// calls are the hooks and audit posts that were seen.
	calls func() []string
}

// newTestOptions are the defaults for a server that stops at once, as nobody routes
// requests to it.
func newTestOptions(storageFile string) *Options {
	options := NewOptions()
	options.StorageFile = storageFile
	options.ShutdownDelay = 0
	return options
}

// testConfig is what options say of a server on a port of this machine, without
// a cluster around it. It sets Listener, which names the port.
func testConfig(t *testing.T, options *Options) *Config {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	recommended := options.Recommended
	recommended.SecureServing.Listener = listener
	recommended.SecureServing.BindPort = listener.Addr().(*net.TCPAddr).Port
	recommended.Authentication.SkipInClusterLookup = true
	recommended.Authentication.RemoteKubeConfigFileOptional = true
	recommended.Authorization.RemoteKubeConfigFileOptional = true
	recommended.Features.EnablePriorityAndFairness = false // needs the cluster, as CoreAPI and Admission do
	recommended.CoreAPI = nil
	recommended.Admission = nil
	if err := options.Validate(); err != nil {
		t.Fatal(err)
	}
	config, err := options.Config()
	if err != nil {
		t.Fatal(err)
	}
	config.Generic.Authentication.Authenticator = authenticator.RequestFunc(testAuthenticator)
	config.Generic.Authorization.Authorizer = authorizer.AuthorizerFunc(testAuthorizer)
	return config
}

func startServer(t *testing.T) *testServer {
	t.Helper()
	options := newTestOptions(filepath.Join(t.TempDir(), "kommit.db"))
	config := testConfig(t, options)

	db, err := bolt.Open(t.Context(), bolt.Config{Path: options.StorageFile})
	if err != nil {
		t.Fatal(err)
	}
	config.Storage = &bolt.RESTOptionsGetter{DB: db, Codec: config.StorageCodec(), ObjectCounts: config.Generic.StorageObjectCountTracker}
	config.Windows = newOpenWindows(map[string]string{"alice": "prod-alice-1"})

	var mu sync.Mutex
	var calls []string
	var unready error
	call := func(name string) {
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, name)
	}
	config.Ready = []healthz.HealthChecker{healthz.NamedCheck("storage", func(*http.Request) error {
		mu.Lock()
		defer mu.Unlock()
		return unready
	})}
	config.Audit = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		call("audit " + string(body))
	})
	started := make(chan struct{})
	config.PostStart = []PostStartHook{{"test-start", func(genericapiserver.PostStartHookContext) error {
		call("started")
		close(started)
		return nil
	}}}

	server, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	client, err := versioned.NewForConfig(server.LoopbackClientConfig)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.AddPreShutdownHook("test-stop", func() error {
		// The API is still served: this is where windows are pushed.
		_, err := client.KommitV1alpha1().CommitRequests("team").List(context.WithoutCancel(t.Context()), metav1.ListOptions{})
		call(fmt.Sprintf("stopping, list: %v", err))
		return nil
	}); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- server.PrepareRun().RunWithContext(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	<-started
	return &testServer{
		config: rest.AnonymousClientConfig(server.LoopbackClientConfig),
		stop:   stop,
		ready: func(err error) {
			mu.Lock()
			defer mu.Unlock()
			unready = err
		},
		calls: func() []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(calls)
		},
	}
}

type asUser struct {
	http.RoundTripper

	name string
}

func (u asUser) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if u.name != "" {
		r.Header.Set("X-Test-User", u.name)
	}
	return u.RoundTripper.RoundTrip(r)
}

func (s *testServer) configOf(name string) *rest.Config {
	config := rest.CopyConfig(s.config)
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return asUser{RoundTripper: rt, name: name} })
	return config
}

func (s *testServer) as(t *testing.T, name string) versioned.Interface {
	t.Helper()
	client, err := versioned.NewForConfig(s.configOf(name))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// do sends one request and returns the answer.
func (s *testServer) do(t *testing.T, username, method, path, accept, body string) (int, string) {
	t.Helper()
	client, err := rest.HTTPClientFor(s.configOf(username))
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, s.config.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		request.Header.Set("Accept", accept)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(answer)
}

func createTarget(t *testing.T, client versioned.Interface) {
	t.Helper()
	if _, err := client.KommitV1alpha1().GitTargets("team").Create(t.Context(), &v1alpha1.GitTarget{
		ObjectMeta: metav1.ObjectMeta{Name: "prod"},
		Spec:       v1alpha1.GitTargetSpec{GitProviderRef: v1alpha1.LocalObjectReference{Name: "origin"}, Branch: "main"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func newRequest(name string) *v1alpha1.CommitRequest {
	return &v1alpha1.CommitRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.CommitRequestSpec{GitTargetRef: v1alpha1.LocalObjectReference{Name: "prod"}, Message: "Save"},
	}
}
