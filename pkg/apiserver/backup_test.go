// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/generated/clientset/versioned"
	"github.com/kommit-dev/kommit/generated/informers/externalversions"
	"github.com/kommit-dev/kommit/pkg/storage/bolt"
)

// command runs kommit-apiserver with args and returns what it prints.
func command(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	c := NewCommand()
	c.SetArgs(args)
	c.SetOut(&out)
	c.SetErr(&out)
	c.SilenceUsage, c.SilenceErrors = true, true
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

// backupFlags reach s as user.
func (s *runningServer) backupFlags(t *testing.T, user string) []string {
	t.Helper()
	dir := t.TempDir()
	token, ca := filepath.Join(dir, "token"), filepath.Join(dir, "ca.crt")
	if err := errors.Join(os.WriteFile(token, []byte(user+"\n"), 0o600), os.WriteFile(ca, s.config.CAData, 0o600)); err != nil {
		t.Fatal(err)
	}
	return []string{"--server=" + s.config.Host, "--token-file=" + token, "--certificate-authority=" + ca}
}

func (s *runningServer) backup(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kommit.backup")
	if _, err := command(t, append(s.backupFlags(t, "backup"), "backup", file)...); err != nil {
		t.Fatal(err)
	}
	return file
}

func restore(t *testing.T, backup string) string {
	t.Helper()
	file := storageFile(t)
	if _, err := command(t, "restore", backup, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// A backup is of one moment between its request and its answer, however many
// write.
func TestBackupWhileWritersWrite(t *testing.T) {
	server := runServer(t, storageFile(t))
	<-server.serving
	client := server.client(t)
	const writers = 4
	var (
		begun, done [writers]atomic.Int64
		stop        = make(chan struct{})
		running     sync.WaitGroup
		warm        sync.WaitGroup
	)
	warm.Add(writers)
	for w := range writers {
		running.Go(func() {
			ready := sync.OnceFunc(warm.Done)
			defer ready()
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				begun[w].Add(1)
				if _, err := client.KommitV1alpha1().GitProviders("team").Create(t.Context(), provider(fmt.Sprintf("w%d-%d", w, n), "https://git.example.com/a.git"), metav1.CreateOptions{}); err != nil {
					t.Error(err)
					return
				}
				if done[w].Add(1) == 10 {
					ready()
				}
			}
		})
	}
	warm.Wait()
	var before, after [writers]int64
	for w := range writers {
		before[w] = done[w].Load()
	}
	file := server.backup(t)
	for w := range writers {
		after[w] = begun[w].Load()
	}
	close(stop)
	running.Wait()

	restored := runServer(t, restore(t, file))
	<-restored.serving
	var highest, count [writers]int64
	for _, p := range listProviders(t, restored.client(t)).Items {
		var w int
		var n int64
		if _, err := fmt.Sscanf(p.Name, "w%d-%d", &w, &n); err != nil {
			t.Fatal(err)
		}
		count[w]++
		highest[w] = max(highest[w], n+1)
	}
	for w := range writers {
		if count[w] != highest[w] {
			t.Errorf("writer %d: %d objects, the last one is its %dth: one is missing before it", w, count[w], highest[w])
		}
		if count[w] < before[w] || count[w] > after[w] {
			t.Errorf("writer %d: %d objects, want from %d, made before, to %d, begun by the end", w, count[w], before[w], after[w])
		}
	}
}

// D5: a client that was there before sees what was restored, and no
// resourceVersion go back.
func TestClientsAcrossARestore(t *testing.T) {
	first := runServer(t, storageFile(t))
	<-first.serving
	var address atomic.Value // of the server that runs
	address.Store(first.options.Recommended.SecureServing.Listener.Addr().String())
	config := rest.CopyConfig(first.config)
	config.Host = "https://kommit.example.com"
	config.TLSClientConfig = rest.TLSClientConfig{Insecure: true} // each server makes its own certificate
	config.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address.Load().(string))
	}
	client, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}

	kept := createProvider(t, client, "kept", "https://git.example.com/a.git")
	informers := externalversions.NewSharedInformerFactory(client, 0)
	informer := informers.Kommit().V1alpha1().GitProviders().Informer()
	added, deleted := make(chan *v1alpha1.GitProvider, 10), make(chan string, 10)
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { added <- o.(*v1alpha1.GitProvider) },
		DeleteFunc: func(o any) {
			key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o)
			if err != nil {
				t.Error(err)
			}
			deleted <- key
		},
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	informers.Start(ctx.Done())
	defer informers.Shutdown()
	defer cancel()
	<-added // kept

	file := first.backup(t)
	lost := createProvider(t, client, "lost", "https://git.example.com/b.git")
	<-added
	before := informer.LastSyncResourceVersion()
	first.stop()

	second := runServer(t, restore(t, file))
	<-second.serving
	address.Store(second.options.Recommended.SecureServing.Listener.Addr().String())
	if key := <-deleted; key != "team/lost" {
		t.Errorf("the informer saw %s go, want team/lost", key)
	}
	list := listProviders(t, client)
	if len(list.Items) != 1 || list.Items[0].UID != kept.UID || list.Items[0].ResourceVersion != kept.ResourceVersion {
		t.Errorf("restored %+v, want %s as it was", list.Items, kept.Name)
	}
	again := createProvider(t, client, "again", "https://git.example.com/c.git")
	if o := <-added; o.UID != again.UID {
		t.Errorf("the informer saw %s come, want again", o.Name)
	}
	for _, after := range []string{list.ResourceVersion, again.ResourceVersion, informer.LastSyncResourceVersion()} {
		for _, earlier := range []string{lost.ResourceVersion, before} {
			if number(t, after) <= number(t, earlier) {
				t.Errorf("resourceVersion %s after %s", after, earlier)
			}
		}
	}
	watch, err := client.KommitV1alpha1().GitProviders("team").Watch(t.Context(), metav1.ListOptions{ResourceVersion: before})
	if err == nil {
		defer watch.Stop()
		err = apierrors.FromObject((<-watch.ResultChan()).Object)
	}
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("watch from before: %v, want 410 Expired", err)
	}
}

