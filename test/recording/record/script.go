// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// script is what happens in each recording. Its users follow each other without a
// pause, so that their writes share seconds.
type script struct {
	// alice and bob use the same program, carol another one.
	alice, bob, carol *actor
	// account is a service account, impersonated is bob who acts as "erin".
	account, impersonated *actor
	// mallory may do nothing.
	mallory *actor
	// tables is bob's client for answers in other shapes.
	tables *rest.RESTClient
	ledger *ledger
	watch  *watcher
}

// run plays all scenes.
func (s *script) run(ctx context.Context) error {
	if _, err := s.alice.client.Resource(namespaces).Create(ctx, object("v1", "Namespace", namespace, nil), metav1.CreateOptions{}); err != nil {
		return err
	}
	for _, scene := range []func(context.Context) error{
		s.writes, s.patches, s.shapes, s.scales, s.statuses, s.noops, s.races, s.failures, s.dryRuns, s.large,
		s.deletions, s.finalizers, s.recreates, s.evictions, s.cascades, s.collections,
	} {
		if err := scene(ctx); err != nil {
			return err
		}
	}
	return nil
}

func set(key string, value any) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) {
		data, _ := u.Object["data"].(fields)
		if data == nil {
			data = fields{}
		}
		data[key] = value
		u.Object["data"] = data
	}
}

// writes: create, generateName, update by turns, service accounts, impersonation.
func (s *script) writes(ctx context.Context) error {
	_, err1 := s.alice.create(ctx, "create", configMaps, configMap("settings", fields{"mode": "fast"}))
	_, err2 := s.bob.update(ctx, "update", configMaps, "settings", set("bob", "1"))
	_, err3 := s.alice.update(ctx, "update", configMaps, "settings", set("alice", "1"))
	_, err4 := s.account.update(ctx, "update by a service account", configMaps, "settings", set("account", "1"))
	_, err5 := s.impersonated.update(ctx, "update by impersonation", configMaps, "settings", set("erin", "1"))
	generated := configMap("", fields{"mode": "slow"})
	generated.SetName("")
	generated.SetGenerateName("job-")
	_, err6 := s.carol.create(ctx, "generateName", configMaps, generated)
	_, err7 := s.alice.create(ctx, "create", services, service("front"))
	_, err8 := s.bob.create(ctx, "create", widgets, widget("gear", 1))
	return errors.Join(err1, err2, err3, err4, err5, err6, err7, err8)
}

// patches: each type, by users who share a program and a second.
func (s *script) patches(ctx context.Context) error {
	_, err1 := s.alice.patch(ctx, "json patch", configMaps, "settings", types.JSONPatchType, `[{"op":"add","path":"/data/json","value":"1"}]`)
	_, err2 := s.bob.patch(ctx, "merge patch", configMaps, "settings", types.MergePatchType, `{"data":{"merge":"1"}}`)
	_, err3 := s.carol.patch(ctx, "strategic patch", configMaps, "settings", types.StrategicMergePatchType, `{"data":{"strategic":"1"}}`)
	_, err4 := s.alice.patch(ctx, "removing patch", configMaps, "settings", types.JSONPatchType, `[{"op":"remove","path":"/data/mode"}]`)
	_, err5 := s.bob.patch(ctx, "apply", configMaps, "settings", types.ApplyPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings"},"data":{"applied":"1"}}`)
	_, err6 := s.carol.patch(ctx, "apply creates", configMaps, "applied", types.ApplyPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"applied"},"data":{"applied":"1"}}`)
	_, err7 := s.alice.patch(ctx, "merge patch", widgets, "gear", types.MergePatchType, `{"spec":{"colour":"red"}}`)
	_, err8 := s.bob.patch(ctx, "apply", widgets, "gear", types.ApplyPatchType, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"gear"},"spec":{"teeth":12}}`)
	return errors.Join(err1, err2, err3, err4, err5, err6, err7, err8)
}

// shapes: the client's Accept header shapes what audit records.
func (s *script) shapes(ctx context.Context) error {
	for i, shape := range []string{"Table", "PartialObjectMetadata"} {
		err := s.tables.Patch(types.MergePatchType).Namespace(namespace).Resource("configmaps").Name("settings").
			SetHeader("Accept", "application/json;as="+shape+";v=v1;g=meta.k8s.io").
			Body(fmt.Appendf(nil, `{"data":{"shape":"%d"}}`, i)).Do(ctx).Error()
		if err != nil {
			return err
		}
		made, err := s.bob.in(configMaps).Get(ctx, "settings", metav1.GetOptions{})
		if err != nil {
			return err
		}
		s.ledger.wrote("answered as "+shape, s.bob.name, made, true)
	}
	return nil
}

// scales: the subresource, of a built-in kind and of a custom one.
func (s *script) scales(ctx context.Context) error {
	if _, err := s.alice.create(ctx, "create", deployments, deployment("web", 1)); err != nil {
		return err
	}
	for _, scaled := range []struct {
		by       *actor
		resource string
	}{{s.bob, "deployments"}, {s.carol, "widgets"}} {
		resource, name := deployments, "web"
		if scaled.resource == "widgets" {
			resource, name = widgets, "gear"
		}
		made, err := scaled.by.in(resource).Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{}, "scale")
		if err != nil {
			return err
		}
		s.ledger.wrote("scale", scaled.by.name, made, true)
	}
	_, err := s.alice.patch(ctx, "strategic patch", deployments, "web", types.StrategicMergePatchType,
		`{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"example.com/web:2"}]}}}}`)
	return err
}

