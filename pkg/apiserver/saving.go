// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/generated/clientset/versioned"
	"github.com/kommit-dev/kommit/generated/informers/externalversions"
	"github.com/kommit-dev/kommit/pkg/attribution"
	"github.com/kommit-dev/kommit/pkg/branch"
	"github.com/kommit-dev/kommit/pkg/branch/recovery"
	"github.com/kommit-dev/kommit/pkg/capture"
	"github.com/kommit-dev/kommit/pkg/journal"
	"github.com/kommit-dev/kommit/pkg/manifest"
	"github.com/kommit-dev/kommit/pkg/window"
)

// saving is all between the API and Git: who (facts, joiner), what (capture) and
// the windows and branches that both lead to (pool).
type saving struct {
	options *Options
	// cluster reaches the API server whose objects are captured.
	cluster *rest.Config
	// kept are the facts on disk, facts all that are used.
	kept  factLog
	facts *attribution.Facts
	// indexes are what the files of targets hold.
	indexes *journal.Table
	// rows are what is to be gone on from after the end of the process.
	rows    *journal.Writer
	journal *recovery.Journal

	joiner  *attribution.Joiner
	pool    *branch.Pool
	audit   http.Handler
	metrics *capture.Metrics

	running running
}

func newSaving(o *Options, cluster *rest.Config, disk kept, mustRegister func(...metrics.Registerable)) *saving {
	metrics, captureMetrics := attribution.NewMetrics(), capture.NewMetrics()
	metrics.Register(mustRegister)
	captureMetrics.Register(mustRegister)
	kept := newFactLog(disk.store)
	rows := journal.NewWriter(disk.rows)
	recovered := recovery.New(rows)
	facts := attribution.NewFacts(attribution.FactsConfig{LateAfter: o.AttributionGrace, Keeper: kept, Metrics: metrics})
	return &saving{
		options: o,
		cluster: cluster,
		kept:    kept,
		indexes: journal.NewTable(disk.store, fmt.Sprintf("indexes-%d", manifest.IndexVersion)),
		facts:   facts,
		joiner:  attribution.NewJoiner(attribution.JoinerConfig{Facts: facts, Grace: o.AttributionGrace, Metrics: metrics}),
		rows:    rows,
		journal: recovered,
		pool:    branch.NewPool(o.MaxWindowBytes, recovered),
		audit:   attribution.NewHandler(facts, attribution.HandlerConfig{Metrics: metrics}),
		metrics: captureMetrics,
	}
}

// addTo makes the saving part of the server.
func (s *saving) addTo(ctx context.Context, config *Config) {
	config.Windows = s.pool
	config.Audit = s.audit
	config.PostStart = append(config.PostStart, PostStartHook{Name: "kommit-saving", Run: s.start})
	config.PreShutdown = append(config.PreShutdown, PreShutdownHook{Name: "kommit-flush", Run: func() error {
		s.flush(context.WithoutCancel(ctx))
		return nil // an error would end the process before its requests are answered
	}})
}

// start begins to capture and to commit, until the server has stopped.
func (s *saving) start(hook genericapiserver.PostStartHookContext) error {
	return s.running.begin(func() error { return s.startParts(hook) })
}

