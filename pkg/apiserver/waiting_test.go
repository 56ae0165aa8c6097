// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/kommit-dev/kommit/pkg/storage/bolt"
)

// wantWaiting checks what a server says that cannot open its file, and that it
// says no more to those who are nobody.
func wantWaiting(t *testing.T, s *runningServer, cause string) {
	t.Helper()
	for !strings.Contains(readyz(t, s), cause) {
	}
	for _, test := range []struct {
		path string
		code int
	}{
		{"/livez", http.StatusOK},
		{"/livez?verbose", http.StatusOK},
		{"/readyz", http.StatusServiceUnavailable},
		{"/healthz", http.StatusServiceUnavailable},
		{providersPath, http.StatusServiceUnavailable},
		{"/apis/kommit.dev/v1alpha1/namespaces/team/commitrequests/save", http.StatusServiceUnavailable},
		{"/apis/kommit.dev/v1alpha1/commitrequests?watch=true", http.StatusServiceUnavailable},
		{"/apis/kommit.dev/v1alpha1", http.StatusServiceUnavailable},
		{"/openapi/v3", http.StatusServiceUnavailable},
		{AuditPath, http.StatusServiceUnavailable},
		{BackupPath, http.StatusServiceUnavailable},
		{"/metrics", http.StatusServiceUnavailable},
		{"/", http.StatusServiceUnavailable},
	} {
		for _, user := range []string{"", "admin"} {
			response, body := s.get(t, user, test.path)
			if response.StatusCode != test.code {
				t.Errorf("%s as %q: %d %s, want %d", test.path, user, response.StatusCode, body, test.code)
			}
			if strings.Contains(string(body), filepath.Dir(s.options.StorageFile)) {
				t.Errorf("%s as %q tells a path: %s", test.path, user, body)
			}
			switch {
			case strings.HasPrefix(test.path, "/livez"):
			case isProbe(test.path):
				if !strings.Contains(string(body), cause) {
					t.Errorf("%s: %s, want the reason %q", test.path, body, cause)
				}
			default:
				status := statusIn(t, body)
				if status.Reason != metav1.StatusReasonServiceUnavailable || status.Code != http.StatusServiceUnavailable || !strings.Contains(status.Message, cause) {
					t.Errorf("%s: %+v, want ServiceUnavailable and %q", test.path, status, cause)
				}
				if after := response.Header.Get("Retry-After"); after == "" || after == "0" {
					t.Errorf("%s: Retry-After is %q", test.path, after)
				}
			}
		}
	}
	// A client that asks for protobuf, tables or CBOR understands it as well.
	client := s.as("admin")
	client.ContentType = "application/vnd.kubernetes.protobuf"
	client.AcceptContentTypes = "application/vnd.kubernetes.protobuf"
	// client-go would obey Retry-After ten times.
	impatient, err := rest.UnversionedRESTClientFor(withCodecs(client))
	if err != nil {
		t.Fatal(err)
	}
	if err := impatient.Get().AbsPath(providersPath).MaxRetries(0).Do(t.Context()).Error(); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("over protobuf: %v, want ServiceUnavailable", err)
	}
}

func withCodecs(config *rest.Config) *rest.Config {
	config.NegotiatedSerializer = newCodecs(newScheme()).WithoutConversion()
	return config
}

// F64, D5: the second process on a file says so, waits, and goes on where the
// first one ended, with no connection refused on the way.
func TestTwoServersOnOneFile(t *testing.T) {
	file := storageFile(t)
	first := runServer(t, file)
	<-first.serving
	created := createProvider(t, first.client(t), "origin", "https://git.example.com/a.git")
	want := listProviders(t, first.client(t))

	second := runServer(t, file)
	second.until(t, "/readyz", http.StatusServiceUnavailable)
	wantWaiting(t, second, "another process has its file")
	select {
	case <-second.serving:
		t.Fatal("the second server serves a file that the first one has")
	default:
	}
	if _, err := first.client(t).KommitV1alpha1().GitProviders("team").Get(t.Context(), "origin", metav1.GetOptions{}); err != nil {
		t.Errorf("the first server is disturbed: %v", err)
	}

	var askers sync.WaitGroup
	for range 4 {
		askers.Go(func() { second.until(t, providersPath, http.StatusOK, http.StatusServiceUnavailable) })
	}
	first.stop()
	askers.Wait()
	<-second.serving
	got := listProviders(t, second.client(t))
	if len(got.Items) != 1 || got.Items[0].UID != created.UID || got.ResourceVersion != want.ResourceVersion {
		t.Errorf("the second server lists %+v, want what the first one did: %+v", got, want)
	}
	second.until(t, "/readyz", http.StatusOK, http.StatusInternalServerError)
	if next := createProvider(t, second.client(t), "next", "https://git.example.com/b.git"); len(next.ResourceVersion) < len(want.ResourceVersion) || next.ResourceVersion <= want.ResourceVersion {
		t.Errorf("created at %s after %s", next.ResourceVersion, want.ResourceVersion)
	}
}

func TestStopWhileWaiting(t *testing.T) {
	file := storageFile(t)
	first := runServer(t, file)
	<-first.serving
	second := runServer(t, file)
	second.until(t, "/readyz", http.StatusServiceUnavailable)
	second.stop() // fails on an error
	if _, err := http.Get(second.config.Host); err == nil {
		t.Error("a server that has stopped answers")
	}
}