func number(t *testing.T, resourceVersion string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestWhoMayBackUp(t *testing.T) {
	server := runServer(t, storageFile(t))
	<-server.serving
	createProvider(t, server.client(t), "origin", "https://git.example.com/a.git")
	for _, test := range []struct {
		user   string
		reason metav1.StatusReason
	}{
		{"", metav1.StatusReasonUnauthorized},
		{"admin", metav1.StatusReasonForbidden},
	} {
		response, body := server.get(t, test.user, BackupPath)
		if status := statusIn(t, body); status.Reason != test.reason || response.StatusCode != int(status.Code) {
			t.Errorf("%q: %d %+v, want %s", test.user, response.StatusCode, status, test.reason)
		}
	}

	// The client says so, and writes nothing.
	dir := t.TempDir()
	_, err := command(t, append(server.backupFlags(t, "admin"), "backup", filepath.Join(dir, "kommit.backup"))...)
	if !apierrors.IsForbidden(err) {
		t.Errorf("backup as admin: %v, want Forbidden", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("the refused backup left %v, %v", entries, err)
	}

	response, body := server.get(t, "backup", BackupPath)
	if response.StatusCode != http.StatusOK || response.ContentLength != int64(len(body)) || !bytes.Contains(body, []byte("git.example.com")) {
		t.Errorf("backup: %d, %d bytes of %d", response.StatusCode, len(body), response.ContentLength)
	}
	if entries, err := os.ReadDir(filepath.Dir(server.options.StorageFile)); err != nil || len(entries) != 1 {
		t.Errorf("beside the storage file is %v, %v", entries, err)
	}
}

func TestBackupCommand(t *testing.T) {
	server := runServer(t, storageFile(t))
	<-server.serving
	dir := t.TempDir()
	file := filepath.Join(dir, "kommit.backup")
	flags := server.backupFlags(t, "backup")
	out, err := command(t, append(flags, "backup", file)...)
	if err != nil || !strings.Contains(out, file) {
		t.Fatalf("%v: %s", err, out)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v, want mode 0600", info, err)
	}
	if _, err := command(t, append(flags, "backup", file)...); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a file: %v", err)
	}
	if _, err := command(t, "restore", file, file); !errors.Is(err, fs.ErrExist) {
		t.Errorf("restore over a file: %v", err)
	}

	// The user of a kubeconfig, whose server is another one.
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: "https://kube-apiserver.example.com", InsecureSkipTLSVerify: true}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: "backup"}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, kubeconfig); err != nil {
		t.Fatal(err)
	}
	if out, err := command(t, flags[0], flags[2], "--kubeconfig="+kubeconfig, "backup", filepath.Join(dir, "second")); err != nil {
		t.Errorf("as the user of a kubeconfig: %v %s", err, out)
	}
	// What the kubeconfig says of its own server's certificate is not for ours.
	if _, err := command(t, flags[0], "--kubeconfig="+kubeconfig, "backup", filepath.Join(dir, "third")); err == nil {
		t.Error("the token went to a server that was not verified")
	}
	if _, err := command(t, "backup", filepath.Join(dir, "fourth"), "--server=http://localhost:8443", flags[1]); err == nil {
		t.Error("the token went over http")
	}
	if _, err := command(t, "--storage-file=x", "backup", filepath.Join(dir, "fifth")); err == nil {
		t.Error("backup took a flag of the server")
	}
}

