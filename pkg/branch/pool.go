// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package branch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	clientset "github.com/kommit-dev/kommit/generated/clientset/versioned/typed/kommit/v1alpha1"
	informers "github.com/kommit-dev/kommit/generated/informers/externalversions/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/branch/recovery"
	"github.com/kommit-dev/kommit/pkg/git"
	"github.com/kommit-dev/kommit/pkg/window"
)

// Config is what a Pool works with once the server is up.
type Config struct {
	// Client writes status through the server itself.
	Client clientset.KommitV1alpha1Interface
	// Informers of the server's own kinds; the caller starts their factory after
	// Start returned.
	Informers informers.Interface
	// Cluster is where the Secrets of GitProviders are read.
	Cluster kubernetes.Interface
	// Indexes keeps what is known of the targets' files over a restart; nil: they are
	// read again.
	Indexes IndexStore
	// CatchUp proves that all that was persisted in the target before the call has
	// reached Change, or names the resource that lags when ctx ends (DESIGN 5.5).
	CatchUp func(ctx context.Context, target types.NamespacedName) (lagging string)
	// CatchUpTimeout bounds each CatchUp.
	CatchUpTimeout time.Duration
	// Recompare has the target compared with Git again, as soon as it is not suspended
	// (W18). It may be called at any time and returns at once.
	Recompare func(target types.NamespacedName)
	// Retry ends the wait of a comparison with Git that failed: what was in the way may
	// have changed. It may be called at any time and returns at once.
	Retry func(target types.NamespacedName)
	// Attribution says why the target's changes cannot find their authors, and what to
	// set; both are empty when they can (C12). It is asked at intervals. May be nil.
	Attribution func(target types.NamespacedName) (reason, message string)
	// AllowInsecureHTTP accepts http:// remotes.
	AllowInsecureHTTP bool
}

// Pool takes changes and CommitRequests in and has branch workers commit what
// the window engine closes. Safe for concurrent use.
//
// A Pool that was not started holds no windows, which is what Binding then says.
type Pool struct {
	journal        *recovery.Journal
	maxWindowBytes int64
	// begun is closed once what the process before left is taken over: nothing comes in
	// before that.
	begun chan struct{}

	// Set by Start, before anything else can reach the Pool, and constant after.
	ctx          context.Context
	config       Config
	requests     *requests
	destinations *destinations
	readiness    *readiness
	expiry       *expiry

	mu      sync.Mutex
	engine  *window.Engine
	windows windowTable
	wake    *time.Timer
	targets map[types.NamespacedName]*v1alpha1.GitTarget
	// leaving are the targets that are being deleted and caught up with, by the uid.
	leaving map[types.NamespacedName]types.UID
	// waiting are requests whose target has not been seen yet.
	waiting map[types.NamespacedName][]*v1alpha1.CommitRequest
	// backlogs are the closed writes that are not on a remote yet, per target.
	backlogs map[types.NamespacedName]*backlog
	sequence uint64
	workers  map[remoteBranch]*worker
	// stopped is closed, and made anew, each time a worker ends.
	stopped chan struct{}
	// paced says when repositories with a bound on their pushes may be pushed to again
	// (G7).
	paced map[*git.Repository]time.Time
	// stopping: windows are closed for good, the next process will see the rest.
	stopping bool
}

// NewPool returns a Pool without windows. See Start. maxWindowBytes is as of
// window.Config; the journal is the Pool's from Start on, and not read before.
func NewPool(maxWindowBytes int64, journal *recovery.Journal) *Pool {
	return &Pool{
		journal:        journal,
		maxWindowBytes: maxWindowBytes,
		begun:          make(chan struct{}),

		engine:   window.New(engineConfig(maxWindowBytes)),
		windows:  newWindowTable(time.Now()),
		targets:  map[types.NamespacedName]*v1alpha1.GitTarget{},
		leaving:  map[types.NamespacedName]types.UID{},
		waiting:  map[types.NamespacedName][]*v1alpha1.CommitRequest{},
		backlogs: map[types.NamespacedName]*backlog{},
		workers:  map[remoteBranch]*worker{},
		stopped:  make(chan struct{}),
		paced:    map[*git.Repository]time.Time{},
	}
}

