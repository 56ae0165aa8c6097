// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/restmapper"
	"k8s.io/klog/v2"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/generated/clientset/versioned/fake"
	"github.com/kommit-dev/kommit/generated/informers/externalversions"
	"github.com/kommit-dev/kommit/pkg/attribution"
	"github.com/kommit-dev/kommit/pkg/branch"
	"github.com/kommit-dev/kommit/pkg/branch/recovery"
	"github.com/kommit-dev/kommit/pkg/capture"
	"github.com/kommit-dev/kommit/pkg/journal"
	"github.com/kommit-dev/kommit/pkg/storage/bolt"
	"github.com/kommit-dev/kommit/pkg/window"
)

const (
	// eventsPerRound are played in one go, of as many objects as are in the window.
	eventsPerRound  = 10_000
	objectsInWindow = 1_000
	auditedPerRound = 400
)

// captureEvent measures the processor time from the bytes of a watch event to its
// place in a window: decode, sanitise, render, hash, join. Facts are there
// already. The peer decodes the same bytes to unstructured.
func captureEvent(ctx context.Context) (sides, error) {
	object, err := recordDeployment(ctx)
	if err != nil {
		return sides{}, err
	}
	pipe, err := newPipeline(ctx, nil)
	if err != nil {
		return sides{}, err
	}
	made := &recordings{object: object, version: 1_000_000}
	var played []recording
	return sides{
		ours: func(ctx context.Context, _ int) (float64, error) {
			if played, err = made.next(eventsPerRound, objectsInWindow); err != nil {
				return 0, err
			}
			return pipe.play(ctx, played, processorCost)
		},
		peer: func(context.Context, int) (float64, error) {
			return processorCost(len(played), func() error {
				for _, one := range played {
					if _, _, err := unstructured.UnstructuredJSONScheme.Decode(one.bytes, nil, nil); err != nil {
						return err
					}
				}
				return nil
			})
		},
		close: pipe.close,
	}, nil
}

// pipeline is capture, attribution and windows as kommit-apiserver joins them. The
// connection to the cluster is a replay, that to the server itself a tracker.
type pipeline struct {
	*branch.Pool
	journal *recovery.Journal
	replay  *replay
	facts   *attribution.Facts
	stop    context.CancelFunc
	running sync.WaitGroup

	// mu guards what follows.
	mu sync.Mutex
	// expected are the changes still to come, nobody's those of an unknown author.
	expected, nobodys int
	done              chan struct{}
}

var _ capture.Sink = (*pipeline)(nil)

// newPipeline keeps nothing without a journal.
func newPipeline(ctx context.Context, journal *recovery.Journal) (*pipeline, error) {
	klog.SetLogger(klog.Logger{}) // writes nothing
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	p := &pipeline{
		Pool: branch.NewPool(0, journal), journal: journal, replay: &replay{events: make(chan []recording)}, stop: stop,
		facts: attribution.NewFacts(attribution.FactsConfig{}),
	}
	hour := &metav1.Duration{Duration: time.Hour}
	client := fake.NewClientset(
		&v1alpha1.GitTarget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "prod", UID: "prod", Generation: 1},
			Spec: v1alpha1.GitTargetSpec{
				GitProviderRef: v1alpha1.LocalObjectReference{Name: "none"}, Branch: "main",
				Attribution: v1alpha1.AttributionAudit, Window: v1alpha1.WindowOptions{IdleTimeout: hour, MaxDuration: hour},
			},
		},
		&v1alpha1.WatchRule{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "apps", UID: "apps", Generation: 1},
			Spec: v1alpha1.WatchRuleSpec{
				GitTargetRef: v1alpha1.LocalObjectReference{Name: "prod"},
				Resources:    []v1alpha1.WatchedResources{{APIGroups: []string{deployments.Group}, Resources: []string{deployments.Resource}}},
			},
		},
	)
	informers := externalversions.NewSharedInformerFactory(client, 0)
	own := informers.Kommit().V1alpha1()
	joiner := attribution.NewJoiner(attribution.JoinerConfig{Facts: p.facts})
	version := metav1.GroupVersionForDiscovery{GroupVersion: deployments.GroupVersion().String(), Version: deployments.Version}
	captured := capture.New(capture.Config{
		Dynamic: p.replay,
		Mapper: known{restmapper.NewDiscoveryRESTMapper([]*restmapper.APIGroupResources{{
			Group: metav1.APIGroup{Name: deployments.Group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version},
			VersionedResources: map[string][]metav1.APIResource{
				deployments.Version: {{Name: deployments.Resource, SingularName: "deployment", Kind: "Deployment", Namespaced: true}},
			},
		}})},
		WatchRules: own.WatchRules().Informer(), GitTargets: own.GitTargets().Informer(),
		WriteStatus: func(context.Context, *v1alpha1.WatchRule) error { return nil },
		Joiner:      joiner, Facts: p.facts, Sink: p, AttributionGrace: attribution.DefaultGrace,
	})
	if err := p.Pool.Start(ctx, branch.Config{
		Client: client.KommitV1alpha1(), Informers: own, Cluster: kubefake.NewClientset(),
		CatchUp:   func(context.Context, types.NamespacedName) string { return "" },
		Recompare: captured.Recompare, Retry: captured.Retry, CatchUpTimeout: time.Minute,
	}); err != nil {
		stop()
		return nil, err
	}
	informers.Start(ctx.Done())
	p.running.Go(func() { joiner.Run(ctx) })
	p.running.Go(func() { _ = captured.Run(ctx) })
	return p, nil
}