// statuses are nobody's intent, also when they come between two edits.
func (s *script) statuses(ctx context.Context) error {
	err1 := s.carol.status(ctx, "status", widgets, "gear", `{"status":{"size":2}}`)
	_, err2 := s.alice.patch(ctx, "merge patch", widgets, "gear", types.MergePatchType, `{"spec":{"colour":"blue"}}`)
	err3 := s.carol.status(ctx, "status", widgets, "gear", `{"status":{"size":3}}`)
	_, err4 := s.bob.update(ctx, "update", widgets, "gear", func(u *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(u.Object, "green", "spec", "colour")
	})
	return errors.Join(err1, err2, err3, err4)
}

// noops answer with the version that somebody else made.
func (s *script) noops(ctx context.Context) error {
	_, err1 := s.alice.patch(ctx, "merge patch before no-ops", configMaps, "settings", types.MergePatchType, `{"data":{"noop":"1"}}`)
	err2 := s.bob.nothing(ctx, "no-op", configMaps, "settings", `{"data":{"noop":"1"}}`)
	err3 := s.carol.nothing(ctx, "no-op", configMaps, "settings", `{}`)
	before, err4 := s.bob.in(configMaps).Get(ctx, "settings", metav1.GetOptions{})
	if err4 != nil {
		return err4
	}
	after, err5 := s.bob.in(configMaps).Update(ctx, before, metav1.UpdateOptions{})
	if err5 == nil && after.GetResourceVersion() != before.GetResourceVersion() {
		err5 = errors.New("an update that changes nothing made a version")
	}
	return errors.Join(err1, err2, err3, err5)
}

// races: bob asks for nothing at the moment at which alice writes.
func (s *script) races(ctx context.Context) error {
	if _, err := s.alice.create(ctx, "create", configMaps, configMap("raced", fields{"n": "0"})); err != nil {
		return err
	}
	for i := range 12 {
		var writing sync.WaitGroup
		var err1, err2 error
		writing.Go(func() {
			_, err1 = s.alice.patch(ctx, "race", configMaps, "raced", types.MergePatchType, fmt.Sprintf(`{"data":{"n":"%d"}}`, i+1))
		})
		writing.Go(func() {
			_, err2 = s.bob.in(configMaps).Patch(ctx, "raced", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
		})
		writing.Wait()
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
	}
	return nil
}

// failures change nothing and must name nobody.
func (s *script) failures(ctx context.Context) error {
	_, forbidden := s.mallory.in(configMaps).Patch(ctx, "settings", types.MergePatchType, []byte(`{"data":{"mallory":"1"}}`), metav1.PatchOptions{})
	_, missing := s.bob.in(configMaps).Patch(ctx, "absent", types.MergePatchType, []byte(`{"data":{"a":"1"}}`), metav1.PatchOptions{})
	_, exists := s.bob.in(configMaps).Create(ctx, configMap("settings", nil), metav1.CreateOptions{})
	stale := configMap("settings", fields{"stale": "1"})
	stale.SetResourceVersion("1")
	_, conflict := s.carol.in(configMaps).Update(ctx, stale, metav1.UpdateOptions{})
	_, invalid := s.carol.in(services).Patch(ctx, "front", types.MergePatchType, []byte(`{"spec":{"ports":[{"port":-1}]}}`), metav1.PatchOptions{})
	for _, failed := range []struct {
		err  error
		code int32
	}{{forbidden, http.StatusForbidden}, {missing, http.StatusNotFound}, {exists, http.StatusConflict}, {conflict, http.StatusConflict}, {invalid, http.StatusUnprocessableEntity}} {
		var status apierrors.APIStatus
		if !errors.As(failed.err, &status) || status.Status().Code != failed.code {
			return fmt.Errorf("a request that has to be answered %d: %w", failed.code, failed.err)
		}
	}
	return nil
}

// dryRuns persist nothing.
func (s *script) dryRuns(ctx context.Context) error {
	all := []string{metav1.DryRunAll}
	_, err1 := s.bob.in(configMaps).Create(ctx, configMap("never", nil), metav1.CreateOptions{DryRun: all})
	_, err2 := s.bob.in(configMaps).Patch(ctx, "settings", types.MergePatchType, []byte(`{"data":{"never":"1"}}`), metav1.PatchOptions{DryRun: all})
	err3 := s.bob.in(configMaps).Delete(ctx, "settings", metav1.DeleteOptions{DryRun: all})
	err4 := s.bob.in(configMaps).DeleteCollection(ctx, metav1.DeleteOptions{DryRun: all}, metav1.ListOptions{})
	return errors.Join(err1, err2, err3, err4)
}

// largeBytes exceeds what the truncating recording lets through.
const largeBytes = 48 << 10

func (s *script) large(ctx context.Context) error {
	_, err1 := s.alice.create(ctx, "large", configMaps, configMap("large", fields{"text": strings.Repeat("kommit ", largeBytes/7)}))
	_, err2 := s.bob.patch(ctx, "large", configMaps, "large", types.MergePatchType, `{"data":{"more":"1"}}`)
	return errors.Join(err1, err2)
}
