// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package branch

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/git"
	"github.com/kommit-dev/kommit/pkg/manifest"
)

// StalledError says why a GitTarget cannot be written to, in the words of its
// conditions. It is not final: the user mends the target or what it refers to.
type StalledError struct {
	Target types.NamespacedName
	// Reason is a Reason* constant of v1alpha1.
	Reason  string
	Message string
}

func (e *StalledError) Error() string {
	return fmt.Sprintf("GitTarget %s is stalled: %s: %s", e.Target, e.Reason, e.Message)
}

// remoteBranch is what a worker owns.
type remoteBranch struct{ url, branch string }

// destination is a GitTarget with all that a commit to it needs.
type destination struct {
	remote     remoteBranch
	provider   types.NamespacedName
	path       string
	prune      bool
	committer  v1alpha1.GitIdentity
	mailDomain string
	repository *git.Repository
	layout     *layout
	// interval between two pushes to the repository; 0 for none (G7).
	interval time.Duration
}

// destinations resolves GitTargets through their GitProviders. Safe for
// concurrent use.
type destinations struct {
	targets           targetLister
	providers         providerLister
	secrets           secretGetter
	indexes           IndexStore
	allowInsecureHTTP bool

	mu sync.Mutex
	// repositories are kept per provider and rebuilt when its spec changes: they
	// hold the connection pool and the object cache.
	repositories map[types.NamespacedName]*providerRepository
	layouts      map[types.NamespacedName]*targetLayout
}

type providerRepository struct {
	uid        types.UID
	generation int64
	repository *git.Repository
}

// targetLayout is the layout of one GitTarget as its spec is.
type targetLayout struct {
	*layout

	of remoteBranch
}

// targetLister and providerLister are what destinations needs of the informers.
type (
	targetLister interface {
		Get(types.NamespacedName) (*v1alpha1.GitTarget, error)
		List() ([]*v1alpha1.GitTarget, error)
	}
	providerLister interface {
		Get(types.NamespacedName) (*v1alpha1.GitProvider, error)
	}
	secretGetter interface {
		Get(context.Context, types.NamespacedName) (*corev1.Secret, error)
	}
)

// resolve finds where a target's writes go. The error is a *StalledError, or
// the lister's NotFound when the target is gone.
func (d *destinations) resolve(name types.NamespacedName) (destination, error) {
	target, err := d.targets.Get(name)
	if err != nil {
		return destination{}, err
	}
	return d.resolveTarget(target)
}

// resolveTarget is resolve for a target that is at hand.
func (d *destinations) resolveTarget(target *v1alpha1.GitTarget) (destination, error) {
	name := nameOf(target)
	stalled := func(reason, format string, args ...any) (destination, error) {
		return destination{}, &StalledError{Target: name, Reason: reason, Message: fmt.Sprintf(format, args...)}
	}
	providerName := types.NamespacedName{Namespace: name.Namespace, Name: target.Spec.GitProviderRef.Name}
	provider, err := d.providers.Get(providerName)
	if err != nil {
		return stalled(v1alpha1.ReasonProviderNotFound, "GitProvider %q is not in namespace %q; create it or correct spec.gitProviderRef.name", providerName.Name, name.Namespace)
	}
	if !branchAllowed(provider.Spec.AllowedBranches, target.Spec.Branch) {
		return stalled(v1alpha1.ReasonBranchNotAllowed, "GitProvider %q does not allow branch %q; add it to spec.allowedBranches", provider.Name, target.Spec.Branch)
	}
	all, err := d.targets.List()
	if err != nil {
		return destination{}, err
	}
	if older := d.overlapping(target, provider.Spec.URL, all); older != nil {
		return stalled(v1alpha1.ReasonPathOverlap, "its path overlaps that of GitTarget %s/%s, which is older", older.Namespace, older.Name)
	}
	repository, err := d.repository(provider)
	if err != nil {
		var unsupported *git.UnsupportedError
		if errors.As(err, &unsupported) {
			return stalled(v1alpha1.ReasonUnsupported, "GitProvider %q: %v", provider.Name, err)
		}
		return stalled(v1alpha1.ReasonUnreachable, "GitProvider %q: %v", provider.Name, err)
	}
	resolved := destination{
		remote:     remoteBranch{url: canonical(provider.Spec.URL), branch: target.Spec.Branch},
		provider:   providerName,
		path:       target.Spec.Path,
		prune:      target.Spec.Prune,
		committer:  provider.Spec.Commit.Committer,
		mailDomain: provider.Spec.Commit.Author.EmailDomain,
		repository: repository,
	}
	resolved.layout = d.layout(target, resolved.remote)
	if perMinute := provider.Spec.Push.MaxPerMinute; perMinute > 0 {
		resolved.interval = time.Minute / time.Duration(perMinute)
	}
	return resolved, nil
}

