// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/generated/clientset/versioned"
	"github.com/kommit-dev/kommit/test/controlplane"
	"github.com/kommit-dev/kommit/test/gitserver"
	"github.com/kommit-dev/kommit/test/stack"
)

const (
	shelfNamespace = "shelf"
	shelfSize      = 10_000
	// shelfBytes is the size of one object's data.
	shelfBytes = 5 << 10
	// shelfWriters fill it at the same time.
	shelfWriters = 16
	// shelfBound is how long a round may take.
	shelfBound = 5 * time.Minute
)

// shelf is a namespace with many ConfigMaps that nothing watches yet.
type shelf struct {
	dir      string
	stack    *stack.Stack
	cluster  kubernetes.Interface
	requests versioned.Interface
}

// newShelf starts everything and fills the namespace. close stops it.
func newShelf(ctx context.Context) (_ *shelf, err error) {
	s := &shelf{}
	if s.dir, err = os.MkdirTemp("", "kommit-bench-"); err != nil {
		return nil, err
	}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, s.close(context.WithoutCancel(ctx)))
	}
	return s, nil
}

func (s *shelf) prepare(ctx context.Context) (err error) {
	s.stack, err = stack.Start(ctx, stack.Config{
		Dir: filepath.Join(s.dir, "stack"), Log: os.Stderr,
		// What is on the shelf when it is first listed is nobody's: it is older.
		ServerArgs: []string{"--attribution-grace=1s"},
	})
	if err != nil {
		return err
	}
	config, err := s.stack.ControlPlane.RESTConfig(controlplane.Admin)
	if err != nil {
		return err
	}
	if s.cluster, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if s.requests, err = versioned.NewForConfig(config); err != nil {
		return err
	}
	if _, err := s.cluster.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shelfNamespace}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err = s.cluster.CoreV1().Secrets(shelfNamespace).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "git"}, Type: corev1.SecretTypeBasicAuth,
		StringData: map[string]string{corev1.BasicAuthUsernameKey: stack.GitUsername, corev1.BasicAuthPasswordKey: stack.GitPassword},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if err := s.fill(ctx); err != nil {
		return err
	}
	// Whoever was told of the filling is not any more.
	if err := s.stack.StopServer(ctx); err != nil {
		return err
	}
	if err := s.stack.StartServer(ctx); err != nil {
		return err
	}
	return s.awaitServer(ctx)
}

// awaitServer waits until the server that was started again knows its clients.
func (s *shelf) awaitServer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		_, err := s.serverHeap(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (s *shelf) fill(ctx context.Context) error {
	numbers := make(chan int)
	errs := make([]error, shelfWriters)
	var filling sync.WaitGroup
	for writer := range shelfWriters {
		filling.Go(func() {
			for i := range numbers {
				if errs[writer] != nil {
					continue
				}
				_, errs[writer] = s.cluster.CoreV1().ConfigMaps(shelfNamespace).Create(ctx, shelved(i), metav1.CreateOptions{})
			}
		})
	}
	for i := range shelfSize {
		numbers <- i
	}
	close(numbers)
	filling.Wait()
	return errors.Join(errs...)
}

// shelved is one object: settings as people have them, of several lines, and no two
// the same.
func shelved(i int) *corev1.ConfigMap {
	words := rand.New(rand.NewPCG(1, uint64(i)))
	var settings strings.Builder
	for settings.Len() < shelfBytes {
		fmt.Fprintf(&settings, "setting.%d.%x = %x\n", settings.Len(), words.Uint32(), words.Uint64())
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("settings-%05d", i), Labels: map[string]string{"app": "web", "part": strconv.Itoa(i % 10)}},
		Data:       map[string]string{"application.properties": settings.String()},
	}
}

func (s *shelf) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var stopped error
	if s.stack != nil {
		stopped = s.stack.Stop(ctx)
	}
	return errors.Join(stopped, os.RemoveAll(s.dir))
}

// allOf selects every object of the shelf, in another way for each number.
func allOf(number int) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: fmt.Sprintf("absent-%d", number), Operator: metav1.LabelSelectorOpDoesNotExist},
	}}
}