// replaceable files are those that only an operator can put right. What they are
// is not changed, and once one that is good is in their place it is served.
func TestUnusableFile(t *testing.T) {
	good := storageFile(t)
	first := runServer(t, good)
	<-first.serving
	want := createProvider(t, first.client(t), "origin", "https://git.example.com/a.git")
	first.stop()
	content, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, cause string
		spoil       func(t *testing.T, path string)
	}{
		{"corrupt", "its file is corrupt", func(t *testing.T, path string) {
			spoiled := bytes.Clone(content)
			clear(spoiled[2*os.Getpagesize():])
			if err := os.WriteFile(path, spoiled, 0o600); err != nil {
				t.Fatal(err)
			}
		}},
		{"of a newer version", "its file is of a newer version", func(t *testing.T, path string) {
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			file, err := bbolt.Open(path, 0o600, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(file.Update(func(tx *bbolt.Tx) error {
				return tx.Bucket([]byte("meta")).Put([]byte("format"), binary.BigEndian.AppendUint64(nil, 1000))
			}), file.Close()); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := storageFile(t)
			test.spoil(t, path)
			spoiled, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			server := runServer(t, path)
			server.until(t, "/readyz", http.StatusServiceUnavailable)
			wantWaiting(t, server, test.cause)
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, spoiled) {
				t.Errorf("the file was changed, %v", err)
			}

			// Taken away, it is not made anew: clients would see an empty list.
			if err := os.Rename(path, path+".old"); err != nil {
				t.Fatal(err)
			}
			for !strings.Contains(readyz(t, server), "its file was taken away") {
			}
			if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a file was made: %v", err)
			}

			restored := path + ".restored"
			if err := os.WriteFile(restored, content, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(restored, path); err != nil {
				t.Fatal(err)
			}
			server.until(t, providersPath, http.StatusOK, http.StatusServiceUnavailable)
			list := listProviders(t, server.client(t))
			if len(list.Items) != 1 || list.Items[0].UID != want.UID {
				t.Errorf("listed %+v, want what was restored", list.Items)
			}
		})
	}
}

func readyz(t *testing.T, s *runningServer) string {
	t.Helper()
	_, body := s.get(t, "", "/readyz")
	return string(body)
}

// What waiting does not help with ends the process, with its reason.
func TestNoDirectoryEndsTheServer(t *testing.T) {
	options := NewOptions()
	options.StorageFile = filepath.Join(t.TempDir(), "none", "kommit.db")
	config := testConfig(t, options)
	if err := options.serve(t.Context(), config, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v, want that the directory does not exist", err)
	}
}

// The log says at once why, and then calmly.
func TestWaitingPace(t *testing.T) {
	for _, test := range []struct {
		name     string
		err      error
		attempts int // in three minutes less a moment
	}{
		{"locked", &bolt.LockedError{Path: "/data/kommit.db", Waited: time.Second}, 3 * 60 * 4},
		{"corrupt", &bolt.CorruptFileError{Path: "/data/kommit.db", Err: errors.New("page 7")}, 3 * 2},
		{"newer", &bolt.VersionError{Path: "/data/kommit.db", Found: 2, Supported: 1}, 3 * 2},
		{"disk full", &bolt.DiskFullError{Path: "/data/kommit.db", Err: errors.New("no space")}, 3 * 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
				logged := func() []ktesting.LogEntry {
					return logger.GetSink().(ktesting.Underlier).GetBuffer().Data()
				}
				ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
				path := storageFile(t)
				if err := os.WriteFile(path, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				attempts, failures := 0, 0
				w := newWaiting(path, func() (*bolt.DB, error) {
					attempts++
					return nil, fmt.Errorf("opening: %w", test.err)
				})
				ended := make(chan error)
				go func() {
					_, err := w.untilOpen(ctx, func() { failures++ })
					ended <- err
				}()
				synctest.Wait()
				if entries := logged(); len(entries) != 1 || !errors.Is(entries[0].Err, test.err) {
					t.Fatalf("logged %v, want the error at once", entries)
				}
				time.Sleep(3*time.Minute - time.Millisecond)
				synctest.Wait()
				if attempts != test.attempts || failures != attempts {
					t.Errorf("%d attempts, %d told of, want %d", attempts, failures, test.attempts)
				}
				if entries := logged(); len(entries) != 3 {
					t.Errorf("logged %d times in three minutes, want 3", len(entries))
				}
				cancel()
				if err := <-ended; !errors.Is(err, context.Canceled) {
					t.Errorf("ended with %v", err)
				}
			})
		})
	}
}

// A file that is still being copied is left alone until it rests.
func TestWaitsForTheCopyToRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := storageFile(t)
		write := func(size int) {
			t.Helper()
			if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(1)
		var attempts, last atomic.Int64
		start := time.Now()
		w := newWaiting(path, func() (*bolt.DB, error) {
			attempts.Add(1)
			last.Store(int64(time.Since(start)))
			return nil, &bolt.CorruptFileError{Path: path, Err: errors.New("page 7")}
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = w.untilOpen(ctx, func() {})
		}()
		time.Sleep(lookPause / 2)
		for size := range 5 { // grows by one before each look
			write(2 + size)
			time.Sleep(lookPause)
		}
		synctest.Wait()
		if n := attempts.Load(); n != 1 {
			t.Errorf("tried %d times, want once, before the copy", n)
		}
		time.Sleep(lookPause)
		synctest.Wait()
		if n, at := attempts.Load(), time.Duration(last.Load()); n != 2 || at >= unusablePause {
			t.Errorf("tried %d times, last after %s, want again when the file had rested", n, at)
		}
		cancel()
		<-ended
	})
}
