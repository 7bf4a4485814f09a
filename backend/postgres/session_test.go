package postgres_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/anylock/anylock"
)

// idleProxy leads to a server, and closes connections on which nothing was said for so long, as proxies and firewalls do.
func idleProxy(t *testing.T, server string, idle time.Duration) (addr string) {
	t.Helper()
	listener := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { relay(ctx, client, server, idle) })
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		running.Wait()
	})
	return listener.Addr().String()
}

func relay(ctx context.Context, client net.Conn, addr string, idle time.Duration) {
	defer client.Close()
	server, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer server.Close()
	end := func() {
		_ = client.Close()
		_ = server.Close()
	}
	defer context.AfterFunc(ctx, end)()
	timer := time.AfterFunc(idle, end)
	defer timer.Stop()
	var running sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		running.Go(func() {
			defer end()
			_, _ = io.Copy(way[1], readerFunc(func(p []byte) (int, error) {
				n, err := way[0].Read(p)
				timer.Reset(idle)
				return n, err
			}))
		})
	}
	running.Wait()
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Sessions are not idle for as long as they hold locks, though renewals are ten seconds apart.
func TestIdleProxy(t *testing.T) {
	const idle = 5 * time.Second
	s := server(t)
	eachMode(t, func(t *testing.T, mode string) {
		if mode == "mode=lease" {
			t.Skip("holds no session")
		}
		t.Parallel()
		schema := freshSchema(t, s)
		url := urlAt(s, idleProxy(t, s.Addr(), idle), schema, mode)
		a := locker(t, url, anylock.WithTTL(30*time.Second), anylock.WithoutRenewal())
		b := locker(t, url, anylock.WithTTL(30*time.Second))
		tried := must(a.TryAcquire(t.Context(), "tried"))(t)
		got := make(chan *anylock.Lease, 1)
		go func() { // over a connection that says nothing: it is cut, and waits anew on another
			got <- must(b.Acquire(context.Background(), "tried"))(t)
		}()
		select {
		case <-tried.Done():
			t.Error(tried.Err())
		case <-time.After(2*idle + idle/2):
		}
		if err := tried.Release(ctx10(t)); err != nil {
			t.Errorf("the release after a silence: %v", err)
		}
		waited := <-got
		select {
		case <-waited.Done():
			t.Error(waited.Err())
		case <-time.After(idle + idle/2):
		}
		if err := waited.Release(ctx10(t)); err != nil {
			t.Errorf("the release of a lock that was waited for: %v", err)
		}
	})
}

// What keeps a connection alive does not prolong the locks on it.
func TestSignsOfLifeDoNotRenew(t *testing.T) {
	const ttl = 10 * time.Second
	s := server(t)
	eachMode(t, func(t *testing.T, mode string) {
		t.Parallel()
		schema := freshSchema(t, s)
		b := open(t, urlOf(s, schema, mode))
		req := request("n")
		req.TTL = ttl
		must(b.Acquire(ctx10(t), req))(t)
		g := must(b.Acquire(ctx10(t), req))(t) // repeated: the later one counts
		other := locker(t, urlOf(s, schema, mode))
		ctx, cancel := context.WithTimeout(t.Context(), ttl+ttl/2)
		defer cancel()
		_, err := other.Acquire(ctx, "n")
		if since := time.Since(g.From); err != nil || since < ttl {
			t.Errorf("after %v of a TTL of %v: %v", since, ttl, err)
		}
		if err := b.Renew(ctx10(t), []anylock.Grant{g})[0].Err; !errors.Is(err, anylock.ErrLost) {
			t.Errorf("Renew: %v", err)
		}
	})
}
