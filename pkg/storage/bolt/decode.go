// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"context"
	"fmt"
	"reflect"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage/value"
)

// keyContext binds an encrypted value to the key it is stored under, path
// prefix included, so that it cannot be moved to another one.
type keyContext string

var _ value.Context = keyContext("")

// AuthenticatedData implements value.Context.
func (c keyContext) AuthenticatedData() []byte { return []byte(c) }

// decode reads data into out, which gets rev as its resourceVersion.
func (s *store) decode(data []byte, out runtime.Object, rev uint64) error {
	if _, err := conversion.EnforcePtr(out); err != nil {
		return fmt.Errorf("unable to convert output object to pointer: %w", err)
	}
	if _, _, err := s.codec.Decode(data, nil, out); err != nil {
		return s.corruption(undecodable, rev, err)
	}
	return s.versioner.UpdateObject(out, rev)
}

// decodeItem is decode into a new list item.
func (s *store) decodeItem(data []byte, into runtime.Object, rev uint64) (runtime.Object, error) {
	obj, _, err := s.codec.Decode(data, nil, into)
	if err != nil {
		return nil, s.corruption(undecodable, rev, err)
	}
	return obj, s.versioner.UpdateObject(obj, rev)
}

// restore turns a stored value into an object of the codec's internal version.
func (s *store) restore(ctx context.Context, key string, stored []byte, rev uint64) (runtime.Object, error) {
	data, _, err := s.transformer.TransformFromStorage(ctx, stored, keyContext(key))
	if err != nil {
		return nil, err
	}
	obj, err := runtime.Decode(s.codec, data)
	if err != nil {
		return nil, s.corruption(undecodable, rev, err)
	}
	return obj, s.versioner.UpdateObject(obj, rev)
}

// memo lets the watchers of one store decode an event once. Every one of them
// gets a copy of its own, as callers may write into what they are sent.
type memo struct{ p atomic.Pointer[decoded] }

type decoded struct {
	by     *store
	object runtime.Object
}

func (m *memo) get(by *store, decode func() (runtime.Object, error)) (runtime.Object, error) {
	if d := m.p.Load(); d != nil && d.by == by {
		return d.object.DeepCopyObject(), nil
	}
	obj, err := decode()
	if err != nil {
		return nil, err
	}
	if m.p.CompareAndSwap(nil, &decoded{by: by, object: obj}) {
		return obj.DeepCopyObject(), nil
	}
	return obj, nil
}

// newItem returns the constructor of a list's items. Items of an unstructured
// list get its version.
func newItem(list runtime.Object, items reflect.Value) func() runtime.Object {
	if u, ok := list.(*unstructured.UnstructuredList); ok {
		if apiVersion := u.GetAPIVersion(); apiVersion != "" {
			return func() runtime.Object {
				return &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion}}
			}
		}
	}
	item := items.Type().Elem()
	return func() runtime.Object { return reflect.New(item).Interface().(runtime.Object) }
}

// newLike returns an empty object of out's type.
func newLike(out runtime.Object) (runtime.Object, error) {
	v, err := conversion.EnforcePtr(out)
	if err != nil {
		return nil, fmt.Errorf("unable to convert output object to pointer: %w", err)
	}
	if u, ok := out.(runtime.Unstructured); ok {
		return u.NewEmptyInstance(), nil
	}
	return reflect.New(v.Type()).Interface().(runtime.Object), nil
}