// While a client reads slowly nobody else gets one, writers are not held up, and
// a client that reads nothing at all is cut off.
func TestOneBackupAtATime(t *testing.T) {
	db, err := bolt.Open(t.Context(), bolt.Config{Path: storageFile(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	// More than all buffers on the way take.
	write := func(bytes int) error {
		return db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("ballast"))
			if err != nil {
				return err
			}
			return b.Put([]byte(strconv.Itoa(bytes)), make([]byte, bytes))
		})
	}
	if err := write(24 << 20); err != nil {
		t.Fatal(err)
	}
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%t", http2), func(t *testing.T) {
			handler := newBackups(db, nil)
			handler.stall = 3 * time.Second
			server := httptest.NewUnstartedServer(handler)
			server.EnableHTTP2 = http2
			server.StartTLS()
			defer server.Close()
			client := server.Client()
			slow, err := client.Get(server.URL + BackupPath)
			if err != nil {
				t.Fatal(err)
			}
			defer slow.Body.Close()
			if slow.StatusCode != http.StatusOK || (slow.ProtoMajor == 2) != http2 {
				t.Fatalf("%d over %s", slow.StatusCode, slow.Proto)
			}
			refused := 0
			for {
				response, err := client.Get(server.URL + BackupPath)
				if err != nil {
					t.Fatal(err)
				}
				if response.StatusCode == http.StatusOK {
					n, err := io.Copy(io.Discard, response.Body)
					if err != nil || n != response.ContentLength {
						t.Errorf("the next backup: %d bytes of %d, %v", n, response.ContentLength, err)
					}
					response.Body.Close()
					break
				}
				body, err := io.ReadAll(response.Body)
				response.Body.Close()
				if err != nil {
					t.Fatal(err)
				}
				if status := statusIn(t, body); status.Reason != metav1.StatusReasonTooManyRequests || response.Header.Get("Retry-After") == "" {
					t.Fatalf("a second backup: %+v, want TooManyRequests", status)
				}
				refused++
				if err := write(refused); err != nil {
					t.Fatal(err)
				}
			}
			if refused == 0 {
				t.Error("a second backup was answered while the first one was under way")
			}
			if n, err := io.Copy(io.Discard, slow.Body); err == nil {
				t.Errorf("the stalled backup ended well after %d bytes of %d", n, slow.ContentLength)
			}
		})
	}
}

// A backup that is cut short by the server's end is no backup.
func TestBackupIsCutShortByTheEnd(t *testing.T) {
	db, err := bolt.Open(t.Context(), bolt.Config{Path: storageFile(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	stopping := make(chan struct{})
	close(stopping)
	server := httptest.NewTLSServer(newBackups(db, stopping))
	defer server.Close()
	response, err := server.Client().Get(server.URL + BackupPath)
	if err == nil {
		defer response.Body.Close()
		_, err = io.Copy(io.Discard, response.Body)
	}
	if err == nil {
		t.Error("it ended well")
	}
	post, err := server.Client().Post(server.URL+BackupPath, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer post.Body.Close()
	if post.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", post.StatusCode)
	}
}
