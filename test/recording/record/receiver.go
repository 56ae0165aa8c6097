// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kommit-dev/kommit/test/recording"
)

// receiver is the audit webhook. It keeps what comes.
type receiver struct {
	server *http.Server
	url    string

	mu      sync.Mutex
	batches []recording.Batch
	events  int
	failure error
	arrived chan struct{}
}

// listen serves the webhook on a port of loopback until close.
func listen(ctx context.Context) (*receiver, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &receiver{url: "http://" + l.Addr().String(), arrived: make(chan struct{}, 1)}
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	go func() { _ = r.server.Serve(l) }()
	return r, nil
}

func (r *receiver) close() { _ = r.server.Close() }

// kubeconfig writes the file that leads kube-apiserver here.
func (r *receiver) kubeconfig(file string) error {
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"recorder": {Server: r.url}},
		Contexts:       map[string]*clientcmdapi.Context{"recorder": {Cluster: "recorder"}},
		CurrentContext: "recorder",
	}, file)
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	err := json.NewDecoder(request.Body).Decode(&list)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.failure = err
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.batches = append(r.batches, recording.Batch{Received: time.Now(), Events: list.Items})
	r.events += len(list.Items)
	select {
	case r.arrived <- struct{}{}:
	default:
	}
}

// settle waits until nothing has come for that long.
func (r *receiver) settle(ctx context.Context, quiet time.Duration) error {
	for {
		select {
		case <-r.arrived:
		case <-time.After(quiet):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// forget drops what came so far: the noise of the start.
func (r *receiver) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.batches = nil
}

func (r *receiver) take() ([]recording.Batch, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.batches, r.failure
}