// known is all that there is.
type known struct{ apimeta.RESTMapper }

// Reset implements meta.ResettableRESTMapper.
func (known) Reset() {}

// Change implements capture.Sink.
func (p *pipeline) Change(ctx context.Context, change window.Change) error {
	if err := p.Pool.Change(ctx, change); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if change.Author.Unresolved {
		p.nobodys++
	}
	if p.expected--; p.expected == 0 {
		close(p.done)
	}
	return nil
}

// Differing implements capture.Sink: there is nothing to compare.
func (p *pipeline) Differing(context.Context, types.NamespacedName, capture.Scope, []window.Change) ([]window.Change, []window.Object, error) {
	return nil, nil, nil
}

// play has the events watched, until all is on disk that is to be, and returns what
// one costs by that measure.
func (p *pipeline) play(ctx context.Context, events []recording, cost func(int, func() error) (float64, error)) (float64, error) {
	now := time.Now()
	for _, one := range events {
		if err := p.facts.Add(now, attribution.Fact{
			Username: "alice", Verb: "update", Group: deployments.Group, Resource: deployments.Resource, Namespace: "default", Name: one.name,
			UID: one.uid, ResourceVersion: one.version, Time: now, Completed: now, Evidence: attribution.Proven,
		}); err != nil {
			return 0, err
		}
	}
	p.mu.Lock()
	p.expected, p.done = len(events), make(chan struct{})
	p.mu.Unlock()
	each, err := cost(len(events), func() error {
		select {
		case p.replay.events <- events:
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case <-p.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		return p.journal.Sync(ctx)
	})
	if err != nil {
		return 0, err
	}
	open, _ := p.Windows("")
	if p.nobodys > 0 || len(open) != 1 || len(open[0].Status.Changes) != min(len(events), objectsInWindow) {
		return 0, fmt.Errorf("%d changes without an author, %d windows", p.nobodys, len(open))
	}
	return each, nil
}

func (p *pipeline) close(context.Context) error {
	p.stop()
	close(p.replay.events)
	p.running.Wait()
	return nil
}

// keptFacts are on disk as those of the server are: each batch one record.
type keptFacts struct{ log *journal.Log }

// Keep implements what attribution.Facts asks of a keeper.
func (k keptFacts) Keep(now time.Time, facts []attribution.Fact) error {
	record, err := json.Marshal(facts)
	if err != nil {
		return err
	}
	return k.log.Append(now, record)
}

// captureAuditEvent measures the processor time of one event of a batch from its
// bytes to the fact on disk. The peer takes the same bytes apart with encoding/json's
// streaming tokenizer.
func captureAuditEvent(ctx context.Context) (sides, error) {
	object, err := recordDeployment(ctx)
	if err != nil {
		return sides{}, err
	}
	made := &recordings{object: object, version: 1_000_000}
	dir, err := os.MkdirTemp("", "kommit-bench-")
	if err != nil {
		return sides{}, err
	}
	db, err := bolt.Open(context.WithoutCancel(ctx), bolt.Config{Path: filepath.Join(dir, "kommit.db")})
	if err != nil {
		return sides{}, errors.Join(err, os.RemoveAll(dir))
	}
	kept := keptFacts{journal.NewLog(db, "facts", attribution.DefaultTTL)}
	handler := attribution.NewHandler(attribution.NewFacts(attribution.FactsConfig{Keeper: kept}), attribution.HandlerConfig{})
	var batch []byte
	return sides{
		ours: func(ctx context.Context, _ int) (float64, error) {
			recorded, err := made.next(auditedPerRound, auditedPerRound)
			if err != nil {
				return 0, err
			}
			if batch, err = auditBatch(recorded); err != nil {
				return 0, err
			}
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, "/audit", bytes.NewReader(batch))
			if err != nil {
				return 0, err
			}
			request.Header.Set("Content-Type", "application/json")
			return processorCost(auditedPerRound, func() error {
				response := httptest.NewRecorder()
				handler.ServeHTTP(response, request)
				if response.Code != http.StatusOK {
					return fmt.Errorf("the batch was answered %d: %s", response.Code, response.Body)
				}
				return nil
			})
		},
		peer: func(context.Context, int) (float64, error) {
			return processorCost(auditedPerRound, func() error {
				for tokens := json.NewDecoder(bytes.NewReader(batch)); ; {
					if _, err := tokens.Token(); errors.Is(err, io.EOF) {
						return nil
					} else if err != nil {
						return err
					}
				}
			})
		},
		close: func(context.Context) error { return errors.Join(db.Close(), os.RemoveAll(dir)) },
	}, nil
}