func engineConfig(maxBytes int64) window.Config {
	return window.Config{NewName: windowName, MaxBytes: maxBytes}
}

// windowName makes names in the manner of generateName.
func windowName(target types.NamespacedName, _ window.Author) string {
	return fmt.Sprintf("%s-%s", target.Name, rand.String(10))
}

// Start makes the Pool work until ctx ends, going on from what the process before
// left in the journal. It registers with the informers and returns; they are started
// by the caller. Until they have synced nothing is taken in.
func (p *Pool) Start(ctx context.Context, config Config) error {
	left, err := p.journal.Load(ctx)
	switch {
	case err != nil && !recovery.IsDamage(err):
		return fmt.Errorf("reading the journal: %w", err)
	case err != nil:
		klog.FromContext(ctx).Error(err, "Part of the journal is damaged and left out: the objects that it is about are compared with Git when they change next")
	}
	p.mu.Lock()
	p.ctx, p.config = ctx, config
	p.requests = newRequests(config.Client, p.journal)
	p.destinations = &destinations{
		targets:           targetCache{config.Informers.GitTargets().Lister()},
		providers:         providerCache{config.Informers.GitProviders().Lister()},
		secrets:           clusterSecrets{config.Cluster},
		indexes:           config.Indexes,
		allowInsecureHTTP: config.AllowInsecureHTTP,
	}
	p.readiness = newReadiness(config.Client, p.destinations, p.flushOf, config.Attribution)
	p.expiry = newExpiry(config.Client)
	p.mu.Unlock()
	go p.requests.run(ctx)
	go p.readiness.run(ctx)
	go p.expiry.run(ctx)
	if err := p.handleEvents(); err != nil {
		return err
	}
	synced := []cache.InformerSynced{
		config.Informers.GitTargets().Informer().HasSynced,
		config.Informers.GitProviders().Informer().HasSynced,
		config.Informers.CommitRequests().Informer().HasSynced,
	}
	go func() {
		if !cache.WaitForCacheSync(ctx.Done(), synced...) {
			return
		}
		if err := p.begin(left); err != nil {
			klog.FromContext(ctx).Error(err, "Nothing is saved")
		}
	}()
	return nil
}

// ErrStopping: what comes in is left to the next process.
var ErrStopping = errors.New("the server is stopping")

