// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kommit-dev/kommit/generated/clientset/versioned"
	"github.com/kommit-dev/kommit/test/controlplane"
	"github.com/kommit-dev/kommit/test/stack"
)

// repositoryName is that of the one repository: both targets write to one branch.
const repositoryName = "chaos"

// publishedCA is a ConfigMap that a controller makes in each namespace, and kommit does
// not capture.
const publishedCA = "kube-root-ca.crt"

// auditPatience is how long audit events wait for a server, within kube-apiserver's own
// 10 s for a TLS handshake.
const auditPatience = 9 * time.Second

// Config of a world.
type Config struct {
	// Dir is the state folder. Log tells what goes on. Both required.
	Dir string
	Log io.Writer
	// Seed of all that is random here. What the machine makes of it is not.
	Seed uint64
}

// world is everything, running, with what is known of it.
type world struct {
	config Config
	stack  *stack.Stack
	proxy  *proxy // to the Git server
	audit  *proxy // from kube-apiserver
	places []Place

	kubernetes kubernetes.Interface // as an administrator
	kommit     versioned.Interface
	authors    []*author
	objects    *objects
	history    History
	requests   Requests
	following  sync.WaitGroup
	stopFollow context.CancelFunc

	killer  *killer
	dropped float64 // audit events, by kube-apiservers that are gone
	clones  int
	cloned  Repository // at head
	head    string
}

// newWorld starts it. The caller stops it, also after an error.
func newWorld(ctx context.Context, c Config) (*world, error) {
	w := &world{
		config: c, objects: newObjects(), stopFollow: func() {},
		places: []Place{{Namespace: "saved", Path: "clusters/a"}, {Namespace: "idle", Path: "clusters/b"}},
	}
	var err error
	w.stack, err = stack.Start(ctx, stack.Config{
		Dir: filepath.Join(c.Dir, "stack"), Log: c.Log, Failpoints: true,
		// kube-apiserver tries five times, with this within 16 s. Where a server lives for
		// seconds, all five may find none, and then nobody can know an author. No real one
		// is killed as often; so they wait for the next one on the way.
		AuditFlags: append(controlplane.RecommendedAuditFlags(), "--audit-webhook-initial-backoff=2s"),
		AuditThrough: func(server string) (address string, err error) {
			if w.audit, err = newProxy(context.WithoutCancel(ctx), server, auditPatience); err != nil {
				return "", err
			}
			return w.audit.address(), nil
		},
	})
	if err != nil {
		return w, err
	}
	w.killer = newKiller(w.stack, w.source("killer"))
	if w.proxy, err = newProxy(context.WithoutCancel(ctx), strings.TrimPrefix(w.stack.Git.URL(), "http://"), 0); err != nil {
		return w, err
	}
	config, err := w.stack.ControlPlane.RESTConfig(controlplane.Admin)
	if err != nil {
		return w, err
	}
	if w.kubernetes, err = kubernetes.NewForConfig(config); err != nil {
		return w, err
	}
	if w.kommit, err = versioned.NewForConfig(config); err != nil {
		return w, err
	}
	return w, w.populate(ctx)
}

// populate makes the two targets, one whose windows are saved and one whose windows
// mostly close by themselves, and the authors.
func (w *world) populate(ctx context.Context) error {
	users := []string{"alice", "bob", "carol"}
	timers := []time.Duration{20 * time.Second, 1500 * time.Millisecond}
	for i, place := range w.places {
		if err := w.stack.SetUpShop(ctx, stack.Shop{
			Namespace: place.Namespace, Path: place.Path, Target: target, Branch: branch, Repository: repositoryName,
			URL: "http://" + w.proxy.address() + "/" + repositoryName, Users: users, IdleTimeout: timers[i], MaxDuration: 3 * timers[i],
			// What is deleted while nobody can tell of it goes by a comparison alone (C9).
			Prune: true,
		}); err != nil {
			return err
		}
	}
	for _, user := range users {
		a, err := newAuthor(w.stack.ControlPlane, user, w)
		if err != nil {
			return err
		}
		w.authors = append(w.authors, a)
	}
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.stopFollow = stop
	for _, place := range w.places {
		w.following.Go(func() { w.requests.follow(following, w.kommit, place.Namespace) })
	}
	return nil
}

