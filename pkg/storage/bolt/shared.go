// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// memo lets the watchers of one store decode an event once.
type memo struct{ p atomic.Pointer[decoded] }

// decoded is an object that many read and nobody writes.
type decoded struct {
	by        *store
	object    runtime.Object
	encodings encodings
}

// get returns what the first caller has decoded.
func (m *memo) get(by *store, decode func() (runtime.Object, error)) (*decoded, error) {
	if d := m.p.Load(); d != nil && d.by == by {
		return d, nil
	}
	obj, err := decode()
	if err != nil {
		return nil, err
	}
	d := &decoded{by: by, object: obj}
	if !m.p.CompareAndSwap(nil, d) {
		if first := m.p.Load(); first.by == by {
			return first, nil
		}
	}
	return d, nil
}

// crowd is from how many watchers on a sharedObject pays, as in upstream's watch
// cache.
const crowd = 3

// give returns the object for one watcher to keep, who may write into it: a copy,
// or, where there are many watchers, one that copies itself when that happens.
func (d *decoded) give(watchers int) runtime.Object {
	if o, ok := d.object.(apiObject); ok && watchers >= crowd {
		return &sharedObject{apiObject: o, encodings: &d.encodings}
	}
	return d.object.DeepCopyObject()
}

type apiObject interface {
	runtime.Object
	metav1.Object
}

// sharedObject is an object of an event as one of many watchers gets it. The API
// server encodes it once for all of them. Like any object it is for one goroutine
// at a time; what it shares with others is safe.
type sharedObject struct {
	apiObject
	encodings *encodings // nil: apiObject is a copy of its own
}

var (
	_ runtime.CacheableObject = (*sharedObject)(nil)
	_ metav1.Object           = (*sharedObject)(nil)
)

// CacheEncode implements runtime.CacheableObject.
func (o *sharedObject) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	if o.encodings == nil {
		return encode(o.apiObject, w)
	}
	data, err := o.encodings.get(id, func(w io.Writer) error {
		return encode(o.GetObject(), w) // encoders set the kind for a while
	})
	if err != nil {
		return err
	}
	if buffer, ok := w.(runtime.Splice); ok {
		buffer.Splice(data)
		return nil
	}
	_, err = w.Write(data)
	return err
}

// GetObject implements runtime.CacheableObject: the copy is the caller's.
func (o *sharedObject) GetObject() runtime.Object { return o.apiObject.DeepCopyObject() }

// DeepCopyObject implements runtime.Object.
func (o *sharedObject) DeepCopyObject() runtime.Object {
	return &sharedObject{apiObject: o.apiObject.DeepCopyObject().(apiObject)}
}

// GetObjectKind implements runtime.Object. It can be written to.
func (o *sharedObject) GetObjectKind() schema.ObjectKind { return o.own().GetObjectKind() }

// own returns the object to write to.
func (o *sharedObject) own() apiObject {
	if o.encodings != nil {
		o.apiObject, o.encodings = o.apiObject.DeepCopyObject().(apiObject), nil
	}
	return o.apiObject
}

// What reads the metadata comes from apiObject. These return maps, slices and
// pointers, or write.

func (o *sharedObject) GetLabels() map[string]string      { return o.own().GetLabels() }
func (o *sharedObject) GetAnnotations() map[string]string { return o.own().GetAnnotations() }
func (o *sharedObject) GetFinalizers() []string           { return o.own().GetFinalizers() }
func (o *sharedObject) GetOwnerReferences() []metav1.OwnerReference {
	return o.own().GetOwnerReferences()
}
func (o *sharedObject) GetManagedFields() []metav1.ManagedFieldsEntry {
	return o.own().GetManagedFields()
}
func (o *sharedObject) GetDeletionTimestamp() *metav1.Time { return o.own().GetDeletionTimestamp() }
func (o *sharedObject) GetDeletionGracePeriodSeconds() *int64 {
	return o.own().GetDeletionGracePeriodSeconds()
}
func (o *sharedObject) SetNamespace(s string)               { o.own().SetNamespace(s) }
func (o *sharedObject) SetName(s string)                    { o.own().SetName(s) }
func (o *sharedObject) SetGenerateName(s string)            { o.own().SetGenerateName(s) }
func (o *sharedObject) SetUID(uid types.UID)                { o.own().SetUID(uid) }
func (o *sharedObject) SetResourceVersion(s string)         { o.own().SetResourceVersion(s) }
func (o *sharedObject) SetGeneration(n int64)               { o.own().SetGeneration(n) }
func (o *sharedObject) SetSelfLink(s string)                { o.own().SetSelfLink(s) }
func (o *sharedObject) SetCreationTimestamp(t metav1.Time)  { o.own().SetCreationTimestamp(t) }
func (o *sharedObject) SetDeletionTimestamp(t *metav1.Time) { o.own().SetDeletionTimestamp(t) }
func (o *sharedObject) SetDeletionGracePeriodSeconds(n *int64) {
	o.own().SetDeletionGracePeriodSeconds(n)
}
func (o *sharedObject) SetLabels(m map[string]string)                { o.own().SetLabels(m) }
func (o *sharedObject) SetAnnotations(m map[string]string)           { o.own().SetAnnotations(m) }
func (o *sharedObject) SetFinalizers(s []string)                     { o.own().SetFinalizers(s) }
func (o *sharedObject) SetOwnerReferences(r []metav1.OwnerReference) { o.own().SetOwnerReferences(r) }
func (o *sharedObject) SetManagedFields(e []metav1.ManagedFieldsEntry) {
	o.own().SetManagedFields(e)
}

// encodings holds what an object was encoded to, by encoder.
type encodings struct {
	mu   sync.Mutex
	byID map[runtime.Identifier]*encoding
}

type encoding struct {
	once sync.Once
	data []byte
	err  error
}

func (e *encodings) get(id runtime.Identifier, encode func(io.Writer) error) ([]byte, error) {
	e.mu.Lock()
	one, ok := e.byID[id]
	if !ok {
		if e.byID == nil {
			e.byID = map[runtime.Identifier]*encoding{}
		}
		one = &encoding{}
		e.byID[id] = one
	}
	e.mu.Unlock()
	one.once.Do(func() {
		var b bytes.Buffer
		one.err = encode(&b)
		one.data = b.Bytes()
	})
	return one.data, one.err
}
