// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package bolt

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/client-go/tools/cache"
)

// RESTOptionsGetter makes generic registries keep their objects in DB. Only DB
// and Codec are required.
type RESTOptionsGetter struct {
	DB    *DB
	Codec runtime.Codec
	// PathPrefix comes before every key.
	PathPrefix string
	// Transformers returns how a resource's values are encrypted, as
	// encryptionconfig.EncryptionConfiguration.Transformers does; nil: not at all.
	Transformers func(schema.GroupResource) value.Transformer
	// ObjectCounts is told how many objects there are, for priority and fairness.
	ObjectCounts flowcontrolrequest.StorageObjectCountTracker
}

var _ generic.RESTOptionsGetter = (*RESTOptionsGetter)(nil)

// NewRESTOptionsGetter returns a getter without encryption or object counts.
func NewRESTOptionsGetter(db *DB, codec runtime.Codec, pathPrefix string) generic.RESTOptionsGetter {
	return &RESTOptionsGetter{DB: db, Codec: codec, PathPrefix: pathPrefix}
}

// GetRESTOptions implements generic.RESTOptionsGetter. It touches no storage,
// and example may be nil: the server asks so before any resource exists.
func (g *RESTOptionsGetter) GetRESTOptions(gr schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	config := storagebackend.NewDefaultConfig(g.PathPrefix, g.Codec)
	config.StorageObjectCountTracker = g.ObjectCounts
	config.EventsHistoryWindow = g.DB.config.History.MaxAge
	if g.Transformers != nil {
		config.Transformer = g.Transformers(gr)
	}
	prefix := "/" + gr.Resource
	if gr.Group != "" {
		prefix = "/" + gr.Group + prefix
	}
	return generic.RESTOptions{
		StorageConfig:             config.ForResource(gr),
		Decorator:                 g.storage,
		EnableGarbageCollection:   true,
		DeleteCollectionWorkers:   1,
		ResourcePrefix:            prefix,
		CountMetricPollPeriod:     time.Minute, // Stats costs nothing here
		StorageObjectCountTracker: g.ObjectCounts,
	}, nil
}

// storage is a generic.StorageDecorator. There is no watch cache on top: the
// store is local, and a second copy would only be late.
func (g *RESTOptionsGetter) storage(
	config *storagebackend.ConfigForResource, resourcePrefix string,
	_ func(runtime.Object) (string, error),
	newFunc, _ func() runtime.Object,
	_ storage.AttrFunc, _ storage.IndexerFuncs, _ *cache.Indexers,
) (storage.Interface, factory.DestroyFunc, error) {
	transformer := config.Transformer
	if transformer != nil && utilfeature.DefaultFeatureGate.Enabled(features.AllowUnsafeMalformedObjectDeletion) {
		transformer = corruptionTransformer{transformer}
	}
	s, err := g.DB.newStore(storeConfig{
		groupResource:  config.GroupResource,
		codec:          config.Codec,
		transformer:    transformer,
		newFunc:        newFunc,
		pathPrefix:     config.Prefix,
		resourcePrefix: strings.TrimSuffix(resourcePrefix, "/") + "/",
	})
	if err != nil {
		return nil, func() {}, err
	}
	return s, func() {}, nil // DB outlives its stores and is closed by its owner
}
