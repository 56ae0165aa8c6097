// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package catchingup proves DESIGN 5.5 on real parts: a save holds what its author
// did before it, although audit events come in batches, and says so when it cannot
// know.
package catchingup

import (
	"net"
	"sync"
)

// gate passes connections on to a server, or holds what comes over them while it
// is shut: a receiver that has stopped reading.
type gate struct {
	listener net.Listener
	server   string
	running  sync.WaitGroup

	mu     sync.Mutex
	opened *sync.Cond
	shut   bool
	conns  map[net.Conn]struct{}
	closed bool
}

func newGate(server string) (*gate, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g := &gate{listener: listener, server: server, conns: map[net.Conn]struct{}{}}
	g.opened = sync.NewCond(&g.mu)
	g.running.Go(g.accept)
	return g, nil
}

func (g *gate) address() string { return g.listener.Addr().String() }

func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = shut
	g.opened.Broadcast()
}

// close ends all connections and waits for what served them.
func (g *gate) close() error {
	g.mu.Lock()
	g.closed = true
	for c := range g.conns {
		_ = c.Close()
	}
	g.opened.Broadcast()
	g.mu.Unlock()
	err := g.listener.Close()
	g.running.Wait()
	return err
}

func (g *gate) accept() {
	for {
		client, err := g.listener.Accept()
		if err != nil {
			return // closed
		}
		server, err := net.Dial("tcp", g.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		if !g.keep(client, server) {
			return
		}
		g.running.Go(func() { g.copy(server, client, g.pass) })
		g.running.Go(func() { g.copy(client, server, func() bool { return true }) })
	}
}

func (g *gate) keep(conns ...net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range conns {
		if g.closed {
			_ = c.Close()
		} else {
			g.conns[c] = struct{}{}
		}
	}
	return !g.closed
}

// pass waits until the gate is open; false when it is gone.
func (g *gate) pass() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.shut && !g.closed {
		g.opened.Wait()
	}
	return !g.closed
}

func (g *gate) copy(to, from net.Conn, pass func() bool) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if !pass() {
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
