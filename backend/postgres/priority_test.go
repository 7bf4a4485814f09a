package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/conformance/containers"
)

// Many who try and release, over a slow network, do not hold up the renewals of the leases that share their sessions.
func TestAdvisoryRenewalsGoFirst(t *testing.T) {
	const ttl = 3 * time.Second
	s := server(t)
	network := containers.NewNetwork(t)
	l := locker(t, urlAt(s, network.Addr(t, s.Addr()), freshSchema(t, s), "mode=advisory", "pool_max_conns=16"),
		anylock.WithTTL(ttl), anylock.WithLogger(nil))
	network.Slow(10 * time.Millisecond)
	leases := make([]*anylock.Lease, 40)
	var running sync.WaitGroup
	for i := range leases { // at the same time, so that they are on all sessions
		running.Go(func() { leases[i] = must(l.TryAcquire(ctx10(t), fmt.Sprint("held ", i)))(t) })
	}
	running.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 3*ttl)
	defer cancel()
	for i := range 1000 {
		running.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if lease, err := l.TryAcquire(ctx, fmt.Sprint(i, " ", n)); err == nil {
					_ = lease.Release(ctx)
				}
			}
		})
	}
	running.Wait()
	network.Slow(0)
	for _, lease := range leases {
		if err := lease.Err(); err != nil {
			t.Errorf("%s: %v", lease.Name(), err)
		}
	}
}
