// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// proxy stands between a client and a server: the Git server, to make the way to it
// bad, or kommit-apiserver, to make it better. Safe for concurrent use.
type proxy struct {
	listener net.Listener
	server   string
	// patience is how long it waits for a server that is not there.
	patience time.Duration
	running  sync.WaitGroup
	ctx      context.Context // of its connections
	cancel   context.CancelFunc

	mu      sync.Mutex
	slow    bool
	cut     *rand.Rand
	changed chan struct{} // closed when one of these changes
}

// newProxy passes connections on to a server until close.
func newProxy(ctx context.Context, server string, patience time.Duration) (*proxy, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: listener, server: server, patience: patience, changed: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(ctx)
	p.running.Go(p.accept)
	return p, nil
}

func (p *proxy) address() string { return p.listener.Addr().String() }

// close ends all connections and waits for what served them.
func (p *proxy) close() {
	p.cancel()
	p.listener.Close()
	p.running.Wait()
}

// setSlow passes one byte a second in each direction, until it is lifted.
func (p *proxy) setSlow(slow bool) { p.change(func() { p.slow = slow }) }

// setCut ends each connection that is made from now on after a random number of bytes;
// nil ends that.
func (p *proxy) setCut(random *rand.Rand) { p.change(func() { p.cut = random }) }

func (p *proxy) change(what func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	what()
	close(p.changed)
	p.changed = make(chan struct{})
}

// state is whether it is slow, and what is closed when that changes.
func (p *proxy) state() (slow bool, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slow, p.changed
}

// budget is the number of bytes after which a connection is cut, negative for never.
// A session is some hundred bytes to some thousand.
func (p *proxy) budget() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut == nil {
		return -1
	}
	return p.cut.IntN(2500)
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.running.Go(func() { p.serve(client) })
	}
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server := p.dial()
	if server == nil {
		return
	}
	defer server.Close()
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { client.Close(); server.Close() })
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { defer cancel(); p.copy(ctx, server, client, p.budget()) })
	both.Go(func() { defer cancel(); p.copy(ctx, client, server, p.budget()) })
	both.Wait()
}

// dial returns nil when the server does not come within the patience.
func (p *proxy) dial() net.Conn {
	ctx, cancel := context.WithTimeout(p.ctx, p.patience)
	defer cancel()
	for {
		// The patience is for a server that is not there, not for one that is slow.
		server, err := (&net.Dialer{}).DialContext(p.ctx, "tcp", p.server)
		if err == nil {
			return server
		}
		if ctx.Err() != nil {
			return nil
		}
		wait(ctx, 50*time.Millisecond)
	}
}

// copy until one end closes, or the budget is used up.
func (p *proxy) copy(ctx context.Context, to, from net.Conn, budget int) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		cut := budget >= 0 && n >= budget
		if cut {
			n = budget
		}
		budget -= n
		if !p.write(ctx, to, buffer[:n]) || err != nil || cut {
			return
		}
	}
}

func (p *proxy) write(ctx context.Context, to net.Conn, data []byte) bool {
	for len(data) > 0 {
		slow, changed := p.state()
		if !slow {
			_, err := to.Write(data)
			return err == nil
		}
		if _, err := to.Write(data[:1]); err != nil {
			return false
		}
		data = data[1:]
		second := time.NewTimer(time.Second)
		select {
		case <-second.C:
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
	return true
}
