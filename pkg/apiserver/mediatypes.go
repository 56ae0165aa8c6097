// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// withoutProtobuf is a serializer that does not claim an encoding which the types
// of the group do not have: a client that would rather have protobuf falls back to
// JSON (F72), and one that accepts nothing else gets 406, not a watch that ends
// with its first event.
type withoutProtobuf struct {
	runtime.NegotiatedSerializer

	mediaTypes []runtime.SerializerInfo
}

func newWithoutProtobuf(s runtime.NegotiatedSerializer) withoutProtobuf {
	return withoutProtobuf{s, slices.DeleteFunc(slices.Clone(s.SupportedMediaTypes()), func(info runtime.SerializerInfo) bool {
		return info.MediaType == runtime.ContentTypeProtobuf
	})}
}

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (s withoutProtobuf) SupportedMediaTypes() []runtime.SerializerInfo { return s.mediaTypes }