// rule captures the whole shelf for the target of that name.
func (s *shelf) rule(name string, number int) *v1alpha1.WatchRule {
	return &v1alpha1.WatchRule{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.WatchRuleSpec{
			GitTargetRef: v1alpha1.LocalObjectReference{Name: name},
			Resources:    []v1alpha1.WatchedResources{{Resources: []string{"configmaps"}, LabelSelector: allOf(number)}},
		},
	}
}

// target makes an empty repository and a GitTarget for it, and waits until both
// are ready.
func (s *shelf) target(ctx context.Context, name string) (*gitserver.Repository, error) {
	repository, err := s.stack.Git.Create(ctx, name)
	if err != nil {
		return nil, err
	}
	kommit := s.requests.KommitV1alpha1()
	_, err = kommit.GitProviders(shelfNamespace).Create(ctx, &v1alpha1.GitProvider{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.GitProviderSpec{URL: repository.URL, SecretRef: &v1alpha1.LocalObjectReference{Name: "git"}},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	_, err = kommit.GitTargets(shelfNamespace).Create(ctx, &v1alpha1.GitTarget{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.GitTargetSpec{
			GitProviderRef: v1alpha1.LocalObjectReference{Name: name}, Branch: "main", Attribution: v1alpha1.AttributionNone,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	_, _, err = s.stack.ControlPlane.Kubectl(ctx, controlplane.Admin, "wait", "--for=condition=Ready", "--timeout=60s",
		"--namespace="+shelfNamespace, "gitprovider/"+name, "gittarget/"+name)
	return repository, err
}

// sync captures the shelf for a new target, and returns when the first commit is on
// the remote, and how long that took from the create of the WatchRule. It must
// hold everything, and be the only one.
func (s *shelf) sync(ctx context.Context, name string) (took float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, shelfBound)
	defer cancel()
	repository, err := s.target(ctx, name)
	if err != nil {
		return 0, err
	}
	kommit := s.requests.KommitV1alpha1()
	targets, err := kommit.GitTargets(shelfNamespace).Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()})
	if err != nil {
		return 0, err
	}
	defer targets.Stop()
	began := time.Now()
	if _, err := kommit.WatchRules(shelfNamespace).Create(ctx, s.rule(name, 0), metav1.CreateOptions{}); err != nil {
		return 0, err
	}
	for event := range targets.ResultChan() {
		if target, ok := event.Object.(*v1alpha1.GitTarget); !ok || target.Status.Commit == "" {
			continue
		}
		took = milliseconds(began)
		commits, err := repository.Git(ctx, "rev-list", "--count", "main")
		if err != nil {
			return 0, err
		}
		files, err := repository.Files(ctx, "main")
		if err == nil && (strings.TrimSpace(commits) != "1" || len(files) != shelfSize) {
			err = fmt.Errorf("%s commits with %d files, want 1 with %d", strings.TrimSpace(commits), len(files), shelfSize)
		}
		return took, err
	}
	return 0, fmt.Errorf("no commit: the watch ended")
}

// unsync ends the capture for a target.
func (s *shelf) unsync(ctx context.Context, name string) error {
	kommit := s.requests.KommitV1alpha1()
	if err := kommit.WatchRules(shelfNamespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	if err := kommit.GitTargets(shelfNamespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	_, _, err := s.stack.ControlPlane.Kubectl(ctx, controlplane.Admin, "wait", "--for=delete", "--timeout=60s", "--namespace="+shelfNamespace, "gittarget/"+name)
	if err != nil {
		return err
	}
	return kommit.GitProviders(shelfNamespace).Delete(ctx, name, metav1.DeleteOptions{})
}

// relist has the rule's objects listed and compared again, by a selector that is
// another one and selects the same, and returns how long that takes.
func (s *shelf) relist(ctx context.Context, name string, number int) (took float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, shelfBound)
	defer cancel()
	rules := s.requests.KommitV1alpha1().WatchRules(shelfNamespace)
	rule, err := rules.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return 0, err
	}
	events, err := rules.Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String(), ResourceVersion: rule.ResourceVersion})
	if err != nil {
		return 0, err
	}
	defer events.Stop()
	rule.Spec = s.rule(name, number).Spec
	began := time.Now()
	if rule, err = rules.Update(ctx, rule, metav1.UpdateOptions{}); err != nil {
		return 0, err
	}
	for event := range events.ResultChan() {
		now, ok := event.Object.(*v1alpha1.WatchRule)
		if !ok {
			return 0, fmt.Errorf("watch: %v", event.Object)
		}
		ready := apimeta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionReady)
		if ready != nil && ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == rule.Generation {
			return milliseconds(began), nil
		}
	}
	return 0, errors.New("the rule did not become ready: the watch ended")
}

