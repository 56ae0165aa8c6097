// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/kommit-dev/kommit/test/recording"
)

// ledger collects the truth.
type ledger struct {
	mu    sync.Mutex
	deeds []recording.Deed
}

func (l *ledger) note(d recording.Deed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d.Scripted = true
	l.deeds = append(l.deeds, d)
}

// wrote notes that the author made this version of the object.
func (l *ledger) wrote(name, author string, u *unstructured.Unstructured, intent bool) {
	l.note(recording.Deed{Case: name, Author: author, UID: string(u.GetUID()), ResourceVersion: u.GetResourceVersion(), Intent: intent})
}

// deleted notes that the author asked for the end of the object. What the control
// plane publishes into every namespace is not intent.
func (l *ledger) deleted(name, author string, u *unstructured.Unstructured) {
	l.note(recording.Deed{Case: name, Author: author, UID: string(u.GetUID()), Intent: u.GetName() != rootCertificates})
}

// actor is a user of the script. Its methods note what it did.
type actor struct {
	// name is the user that did it for the cluster: the impersonated one, if any.
	name   string
	client dynamic.Interface
	ledger *ledger
}

// newActor is a user with this client configuration, who uses this program.
func newActor(config *rest.Config, name, userAgent string, l *ledger) (*actor, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = userAgent
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &actor{name: name, client: client, ledger: l}, nil
}

func (a *actor) in(resource schema.GroupVersionResource) dynamic.ResourceInterface {
	return a.client.Resource(resource).Namespace(namespace)
}

func (a *actor) create(ctx context.Context, name string, resource schema.GroupVersionResource, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	made, err := a.in(resource).Create(ctx, u, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	a.ledger.wrote(name, a.name, made, true)
	return made, nil
}

// update edits the object as it is now and puts it back.
func (a *actor) update(ctx context.Context, name string, resource schema.GroupVersionResource, object string, edit func(*unstructured.Unstructured)) (*unstructured.Unstructured, error) {
	u, err := a.in(resource).Get(ctx, object, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	edit(u)
	made, err := a.in(resource).Update(ctx, u, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	a.ledger.wrote(name, a.name, made, true)
	return made, nil
}

func (a *actor) patch(ctx context.Context, name string, resource schema.GroupVersionResource, object string, kind types.PatchType, body string) (*unstructured.Unstructured, error) {
	options := metav1.PatchOptions{}
	if kind == types.ApplyPatchType {
		options.FieldManager = a.name + "-apply"
		options.Force = new(bool)
		*options.Force = true
	}
	made, err := a.in(resource).Patch(ctx, object, kind, []byte(body), options)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	a.ledger.wrote(name, a.name, made, true)
	return made, nil
}

// status patches the status, which is nobody's intent.
func (a *actor) status(ctx context.Context, name string, resource schema.GroupVersionResource, object, body string) error {
	made, err := a.in(resource).Patch(ctx, object, types.MergePatchType, []byte(body), metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	a.ledger.wrote(name, a.name, made, false)
	return nil
}

// nothing patches the object with what it says already.
func (a *actor) nothing(ctx context.Context, name string, resource schema.GroupVersionResource, object, body string) error {
	before, err := a.in(resource).Get(ctx, object, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	after, err := a.in(resource).Patch(ctx, object, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if before.GetResourceVersion() != after.GetResourceVersion() {
		return fmt.Errorf("%s: a patch that changes nothing made version %s of %s", name, after.GetResourceVersion(), before.GetResourceVersion())
	}
	return nil
}

func (a *actor) delete(ctx context.Context, name string, resource schema.GroupVersionResource, u *unstructured.Unstructured, how metav1.DeletionPropagation) error {
	options := metav1.DeleteOptions{}
	if how != "" {
		options.PropagationPolicy = &how
	}
	if err := a.in(resource).Delete(ctx, u.GetName(), options); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	a.ledger.deleted(name, a.name, u)
	return nil
}

// deleteAll deletes the objects that the selector selects.
func (a *actor) deleteAll(ctx context.Context, name string, resource schema.GroupVersionResource, selector string) error {
	options := metav1.ListOptions{LabelSelector: selector}
	list, err := a.in(resource).List(ctx, options)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if len(list.Items) == 0 {
		return fmt.Errorf("%s: nothing is there to delete", name)
	}
	if err := a.in(resource).DeleteCollection(ctx, metav1.DeleteOptions{}, options); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for i := range list.Items {
		if list.Items[i].GetDeletionTimestamp() == nil {
			a.ledger.deleted(name, a.name, &list.Items[i])
		}
	}
	return nil
}