// source of what is random for one purpose.
func (w *world) source(purpose string) *rand.Rand {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(purpose))
	return rand.New(rand.NewPCG(w.config.Seed, hash.Sum64())) // #nosec G404 -- it has to be repeatable
}

// work lets the authors edit and save while during runs, and returns when they have
// finished what they were at.
func (w *world) work(ctx context.Context, during func(context.Context) error) error {
	working, stop := context.WithCancel(ctx)
	defer stop()
	errs := make(chan error, len(w.authors))
	for _, a := range w.authors {
		go func() { errs <- a.work(working) }()
	}
	err := during(ctx)
	stop()
	for range w.authors {
		if e := <-errs; err == nil {
			err = e
		}
	}
	return err
}

// droppedEvents are the audit events that kube-apiserver has given up, and the requests
// that it has turned down because of one.
func (w *world) droppedEvents(ctx context.Context) (float64, error) {
	metrics, err := w.kubernetes.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, err
	}
	dropped := w.dropped
	for line := range strings.Lines(string(metrics)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(name, "apiserver_audit_error_total{") || name == "apiserver_audit_requests_rejected_total" {
			var n float64
			if _, err := fmt.Sscan(value, &n); err != nil {
				return 0, fmt.Errorf("metric %q: %w", line, err)
			}
			dropped += n
		}
	}
	return dropped, nil
}

// restartAPIServer keeps the count of what was dropped.
func (w *world) restartAPIServer(ctx context.Context) error {
	dropped, err := w.droppedEvents(ctx)
	if err != nil {
		return err
	}
	w.dropped = dropped
	return w.stack.ControlPlane.RestartAPIServer(ctx)
}

// cluster is what is captured, by the path of its file.
func (w *world) cluster(ctx context.Context) (map[string]map[string]string, error) {
	cluster := map[string]map[string]string{}
	for _, place := range w.places {
		list, err := w.kubernetes.CoreV1().ConfigMaps(place.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, object := range list.Items {
			if object.Name == publishedCA {
				continue
			}
			cluster[place.file(object.Name)] = object.Data
		}
	}
	return cluster, nil
}

// clone of the repository as it is now.
func (w *world) clone(ctx context.Context) (Repository, error) {
	from := w.stack.Git.Repository(repositoryName)
	head, err := from.Head(ctx, branch)
	if err != nil || head == w.head && head != "" {
		return w.cloned, err
	}
	w.clones++
	dir := filepath.Join(w.config.Dir, fmt.Sprintf("clone-%d", w.clones))
	defer os.RemoveAll(dir)
	cloned, err := readRepository(ctx, from, dir)
	if err != nil {
		return Repository{}, err
	}
	w.cloned, w.head = cloned, cloned.Commits[len(cloned.Commits)-1].Hash
	return cloned, nil
}

// stop ends everything and checks the storage file that is left.
func (w *world) stop(ctx context.Context) error {
	w.stopFollow()
	w.following.Wait()
	for _, p := range []*proxy{w.proxy, w.audit} {
		if p != nil {
			p.close()
		}
	}
	if w.stack == nil {
		return nil
	}
	if err := w.stack.Stop(ctx); err != nil {
		return err
	}
	return checkStorage(w.stack.StorageFile())
}

// checkStorage reads every page of the file.
func checkStorage(file string) (err error) {
	db, err := bbolt.Open(file, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return db.View(func(tx *bbolt.Tx) error {
		var first error
		for err := range tx.Check() {
			if first == nil {
				first = fmt.Errorf("storage file %s: %w", file, err)
			}
		}
		return first
	})
}
