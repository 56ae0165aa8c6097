// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"
)

// echo answers each connection with what it gets.
func echo(t *testing.T, address string) string {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return listener.Addr().String()
}

// What is broken is the way alone: it passes on all, or nothing but a beginning, and
// what was slow goes on when that is lifted.
func TestTheProxyIsAsBadAsItIsTold(t *testing.T) {
	p, err := newProxy(t.Context(), echo(t, "127.0.0.1:0"), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	const bytes = 100_000
	begin := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", p.address())
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = c.Write(make([]byte, bytes)) }()
		return c
	}

	good := begin()
	defer good.Close()
	if n, err := io.CopyN(io.Discard, good, bytes); err != nil {
		t.Errorf("a good way passes %d of %d bytes: %v", n, bytes, err)
	}

	p.setCut(rand.New(rand.NewPCG(1, 2)))
	cut := begin()
	defer cut.Close()
	if n, _ := io.Copy(io.Discard, cut); n >= 2500 {
		t.Errorf("a cut way passes %d bytes", n)
	}

	p.setCut(nil)
	p.setSlow(true)
	slow := begin()
	defer slow.Close()
	first := make([]byte, 64)
	if n, err := slow.Read(first); err != nil || n != 1 {
		t.Errorf("a slow way passes %d bytes at once: %v", n, err)
	}
	p.setSlow(false)
	if n, err := io.CopyN(io.Discard, slow, bytes-1); err != nil {
		t.Errorf("a way that is good again passes %d of %d bytes: %v", n, bytes-1, err)
	}
}

// A server that is not there yet is waited for by the patient alone.
func TestAPatientProxyWaitsForItsServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := listener.Addr().String()
	listener.Close()
	through := func(patience time.Duration) net.Conn {
		t.Helper()
		p, err := newProxy(t.Context(), server, patience)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.close)
		c, err := net.Dial("tcp", p.address())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	impatient, patient := through(0), through(time.Minute)
	if n, err := impatient.Read(make([]byte, 1)); err == nil {
		t.Errorf("an impatient way to no server passes %d bytes", n)
	}
	echo(t, server)
	if _, err := patient.Write([]byte("event")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(patient, got); err != nil || string(got) != "event" {
		t.Errorf("a patient way passes %q: %v", got, err)
	}
}