// overlapping returns a target that is older than this one, on the same branch
// of the same repository, and whose path holds or is held by this one's
// (DESIGN 4.2).
func (d *destinations) overlapping(target *v1alpha1.GitTarget, url string, all []*v1alpha1.GitTarget) *v1alpha1.GitTarget {
	for _, other := range all {
		if other.UID == target.UID || other.Spec.Branch != target.Spec.Branch || !older(other, target) ||
			!holds(other.Spec.Path, target.Spec.Path) && !holds(target.Spec.Path, other.Spec.Path) {
			continue
		}
		provider, err := d.providers.Get(types.NamespacedName{Namespace: other.Namespace, Name: other.Spec.GitProviderRef.Name})
		if err == nil && canonical(provider.Spec.URL) == canonical(url) {
			return other
		}
	}
	return nil
}

// canonical takes from a URL what hosts take as the same: two spellings of one
// repository must not get two workers.
func canonical(url string) string {
	return strings.TrimSuffix(strings.TrimRight(url, "/"), ".git")
}

// older orders by creation, and by UID where that is the same second.
func older(a, b *v1alpha1.GitTarget) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.UID < b.UID
}

// holds says whether directory a is b or one of its parents. "" is the root.
func holds(a, b string) bool {
	return a == "" || a == b || len(b) > len(a) && b[:len(a)] == a && b[len(a)] == '/'
}

func branchAllowed(globs []string, branch string) bool {
	for _, glob := range globs {
		if ok, err := path.Match(glob, branch); err == nil && ok {
			return true
		}
	}
	return len(globs) == 0
}

// repository returns the provider's, as its present spec describes it.
func (d *destinations) repository(provider *v1alpha1.GitProvider) (*git.Repository, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := types.NamespacedName{Namespace: provider.Namespace, Name: provider.Name}
	if known := d.repositories[name]; known != nil && known.uid == provider.UID && known.generation == provider.Generation {
		return known.repository, nil
	}
	config := git.Config{URL: provider.Spec.URL, AllowInsecureHTTP: d.allowInsecureHTTP}
	if provider.Spec.Timeout != nil {
		config.Timeout = provider.Spec.Timeout.Duration
	}
	if ref := provider.Spec.SecretRef; ref != nil {
		secret := types.NamespacedName{Namespace: provider.Namespace, Name: ref.Name}
		config.Credentials = func(ctx context.Context) (git.Credentials, error) { return d.credentials(ctx, secret) }
	}
	if signing := provider.Spec.Commit.Signing; signing != nil {
		key := &signingKey{name: types.NamespacedName{Namespace: provider.Namespace, Name: signing.SecretRef.Name}, secrets: d.secrets}
		config.Signer = key.read
	}
	repository, err := git.NewRepository(config)
	if err != nil {
		return nil, err
	}
	if d.repositories == nil {
		d.repositories = map[types.NamespacedName]*providerRepository{}
	}
	d.repositories[name] = &providerRepository{uid: provider.UID, generation: provider.Generation, repository: repository}
	return repository, nil
}

