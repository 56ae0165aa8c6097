// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net/http"

	"k8s.io/apiserver/pkg/server/healthz"

	"github.com/kommit-dev/kommit/pkg/storage/bolt"
)

// Run serves until ctx ends and the server has shut down. It is the list of the
// server's parts, in the order in which they depend on each other.
func (o *Options) Run(ctx context.Context) (err error) {
	config, err := o.Config()
	if err != nil {
		return err
	}

	// The file outlives ctx: requests are answered, and windows pushed, while the
	// server shuts down.
	db, err := bolt.Open(context.WithoutCancel(ctx), bolt.Config{Path: o.StorageFile})
	if err != nil {
		return err
	}
	defer func() {
		if closed := db.Close(); err == nil {
			err = closed
		}
	}()
	config.Storage = &bolt.RESTOptionsGetter{
		DB:           db,
		Codec:        config.StorageCodec(),
		ObjectCounts: config.Generic.StorageObjectCountTracker,
	}
	config.Ready = []healthz.HealthChecker{
		healthz.NamedCheck("storage", func(*http.Request) error { return db.Ready() }),
	}

	newSaving(o, config.Generic.ClientConfig).addTo(ctx, config)

	server, err := New(config)
	if err != nil {
		return err
	}
	return server.PrepareRun().RunWithContext(ctx)
}
