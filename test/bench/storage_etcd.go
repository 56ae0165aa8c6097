// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/kommit-dev/kommit/test/controlplane"
)

// etcdServer is a real etcd with one member and the defaults of its own, fsync
// among them. It speaks plain HTTP/2 on the loopback interface, which is less
// work for it than TLS.
type etcdServer struct {
	url, address string
	owner        *controlplane.ControlPlane
	command      controlplane.Command
	process      *controlplane.Process
}

// newEtcd prepares a server whose data is in a folder of that name. It ends with
// the workplace.
func (w *workplace) newEtcd(ctx context.Context, name string) (*etcdServer, error) {
	binaries, err := controlplane.EnsureBinaries(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(w.dir, name)
	// It starts no control plane: it only owns the process.
	owner, err := controlplane.New(controlplane.Config{Dir: dir, BinDir: binaries})
	if err != nil {
		return nil, err
	}
	w.closers = append(w.closers, owner.Stop)
	e := &etcdServer{owner: owner}
	if e.address, err = freeAddress(ctx); err != nil {
		return nil, err
	}
	peer, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	e.url = "http://" + e.address
	e.command = controlplane.Command{
		Name: controlplane.Etcd,
		Path: filepath.Join(binaries, controlplane.Etcd),
		Args: []string{
			"--name=bench", "--data-dir=" + filepath.Join(dir, "data"), "--log-level=error",
			"--listen-client-urls=" + e.url, "--advertise-client-urls=" + e.url,
			"--listen-peer-urls=http://" + peer, "--initial-advertise-peer-urls=http://" + peer,
			"--initial-cluster=bench=http://" + peer,
		},
	}
	return e, nil
}

// start returns as soon as connections are taken; the first request waits until
// the data is open.
func (e *etcdServer) start(ctx context.Context) (err error) {
	if e.process, err = e.owner.Run(ctx, e.command); err != nil {
		return err
	}
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for {
		connection, err := dial(ctx, e.address)
		if err == nil {
			return connection.Close()
		}
		select {
		case <-e.process.Exited():
			return fmt.Errorf("etcd ended; the end of its log %s says why", e.process.LogFile)
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

func (e *etcdServer) stop(ctx context.Context) error { return e.owner.StopProcess(ctx, e.process) }

func dial(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp4", address)
}

func freeAddress(ctx context.Context) (string, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
