// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"net"
	"strconv"
)

// reservePort returns a free TCP port of 127.0.0.1 that the kernel will hand
// to nobody else for about a minute, or the wanted one when that is free.
//
// A port found by listening on :0 and closing again can be taken before the
// process it is meant for binds it. So one connection is made to it and closed
// from the listener's side: its TIME_WAIT entry keeps the port away from every
// later :0 and outgoing connection, while a listener that names the port (with
// SO_REUSEADDR, as every Go program's has) still gets it.
func reservePort(ctx context.Context, want int) (int, error) {
	if want != 0 {
		if err := holdPort(ctx, want); err == nil {
			return want, nil
		}
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port on 127.0.0.1: %w", err)
	}
	return l.Addr().(*net.TCPAddr).Port, leaveTimeWait(ctx, l)
}

// holdPort reserves one given port; it fails when somebody listens there.
func holdPort(ctx context.Context, port int) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp4", hostPort(port))
	if err != nil {
		return err
	}
	return leaveTimeWait(ctx, l)
}

// leaveTimeWait closes l such that its port stays reserved.
func leaveTimeWait(ctx context.Context, l net.Listener) error {
	defer l.Close()
	var d net.Dialer
	client, err := d.DialContext(ctx, "tcp4", l.Addr().String())
	if err != nil {
		return fmt.Errorf("reserve %s: %w", l.Addr(), err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		return fmt.Errorf("reserve %s: %w", l.Addr(), err)
	}
	return server.Close() // the first to close is the one that keeps TIME_WAIT
}

// listening says whether some process holds the port.
func listening(ctx context.Context, port int) bool {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp4", hostPort(port))
	if err != nil {
		return true
	}
	l.Close()
	return false
}

func hostPort(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
