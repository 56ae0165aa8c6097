// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// deletions of what nobody holds.
func (s *script) deletions(ctx context.Context) error {
	for _, scene := range []struct {
		name     string
		resource schema.GroupVersionResource
		object   *unstructured.Unstructured
		by       *actor
	}{
		{"delete", configMaps, configMap("a", nil), s.bob},
		{"delete", services, service("b"), s.carol},
		{"delete of a custom object", widgets, widget("c", 1), s.bob},
		{"delete by a service account", configMaps, configMap("d", nil), s.account},
		{"delete by impersonation", configMaps, configMap("e", nil), s.impersonated},
	} {
		made, err := s.alice.create(ctx, "create", scene.resource, scene.object)
		if err != nil {
			return err
		}
		if err := scene.by.delete(ctx, scene.name, scene.resource, made, ""); err != nil {
			return err
		}
	}
	return nil
}

// finalizers: one asks for the end, another one asks again, a third lets go.
func (s *script) finalizers(ctx context.Context) error {
	for _, held := range []struct {
		resource schema.GroupVersionResource
		object   *unstructured.Unstructured
	}{{configMaps, withFinalizer(configMap("held", nil))}, {widgets, withFinalizer(widget("held", 1))}} {
		resource := held.resource
		made, err := s.alice.create(ctx, "create", resource, held.object)
		if err != nil {
			return err
		}
		err1 := s.bob.delete(ctx, "delete with finalizer", resource, made, "")
		err2 := s.carol.in(resource).Delete(ctx, "held", metav1.DeleteOptions{})
		_, err3 := s.account.in(resource).Patch(ctx, "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if err := errors.Join(err1, err2, err3, s.watch.gone(ctx, made)); err != nil {
			return err
		}
	}
	return nil
}

// recreates use one name again and again.
func (s *script) recreates(ctx context.Context) error {
	actors := []*actor{s.alice, s.bob, s.carol}
	for i := range 6 {
		made, err := actors[i%3].create(ctx, "recreate", configMaps, configMap("phoenix", fields{"n": fmt.Sprint(i)}))
		if err != nil {
			return err
		}
		if err := actors[(i+1)%3].delete(ctx, "delete before recreate", configMaps, made, ""); err != nil {
			return err
		}
	}
	return nil
}

func (s *script) evictions(ctx context.Context) error {
	made, err := s.alice.create(ctx, "create", pods, pod("lonely"))
	if err != nil {
		return err
	}
	eviction := object("policy/v1", "Eviction", "lonely", nil)
	if _, err := s.bob.in(pods).Create(ctx, eviction, metav1.CreateOptions{}, "eviction"); err != nil {
		return err
	}
	s.ledger.deleted("eviction", s.bob.name, made)
	// The eviction says in the status that it disrupts, before it deletes.
	disrupted, err := s.watch.until(ctx, func(e seen) bool { return e.object.GetUID() == made.GetUID() && e.kind == watch.Modified })
	if err != nil {
		return err
	}
	s.ledger.wrote("eviction", s.bob.name, disrupted, false)
	return s.watch.gone(ctx, made)
}

// cascades delete Deployments with what they own, in each way.
func (s *script) cascades(ctx context.Context) error {
	for _, how := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan} {
		made, err := s.alice.create(ctx, "create", deployments, deployment("cascade-"+map[metav1.DeletionPropagation]string{
			metav1.DeletePropagationBackground: "background", metav1.DeletePropagationForeground: "foreground", metav1.DeletePropagationOrphan: "orphan",
		}[how], 1))
		if err != nil {
			return err
		}
		replicas, err := s.watch.until(ctx, func(e seen) bool {
			owner := metav1.GetControllerOf(e.object)
			return e.resource == replicaSets && owner != nil && owner.UID == made.GetUID()
		})
		if err != nil {
			return err
		}
		if err := s.bob.delete(ctx, "delete "+string(how), deployments, made, how); err != nil {
			return err
		}
		if err := s.watch.gone(ctx, made); err != nil {
			return err
		}
		if how != metav1.DeletePropagationOrphan {
			if err := s.watch.gone(ctx, replicas); err != nil {
				return err
			}
			continue
		}
		if err := s.carol.delete(ctx, "delete of an orphan", replicaSets, replicas, metav1.DeletePropagationOrphan); err != nil {
			return err
		}
	}
	return nil
}

// collections delete by selector, and all there is.
func (s *script) collections(ctx context.Context) error {
	for i := range 3 {
		_, err1 := s.alice.create(ctx, "create", configMaps, labelled(configMap(fmt.Sprint("batch-", i), nil), "batch", "yes"))
		_, err2 := s.bob.create(ctx, "create", widgets, labelled(widget(fmt.Sprint("batch-", i), 1), "batch", "yes"))
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
	}
	err1 := s.bob.deleteAll(ctx, "deletecollection by selector", configMaps, "batch=yes")
	err2 := s.carol.deleteAll(ctx, "deletecollection by selector", widgets, "batch=yes")
	err3 := s.alice.deleteAll(ctx, "deletecollection of all", widgets, "")
	err4 := s.bob.deleteAll(ctx, "deletecollection of all", configMaps, "")
	return errors.Join(err1, err2, err3, err4)
}