// enter waits until the Pool takes in what changes targets, and for room in the
// journal.
func (p *Pool) enter(ctx context.Context) error {
	select {
	case <-p.begun:
		return p.journal.Room(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Change implements capture's sink: the change is in a window when it returns nil,
// or its target does not exist. Otherwise it was not taken, because ctx has ended or
// for ErrStopping. What was taken before this process began is not taken again.
func (p *Pool) Change(ctx context.Context, change window.Change) error {
	if err := p.enter(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.stopping:
		return ErrStopping
	case p.journal.Again(change) || !p.ensureTarget(change.Target):
		return nil
	}
	now := time.Now()
	p.apply(now, p.engine.Change(now, change))
	return nil
}

// Resync implements capture's sink: the changes become one commit by the
// committer, after all windows of the target (W13). Errors are as of Change.
func (p *Pool) Resync(ctx context.Context, target types.NamespacedName, changes []window.Change) error {
	if err := p.enter(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.stopping:
		return ErrStopping
	case !p.ensureTarget(target):
		return nil
	}
	now := time.Now()
	p.apply(now, p.engine.Resync(now, target, changes))
	return nil
}

// Binding says, without doing anything, which open window a request made now
// would attach to, and which earlier save of the same author it would have to
// be refused for (W10). Empty: none.
func (p *Pool) Binding(target types.NamespacedName, username string, attach v1alpha1.AttachPolicy) (name, inProgress string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	binding := p.engine.Binding(target, window.Author{Username: username}, attach)
	if binding.InProgress != nil {
		inProgress = binding.InProgress.Name
	}
	return binding.Window, inProgress
}

// Shutdown closes all windows, and waits until they are pushed and their requests
// have been told, or ctx ends. What comes after is left to the next process.
func (p *Pool) Shutdown(ctx context.Context) error {
	p.mu.Lock()
	p.stopping = true
	if p.requests == nil { // never started
		p.mu.Unlock()
		return nil
	}
	now := time.Now()
	p.apply(now, p.engine.Shutdown(now))
	p.retry(func(types.NamespacedName) bool { return true })
	p.mu.Unlock()
	if err := p.Wait(ctx); err != nil {
		return fmt.Errorf("not all windows were pushed: %w", err)
	}
	return p.requests.flush(ctx)
}

// Wait returns when no worker is at work, which is soon after Start's ctx has ended.
// The error is that of ctx.
func (p *Pool) Wait(ctx context.Context) error {
	for {
		p.mu.Lock()
		stopped, running := p.stopped, false
		for _, w := range p.workers {
			running = running || w.running
		}
		p.mu.Unlock()
		if !running {
			return nil
		}
		select {
		case <-stopped:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// apply carries out effects of that time in order and sets the timer for the next
// wake. They are in the journal before anything comes of them. Caller must hold mu.
func (p *Pool) apply(now time.Time, effects []window.Effect) {
	for _, effect := range effects {
		if discarded, ok := effect.(window.Discarded); ok {
			p.config.Recompare(discarded.Write.Target) // before the journal: see recovery.Journal.Compared
		}
	}
	p.journal.Effects(now, effects, p.shared)
	ended := map[string]window.Write{}
	for _, effect := range effects {
		switch effect := effect.(type) {
		case window.Attached:
			p.requests.report(effect.Request.UID, func(progress *window.Progress) {
				progress.Reason, progress.Window = v1alpha1.ReasonCollectingWindow, effect.Window
			})
		case window.CatchUp:
			go p.catchUp(effect.Request, effect.Target)
		case window.Closed:
			ended[effect.Write.Name] = effect.Write
			if effect.Write.CutShort {
				p.requests.report(effect.Write.Request.UID, func(progress *window.Progress) { progress.CutShort = true })
			}
			p.enqueue(effect.Write)
		case window.Discarded:
			ended[effect.Write.Name] = effect.Write
		case window.Resolved:
			p.requests.report(effect.Request.UID, func(progress *window.Progress) {
				progress.Reason, progress.Message = effect.Reason, ""
			})
		case window.Opened, window.Collected, window.Registered: // the journal's
		}
	}
	p.noteWindows(ended)
	if p.wake != nil {
		p.wake.Stop()
	}
	if at, ok := p.engine.NextWake(); ok {
		p.wake = time.AfterFunc(time.Until(at), p.wakeUp)
	}
}

func (p *Pool) wakeUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() == nil && !p.stopping {
		now := time.Now()
		p.apply(now, p.engine.Wake(now))
	}
}

// catchUp runs one proof and tells the engine that it is over, one way or the
// other.
func (p *Pool) catchUp(request window.RequestRef, target types.NamespacedName) {
	ctx, cancel := context.WithTimeout(p.ctx, p.config.CatchUpTimeout)
	defer cancel()
	lagging := p.config.CatchUp(ctx, target)
	if p.ctx.Err() != nil {
		return // nothing was proven, and nobody is there to be told
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping {
		return // the next process proves it
	}
	p.requests.note(request.UID, func(progress *window.Progress) {
		caughtUp := lagging == ""
		progress.CaughtUp, progress.Lagging = &caughtUp, lagging
	})
	p.journal.CaughtUp(request.UID, lagging)
	now := time.Now()
	p.apply(now, p.engine.CaughtUp(now, request.UID))
}

// shared says whether all changes of a target go into one window. Caller must hold
// mu.
func (p *Pool) shared(name types.NamespacedName) bool {
	target := p.targets[name]
	return target != nil && target.Spec.Attribution == v1alpha1.AttributionNone
}
