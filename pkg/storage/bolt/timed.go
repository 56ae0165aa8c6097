// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

// timedObject carries the time an event was decoded, for a watch cache that
// measures its latency.
type timedObject struct {
	runtime.Object
	at time.Time
}

var _ storage.WatchEventWithRecordTime = (*timedObject)(nil)

// RecordTime implements storage.WatchEventWithRecordTime.
func (t *timedObject) RecordTime() time.Time { return t.at }

// Unwrap implements storage.WatchEventWithRecordTime.
func (t *timedObject) Unwrap() runtime.Object { return t.Object }

// DeepCopyObject implements runtime.Object.
func (t *timedObject) DeepCopyObject() runtime.Object {
	return &timedObject{Object: t.Object.DeepCopyObject(), at: t.at}
}

// GetObjectMeta lets a reflector read the object's metadata.
func (t *timedObject) GetObjectMeta() metav1.Object {
	m, err := meta.Accessor(t.Object)
	if err != nil {
		return nil
	}
	return m
}
