// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kommit-dev/kommit/generated/clientset/versioned"
	"github.com/kommit-dev/kommit/test/controlplane"
)

const (
	// callTimeout bounds one call of an author; one that has no answer by then broke.
	callTimeout = 30 * time.Second
	// knowTimeout bounds finding out what became of a broken call.
	knowTimeout = 2 * time.Minute
	// crowded is the number of objects of a pool above which no more are made.
	crowded = 8
)

// author is a user who edits and saves without end. It remembers what it did.
type author struct {
	name       string
	namespaces []string
	random     *rand.Rand
	objects    *objects
	history    *History
	kubernetes kubernetes.Interface
	kommit     versioned.Interface
	sequence   int
}

func newAuthor(cp *controlplane.ControlPlane, name string, w *world) (*author, error) {
	config, err := cp.RESTConfig(name)
	if err != nil {
		return nil, err
	}
	a := &author{name: name, objects: w.objects, history: &w.history, random: w.source(name)}
	for _, place := range w.places {
		a.namespaces = append(a.namespaces, place.Namespace)
	}
	if a.kubernetes, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	a.kommit, err = versioned.NewForConfig(config)
	return a, err
}

// work until ctx ends. What is under way then is finished, so that its outcome is
// known.
func (a *author) work(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := a.act(context.WithoutCancel(ctx)); err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
		wait(ctx, between(a.random, 10*time.Millisecond, 150*time.Millisecond))
	}
	return nil
}

// act does one thing.
func (a *author) act(ctx context.Context) error {
	a.sequence++
	p := pool{namespace: a.namespaces[a.random.IntN(len(a.namespaces))]}
	if a.random.IntN(3) == 0 {
		p.author = a.name
	}
	switch dice := a.random.IntN(100); {
	case dice < 20:
		a.save(ctx, p.namespace)
		return nil
	case dice < 30:
		if object, ok := a.objects.take(a.random, p); ok {
			return a.delete(ctx, object)
		}
	case dice < 80:
		if object, ok := a.objects.pick(a.random, p); ok {
			return a.addKey(ctx, object)
		}
	}
	if a.objects.count(p) >= crowded {
		return nil
	}
	return a.create(ctx, p)
}

func (a *author) edit(object Object) Edit {
	return Edit{Token: fmt.Sprintf("%s-%d", a.name, a.sequence), Author: a.name, Object: object, Sequence: a.sequence}
}

func (a *author) create(ctx context.Context, p pool) error {
	e := a.edit(a.objects.name(p))
	calling, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	made, err := a.kubernetes.CoreV1().ConfigMaps(p.namespace).Create(calling, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: e.Object.Name}, Data: map[string]string{e.Token: e.Token},
	}, metav1.CreateOptions{})
	if err := a.note(ctx, e, made, err); err != nil {
		return err
	}
	if err == nil {
		a.objects.add(p, e.Object)
	}
	return nil
}

// addKey adds a line that no other edit touches, so it cannot conflict.
func (a *author) addKey(ctx context.Context, object Object) error {
	e := a.edit(object)
	calling, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	patch := fmt.Appendf(nil, `{"data":{%q:%q}}`, e.Token, e.Token)
	made, err := a.kubernetes.CoreV1().ConfigMaps(object.Namespace).Patch(calling, object.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return a.note(ctx, e, made, err)
}

func (a *author) delete(ctx context.Context, object Object) error {
	e := a.edit(object)
	e.Delete = true
	calling, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := a.kubernetes.CoreV1().ConfigMaps(object.Namespace).Delete(calling, object.Name, metav1.DeleteOptions{})
	return a.note(ctx, e, nil, err)
}

// note remembers an edit with its outcome, which it finds out if err does not say it.
func (a *author) note(ctx context.Context, e Edit, made *corev1.ConfigMap, err error) error {
	switch {
	case err == nil:
		e.Outcome = Accepted
		if made != nil {
			if e.ResourceVersion, err = strconv.ParseUint(made.ResourceVersion, 10, 64); err != nil {
				return err
			}
		}
	case refused(err):
		e.Outcome = Refused
	default:
		if e.Outcome, err = a.look(ctx, e); err != nil {
			return err
		}
	}
	a.history.addEdit(e)
	return nil
}

// refused: the server said that it has not done it.
func refused(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) ||
		apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsTooManyRequests(err)
}

// look at the object, for what became of an edit whose answer was lost.
func (a *author) look(ctx context.Context, e Edit) (Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, knowTimeout)
	defer cancel()
	for {
		object, err := a.kubernetes.CoreV1().ConfigMaps(e.Object.Namespace).Get(ctx, e.Object.Name, metav1.GetOptions{})
		_, has := map[string]string{}[e.Token]
		if err == nil {
			_, has = object.Data[e.Token]
		}
		switch {
		case err == nil && has:
			return Accepted, nil
		case err == nil:
			return Refused, nil
		case apierrors.IsNotFound(err) && e.Delete:
			return Accepted, nil
		case apierrors.IsNotFound(err):
			return Unknown, nil // it may have been deleted since
		}
		if wait(ctx, 100*time.Millisecond); ctx.Err() != nil {
			return Unknown, fmt.Errorf("what became of %s of %s: %w", e.Token, e.Object, err)
		}
	}
}
