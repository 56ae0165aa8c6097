// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"context"
	"fmt"
	"reflect"

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
	data, err := s.reveal(ctx, key, stored, rev)
	if err != nil {
		return nil, err
	}
	return s.decodeInternal(data, rev)
}

// restoreEntry is restore for an entry of a list: what it returns is shared.
func (s *store) restoreEntry(ctx context.Context, e entry) (runtime.Object, error) {
	data, err := s.reveal(ctx, e.key, e.value, e.rev)
	if err != nil {
		return nil, err
	}
	return s.decodeEntry(e, data, s.objectType, func() (runtime.Object, error) { return s.decodeInternal(data, e.rev) })
}

// reveal checks and decrypts a stored value.
func (s *store) reveal(ctx context.Context, key string, stored []byte, rev uint64) ([]byte, error) {
	if err := s.intact(stored, rev); err != nil {
		return nil, err
	}
	data, _, err := s.transformer.TransformFromStorage(ctx, stored, keyContext(key))
	return data, err
}

func (s *store) decodeInternal(data []byte, rev uint64) (runtime.Object, error) {
	obj, err := runtime.Decode(s.codec, data)
	if err != nil {
		return nil, s.corruption(undecodable, rev, err)
	}
	return obj, s.versioner.UpdateObject(obj, rev)
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
