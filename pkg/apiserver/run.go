// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/component-base/metrics"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/journal"
	"github.com/kommit-dev/kommit/pkg/storage/bolt"
)

// lockTimeout is how long one attempt waits for the process that has the storage
// file, well within the time to say so (F64).
const lockTimeout = time.Second

// Run serves until ctx ends and the server has shut down.
func (o *Options) Run(ctx context.Context) error {
	config, err := o.Config()
	if err != nil {
		return err
	}
	return o.serve(ctx, config, func(kept kept, registry metrics.KubeRegistry) (stop func()) {
		saving := newSaving(o, config.Generic.ClientConfig, kept, registry.MustRegister)
		saving.addTo(ctx, config)
		return func() { saving.stop(context.WithoutCancel(ctx)) }
	})
}

// kept is what is on disk besides the objects.
type kept struct {
	store journal.Store
	// rows are those of the journal that saving goes on from.
	rows journal.Rows
}

// serve is the list of the server's parts, in the order in which they depend on
// each other. addSaving adds what turns edits into commits, and returns what ends it
// once the server has stopped.
func (o *Options) serve(ctx context.Context, config *Config, addSaving func(kept, metrics.KubeRegistry) (stop func())) (err error) {
	encryption, err := o.addEncryption(config)
	if err != nil {
		return err
	}

	db, err := openStorage(ctx, newWaiting(o.StorageFile, func() (*bolt.DB, error) {
		// The file outlives ctx: requests are answered, and windows pushed, while the
		// server shuts down.
		return bolt.Open(context.WithoutCancel(ctx), bolt.Config{Path: o.StorageFile, LockTimeout: lockTimeout})
	}), o.Recommended.SecureServing.SecureServingOptions)
	if err != nil {
		// No server has come to close it.
		closed := config.Generic.SecureServing.Listener.Close()
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return closed // told to stop while it waited
		}
		return errors.Join(err, closed)
	}
	defer func() {
		if closed := db.Close(); err == nil {
			err = closed
		}
	}()
	storage := &bolt.RESTOptionsGetter{
		DB:           db,
		Codec:        config.StorageCodec(),
		ObjectCounts: config.Generic.StorageObjectCountTracker,
	}
	if encryption != nil {
		storage.Transformers = encryption.TransformerForResource
	}
	config.Storage = storage
	config.Backup = newBackups(db, config.Generic.ShutdownInitiatedNotify())
	config.Ready = []healthz.HealthChecker{
		healthz.NamedCheck("storage", func(*http.Request) error { return db.Ready() }),
	}
	registry := metrics.NewKubeRegistry()
	registry.Registerer().MustRegister(db.Collector())
	config.Metrics = registry

	saved := kept{store: db, rows: journal.NewRows(db, "saving")}
	if encryption != nil {
		// The journal holds the messages of CommitRequests.
		saved.rows = journal.NewEncryptedRows(saved.rows, encryption.TransformerForResource(v1alpha1.Resource("commitrequests")))
	}
	defer addSaving(saved, registry)()

	server, err := New(config)
	if err != nil {
		return err
	}
	return server.PrepareRun().RunWithContext(ctx)
}