func (s *saving) startParts(hook genericapiserver.PostStartHookContext) error {
	if err := s.kept.restore(time.Now(), s.facts); err != nil {
		klog.FromContext(hook.Context).Error(err, "Some audit events of the last minutes are lost: what they tell of has no author, unless they come again")
	}
	s.facts.ServedSince(time.Now())
	client, err := versioned.NewForConfig(unthrottled(hook.LoopbackClientConfig))
	if err != nil {
		return fmt.Errorf("client of this server: %w", err)
	}
	informers := externalversions.NewSharedInformerFactory(client, 0)
	own := informers.Kommit().V1alpha1()

	config, err := s.captureConfig()
	if err != nil {
		return err
	}
	config.WatchRules, config.GitTargets = own.WatchRules().Informer(), own.GitTargets().Informer()
	config.WriteStatus = func(ctx context.Context, rule *v1alpha1.WatchRule) error {
		_, err := client.KommitV1alpha1().WatchRules(rule.Namespace).UpdateStatus(ctx, rule, metav1.UpdateOptions{})
		return err
	}
	captured := capture.New(config)

	kubernetesClient, err := kubernetes.NewForConfig(unthrottled(s.cluster))
	if err != nil {
		return fmt.Errorf("client of the cluster: %w", err)
	}
	if err := s.pool.Start(hook.Context, branch.Config{
		Client:    client.KommitV1alpha1(),
		Informers: own,
		Indexes:   s.indexes,
		Cluster:   kubernetesClient,
		CatchUp: func(ctx context.Context, target types.NamespacedName) string {
			return lagging(captured.CatchUp(ctx, target))
		},
		Recompare: captured.Recompare,
		Retry:     captured.Retry,
		Attribution: func(target types.NamespacedName) (reason, message string) {
			why, cure := s.facts.Health(time.Now()).Degradation(captured.Resources(target))
			return string(why), cure
		},
		CatchUpTimeout:    s.options.catchUpTimeout(),
		AllowInsecureHTTP: s.options.AllowInsecureHTTP,
	}); err != nil {
		return err
	}

	informers.Start(hook.Done())
	s.running.write(context.WithoutCancel(hook.Context), s.rows)
	s.running.parts.Go(func() { s.joiner.Run(hook.Context) })
	s.running.parts.Go(func() {
		if err := captured.Run(hook.Context); err != nil {
			klog.FromContext(hook.Context).Error(err, "Nothing is captured")
		}
	})
	s.running.parts.Go(func() {
		<-hook.Done()
		informers.Shutdown()
		_ = s.pool.Wait(context.WithoutCancel(hook.Context))
	})
	return nil
}

// captureConfig is all of it but for what needs this server.
func (s *saving) captureConfig() (capture.Config, error) {
	cluster := unthrottled(s.cluster)
	objects, err := dynamic.NewForConfig(cluster)
	if err != nil {
		return capture.Config{}, fmt.Errorf("client of the cluster: %w", err)
	}
	partial, err := metadata.NewForConfig(cluster)
	if err != nil {
		return capture.Config{}, fmt.Errorf("client of the cluster: %w", err)
	}
	known, err := discovery.NewDiscoveryClientForConfig(cluster)
	if err != nil {
		return capture.Config{}, fmt.Errorf("client of the cluster: %w", err)
	}
	return capture.Config{
		Dynamic:          objects,
		Metadata:         partial,
		Mapper:           restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(known)),
		Joiner:           s.joiner,
		Facts:            s.facts,
		Sink:             sink{s.pool},
		Places:           places{s.journal},
		AttributionGrace: s.options.AttributionGrace,
		Metrics:          s.metrics,
	}, nil
}

// unthrottled leaves the limits to the server's priority and fairness: a save
// waits for no client-side budget.
func unthrottled(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS = -1
	return config
}

// lagging names the resource that a proof failed on.
func lagging(err error) string {
	var lag *capture.LagError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &lag) && !lag.Resource.Empty():
		return lag.Resource.String()
	}
	return err.Error()
}

// sink translates between packages that do not know each other.
type sink struct{ *branch.Pool }

var _ capture.Sink = sink{}

func (s sink) Differing(ctx context.Context, target types.NamespacedName, scope capture.Scope, listed []window.Change) ([]window.Change, []window.Object, error) {
	resources := make([]window.Object, len(scope.Resources))
	for i, r := range scope.Resources {
		resources[i] = window.Object{Group: r.Group, Resource: r.Resource, Namespace: r.Namespace}
	}
	return s.Pool.Differing(ctx, target, resources, listed)
}