// kubectlTo writes what kubectl prints of the shelf to a file.
func (s *shelf) kubectlTo(ctx context.Context, file string, args ...string) error {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	kubeconfig, err := s.stack.ControlPlane.Kubeconfig(controlplane.Admin)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(s.stack.BinDir(), "kubectl"), append(args, "--kubeconfig="+kubeconfig)...)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", cmd, err)
	}
	return nil
}

// checkout makes an empty one of a remote.
func checkout(ctx context.Context, dir, remote string) error {
	at, err := url.Parse(remote)
	if err != nil {
		return err
	}
	at.User = url.UserPassword(stack.GitUsername, stack.GitPassword)
	for _, command := range [][]string{
		{"init", "--quiet", "--initial-branch=peer", dir},
		{"-C", dir, "remote", "add", "origin", at.String()},
		{"-C", dir, "config", "user.name", "alice"},
		{"-C", dir, "config", "user.email", "alice@example.com"},
		{"-C", dir, "config", "gc.auto", "0"},
		// The test's Git server takes no request of unknown length.
		{"-C", dir, "config", "http.postBuffer", "1g"},
	} {
		if err := gitCommand(ctx, "git", command...); err != nil {
			return err
		}
	}
	return nil
}

var itemName = regexp.MustCompile(`(?m)^    name: (.+)$`)

// split puts each item of a List that kubectl printed into a file of its own.
func split(list, dir string) error {
	content, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	_, items, found := strings.Cut(string(content), "\nitems:\n- ")
	if !found {
		return fmt.Errorf("%s is not a list", list)
	}
	for item := range strings.SplitSeq(items, "\n- ") {
		name := itemName.FindStringSubmatch(item)
		if name == nil {
			return fmt.Errorf("an item of %s has no name", list)
		}
		if err := os.WriteFile(filepath.Join(dir, name[1]+".yaml"), []byte("  "+item), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// byHand saves what kubectl prints with the git command line. The time between the
// two, for one file each, is not counted.
func byHand(ctx context.Context, dir string, kubectl func(ctx context.Context, file string) error) (float64, error) {
	list := filepath.Join(filepath.Dir(dir), "list.yaml")
	began := time.Now()
	if err := kubectl(ctx, list); err != nil {
		return 0, err
	}
	took := milliseconds(began)
	if err := split(list, dir); err != nil {
		return 0, err
	}
	began = time.Now()
	save := fmt.Sprintf("cd '%s' && git add . && git commit --quiet -m 'Save' && git push --quiet origin peer", dir)
	if err := gitCommand(ctx, "sh", "-c", save); err != nil {
		return 0, err
	}
	return took + milliseconds(began), nil
}

// serverHeap is what kommit-apiserver holds of heap and stacks, in bytes, after
// garbage is collected.
func (s *shelf) serverHeap(ctx context.Context) (float64, error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.stack.Extension.CA)
	certificate, key, err := s.stack.Extension.AuditUser("operator", "system:masters")
	if err != nil {
		return 0, err
	}
	operator, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return 0, err
	}
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{operator}}, DisableKeepAlives: true,
	}}
	get := func(path string) (string, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.stack.Extension.URL()+path, nil)
		if err != nil {
			return "", err
		}
		response, err := client.Do(request)
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err == nil && response.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", path, response.Status)
		}
		return string(body), err
	}
	for range 4 {
		if _, err := get("/debug/pprof/heap?gc=1"); err != nil {
			return 0, err
		}
	}
	metrics, err := get("/metrics")
	if err != nil {
		return 0, err
	}
	held := 0.0
	for _, name := range []string{"go_memstats_heap_alloc_bytes", "go_memstats_stack_inuse_bytes"} {
		_, value, found := strings.Cut(metrics, "\n"+name+" ")
		if !found {
			return 0, fmt.Errorf("kommit-apiserver has no metric %s", name)
		}
		value, _, _ = strings.Cut(value, "\n")
		bytes, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, err
		}
		held += bytes
	}
	return held, nil
}
