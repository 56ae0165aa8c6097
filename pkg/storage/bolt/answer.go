// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
)

// answer is the object that a write gives back. All but its revision is known
// before the commit, so it is decoded while the disk syncs.
type answer struct {
	s       *store
	data    []byte
	decoded runtime.Object
}

// prepare decodes into an object like out, not into out: the write may fail.
func (a *answer) prepare(out runtime.Object) {
	obj, err := newLike(out)
	if err != nil {
		return // give says so
	}
	if _, _, err := a.s.codec.Decode(a.data, nil, obj); err == nil {
		a.decoded = obj
	}
}

// give fills out, which gets rev as its resourceVersion.
func (a *answer) give(out runtime.Object, rev uint64) error {
	if a.decoded == nil || reflect.TypeOf(a.decoded) != reflect.TypeOf(out) {
		return a.s.decode(a.data, out, rev)
	}
	reflect.ValueOf(out).Elem().Set(reflect.ValueOf(a.decoded).Elem())
	return a.s.versioner.UpdateObject(out, rev)
}
