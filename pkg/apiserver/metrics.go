// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"github.com/prometheus/client_golang/prometheus"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// serveMetrics adds ours to those of the API machinery, which has one registry for
// the whole process: a server of ours has its own.
func serveMetrics(server *genericapiserver.GenericAPIServer, ours prometheus.Gatherer) {
	const path = "/metrics"
	mux := server.Handler.NonGoRestfulMux
	mux.Unregister(path)
	mux.Handle(path, metrics.HandlerFor(prometheus.Gatherers{legacyregistry.DefaultGatherer, ours}, metrics.HandlerOpts{}))
}