// auditBatch is what kube-apiserver sends of so many patches, under the policy
// that kommit recommends.
func auditBatch(recorded []recording) ([]byte, error) {
	list := auditv1.EventList{TypeMeta: metav1.TypeMeta{APIVersion: auditv1.SchemeGroupVersion.String(), Kind: "EventList"}}
	for _, one := range recorded {
		now := metav1.NowMicro()
		list.Items = append(list.Items, auditv1.Event{
			Level: auditv1.LevelRequestResponse, AuditID: types.UID("audit-" + one.version), Stage: auditv1.StageResponseComplete,
			RequestURI: "/apis/apps/v1/namespaces/default/deployments/" + one.name + "?fieldManager=kubectl-edit&fieldValidation=Strict",
			Verb:       "patch", User: authenticationv1.UserInfo{Username: "alice", Groups: []string{"shop", "system:authenticated"}},
			SourceIPs: []string{"192.0.2.7"}, UserAgent: "kubectl/v1.36.0 (linux/amd64) kubernetes/abcdef0",
			ObjectRef: &auditv1.ObjectReference{
				Resource: deployments.Resource, Namespace: "default", Name: one.name, APIGroup: deployments.Group, APIVersion: deployments.Version,
			},
			ResponseStatus:           &metav1.Status{Code: http.StatusOK},
			RequestObject:            &runtime.Unknown{Raw: []byte(`{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"web"}],"containers":[{"image":"registry.example.com/shop/web:1.28.4","name":"web"}]}}}}`), ContentType: runtime.ContentTypeJSON},
			ResponseObject:           &runtime.Unknown{Raw: one.bytes, ContentType: runtime.ContentTypeJSON},
			RequestReceivedTimestamp: now, StageTimestamp: now,
			Annotations: map[string]string{
				"authorization.k8s.io/decision": "allow",
				"authorization.k8s.io/reason":   `RBAC: allowed by RoleBinding "people/default" of ClusterRole "edit" to User "alice"`,
			},
		})
	}
	return json.Marshal(list)
}