// layout returns the target's.
func (d *destinations) layout(target *v1alpha1.GitTarget, of remoteBranch) *layout {
	d.mu.Lock()
	defer d.mu.Unlock()
	name, uid := nameOf(target), string(target.UID)
	if known := d.layouts[name]; known != nil && known.target == uid && known.base == target.Spec.Path && known.of == of {
		return known.layout
	}
	if d.layouts == nil {
		d.layouts = map[types.NamespacedName]*targetLayout{}
	}
	made := newLayout(uid, target.Spec.Path, d.indexes)
	d.layouts[name] = &targetLayout{layout: made, of: of}
	return made
}

// known is where an object of a target is, as far as that is known without asking
// anybody.
func (d *destinations) known(target *v1alpha1.GitTarget, o manifest.Object) string {
	d.mu.Lock()
	l := d.layouts[nameOf(target)]
	d.mu.Unlock()
	if l == nil || l.base != target.Spec.Path {
		return manifest.Path(target.Spec.Path, o.Group, o.Resource, o.Namespace, o.Name)
	}
	return l.known(o)
}

// targetGone forgets what is known of a deleted target's files.
func (d *destinations) targetGone(ctx context.Context, target *v1alpha1.GitTarget) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.layouts, nameOf(target))
	if d.indexes == nil {
		return
	}
	go func() {
		if err := d.indexes.Drop(string(target.UID)); err != nil {
			klog.FromContext(ctx).Error(err, "What the files of a deleted GitTarget held stays on disk", "target", nameOf(target))
		}
	}()
}

// forget drops a deleted provider's connections and cache.
func (d *destinations) forget(provider types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.repositories, provider)
}

// SecretError says that a GitProvider's credentials, or the key that its commits
// are signed with, cannot be used. It never holds any of the Secret's content.
type SecretError struct {
	Secret types.NamespacedName
	Err    error
}

func (e *SecretError) Error() string { return fmt.Sprintf("Secret %s: %v", e.Secret, e.Err) }

// Unwrap returns the cause.
func (e *SecretError) Unwrap() error { return e.Err }

// secretAtFault says whether a session could not begin because of what the Secret
// holds: nothing, nothing that can be used, or no such key of the host.
func secretAtFault(err error) bool {
	_, unread := errors.AsType[*SecretError](err)
	_, malformed := errors.AsType[*git.SecretError](err)
	_, hostKey := errors.AsType[*git.HostKeyError](err)
	return unread || malformed || hostKey
}

// credentials are read for each session, so that a rotated Secret is used at
// once (G9).
func (d *destinations) credentials(ctx context.Context, name types.NamespacedName) (git.Credentials, error) {
	data, err := readSecret(ctx, d.secrets, name)
	if err != nil {
		return git.Credentials{}, err
	}
	credentials, err := git.ParseSecret(data)
	if err != nil {
		return git.Credentials{}, &SecretError{Secret: name, Err: err}
	}
	return credentials, nil
}

// readSecret returns a *SecretError when the Secret is missing or may not be read.
func readSecret(ctx context.Context, secrets secretGetter, name types.NamespacedName) (map[string][]byte, error) {
	secret, err := secrets.Get(ctx, name)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return nil, &SecretError{Secret: name, Err: err}
	case err != nil:
		return nil, fmt.Errorf("reading Secret %s: %w", name, err)
	}
	return secret.Data, nil
}

// clusterSecrets reads Secrets from the host cluster, uncached: a cache would
// need list and watch on every Secret.
type clusterSecrets struct{ client kubernetes.Interface }

var _ secretGetter = clusterSecrets{}

func (s clusterSecrets) Get(ctx context.Context, name types.NamespacedName) (*corev1.Secret, error) {
	return s.client.CoreV1().Secrets(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
}
