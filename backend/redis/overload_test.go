package redis

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/conformance/containers"
)

// Far more callers than connections, to a server that is 20 ms away: all are served, no connection is given up because
// somebody waited for it, and leases that are held are renewed meanwhile.
func TestOverload(t *testing.T) {
	const connections, callers, held = 10, 1500, 50
	network := containers.NewNetwork(t)
	var dials atomic.Int32
	client := redis.NewClient(&redis.Options{
		Addr: shared(t).Addr(), ContextTimeoutEnabled: true, PoolSize: connections,
		Dialer: func(ctx context.Context, proto, addr string) (net.Conn, error) {
			dials.Add(1)
			return network.DialContext(ctx, proto, addr)
		},
	})
	defer client.Close()
	l, err := anylock.New(over(t, client), anylock.WithLogger(nil), anylock.WithTTL(6*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close(context.Background()) }()
	var leases []*anylock.Lease
	for i := range held {
		lease, err := l.Acquire(t.Context(), fmt.Sprint(t.Name(), "-held-", i))
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, lease)
	}
	network.Slow(20 * time.Millisecond)
	start := time.Now()
	var all sync.WaitGroup
	var served atomic.Int32
	for i := range callers {
		all.Go(func() {
			err := l.Do(t.Context(), fmt.Sprint(t.Name(), "-", i), func(context.Context, *anylock.Lease) error { return nil })
			if err != nil {
				t.Error(err)
			} else {
				served.Add(1)
			}
		})
	}
	all.Wait()
	t.Logf("%d of %d were served in %v; %d connections were made", served.Load(), callers, time.Since(start).Round(time.Millisecond), dials.Load())
	for _, lease := range leases {
		if err := lease.Err(); err != nil {
			t.Fatalf("a lease was lost meanwhile: %v", err)
		}
	}
	if n := dials.Load(); n > 5*connections {
		t.Errorf("%d connections were made for a pool of %d", n, connections)
	}
}
