// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/generated/clientset/versioned"
	"github.com/kommit-dev/kommit/pkg/journal"
)

// runningServer is all that Options.Run runs, but for what needs a cluster.
type runningServer struct {
	options *Options
	config  *rest.Config // of "admin"
	// serving is closed when the API is served, and rows are those of the journal then.
	serving <-chan struct{}
	rows    journal.Rows
	// flushing is held by a test that keeps the server where it flushes.
	flushing sync.Mutex
	// tell tells the server to stop.
	tell context.CancelFunc
	// stop is tell, waits, and fails on an error.
	stop func()
}

// runServer begins to run a server on file, in the way that changes say.
func runServer(t *testing.T, file string, change ...func(*Options)) *runningServer {
	t.Helper()
	options := newTestOptions(file)
	for _, c := range change {
		c(options)
	}
	config := testConfig(t, options)
	config.Generic.Authentication.Authenticator = authenticator.RequestFunc(tokenIsName)
	config.Generic.Authorization.Authorizer = authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetPath() == BackupPath && (a.GetUser().GetName() != "backup" || a.GetVerb() != "get") {
			return authorizer.DecisionNoOpinion, "", nil
		}
		return testAuthorizer(ctx, a)
	})
	serving := make(chan struct{})
	config.PostStart = []PostStartHook{{"test-serving", func(genericapiserver.PostStartHookContext) error {
		close(serving)
		return nil
	}}}
	certificate, _ := options.Recommended.SecureServing.ServerCert.GeneratedCert.CurrentCertKeyContent()

	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	s := &runningServer{
		options: options,
		config: &rest.Config{
			Host:            "https://" + options.Recommended.SecureServing.Listener.Addr().String(),
			BearerToken:     "admin",
			TLSClientConfig: rest.TLSClientConfig{CAData: certificate},
			QPS:             -1,
		},
		serving: serving,
		tell:    cancel,
	}
	stopped := make(chan error, 1)
	go func() {
		stopped <- options.serve(ctx, config, func(disk kept, registry metrics.KubeRegistry) func() {
			s.rows = disk.rows
			// Without what starts it, which needs a cluster.
			saving := newSaving(options, nil, disk, registry.MustRegister)
			config.Windows, config.Audit = newOpenWindows(nil), saving.audit
			config.PreShutdown = []PreShutdownHook{{"test-flush", func() error {
				s.flushing.Lock()
				defer s.flushing.Unlock()
				return nil
			}}}
			return func() { saving.stop(ctx) }
		})
	}()
	s.stop = sync.OnceFunc(func() {
		// A connection that is kept would be waited for.
		if transport, err := rest.TransportFor(s.config); err == nil {
			utilnet.CloseIdleConnectionsFor(transport)
		}
		cancel()
		if err := <-stopped; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	t.Cleanup(s.stop)
	return s
}

// tokenIsName stands for the cluster's authenticator, which cannot run here.
func tokenIsName(r *http.Request) (*authenticator.Response, bool, error) {
	name, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, ok, nil
}

// as is the configuration of another user, "" nobody.
func (s *runningServer) as(name string) *rest.Config {
	config := rest.CopyConfig(s.config)
	config.BearerToken = name
	return config
}

func (s *runningServer) client(t *testing.T) versioned.Interface {
	t.Helper()
	client, err := versioned.NewForConfig(s.config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// get returns the answer to one request, its body read.
func (s *runningServer) get(t *testing.T, name, path string) (*http.Response, []byte) {
	t.Helper()
	client, err := rest.HTTPClientFor(s.as(name))
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.config.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	return response, body
}

// until asks for path again and again until it is answered with code. An answer
// that is neither this nor one of others, or none at all, is an error.
func (s *runningServer) until(t *testing.T, path string, code int, others ...int) {
	t.Helper()
	for {
		response, body := s.get(t, "admin", path)
		if response.StatusCode == code {
			return
		}
		if !slices.Contains(others, response.StatusCode) {
			t.Fatalf("GET %s: %d %s, want %d or %v", path, response.StatusCode, body, code, others)
		}
	}
}

const providersPath = "/apis/kommit.dev/v1alpha1/gitproviders"

func provider(name, url string) *v1alpha1.GitProvider {
	return &v1alpha1.GitProvider{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.GitProviderSpec{URL: url}}
}

func createProvider(t *testing.T, client versioned.Interface, name, url string) *v1alpha1.GitProvider {
	t.Helper()
	created, err := client.KommitV1alpha1().GitProviders("team").Create(t.Context(), provider(name, url), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func listProviders(t *testing.T, client versioned.Interface) *v1alpha1.GitProviderList {
	t.Helper()
	list, err := client.KommitV1alpha1().GitProviders("team").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func storageFile(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "kommit.db")
}

// statusIn decodes a failure, which must be one.
func statusIn(t *testing.T, body []byte) metav1.Status {
	t.Helper()
	var status metav1.Status
	if err := json.Unmarshal(body, &status); err != nil || status.Kind != "Status" || status.APIVersion != "v1" || status.Status != metav1.StatusFailure {
		t.Fatalf("not a Status of a failure: %s, %v", body, err)
	}
	return status
}
