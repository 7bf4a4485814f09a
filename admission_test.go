package anylock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/backend/memory"
)

// pooled is a backend with a few connections, each of which a call has for as long as the store takes.
type pooled struct {
	anylock.Backend
	connections chan struct{}
	takes       time.Duration
	down        atomic.Bool
	dropped     atomic.Int32 // connections that were given up
}

func (p *pooled) Describe() anylock.Description {
	d := p.Backend.Describe()
	d.MaxRequests, d.MaxBatch = cap(p.connections), 20
	return d
}

func (p *pooled) call(ctx context.Context) error {
	select {
	case p.connections <- struct{}{}:
		defer func() { <-p.connections }()
	case <-ctx.Done():
		return errors.New("no connection is free")
	}
	takes := p.takes
	if p.down.Load() {
		takes = time.Hour
	}
	select {
	case <-time.After(takes):
		return nil
	case <-ctx.Done():
		p.dropped.Add(1)
		return ctx.Err()
	}
}

func (p *pooled) Acquire(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
	from := time.Now()
	if err := p.call(ctx); err != nil {
		return anylock.Grant{}, err
	}
	g, err := p.Backend.Acquire(ctx, r)
	g.From = from
	return g, err
}

func (p *pooled) Renew(ctx context.Context, g []anylock.Grant) []anylock.Renewal {
	if err := p.call(ctx); err != nil {
		return repeat(anylock.Renewal{Err: err}, len(g))
	}
	return p.Backend.Renew(ctx, g)
}

func (p *pooled) Release(ctx context.Context, g []anylock.Grant) []error {
	if err := p.call(ctx); err != nil {
		return repeat(err, len(g))
	}
	return p.Backend.Release(ctx, g)
}

func repeat[T any](v T, n int) (all []T) {
	for range n {
		all = append(all, v)
	}
	return all
}

// Thousands who want locks over a few connections get them one after the other, lose no lease that is held, and no
// connection is given up because somebody waited for it.
func TestOverload(t *testing.T) {
	virtual(t, func(t *testing.T, store *memory.Store, _ *faulty) {
		p := &pooled{Backend: store.Client(), connections: make(chan struct{}, 4), takes: 20 * time.Millisecond}
		var lost atomic.Int32
		l := newLocker(t, p, anylock.WithTTL(3*time.Second), anylock.WithHooks(anylock.Hooks{Lost: func(anylock.Event) { lost.Add(1) }}))
		for i := range 100 {
			acquire(t, l, fmt.Sprint("held-", i))
		}
		start := time.Now()
		var all sync.WaitGroup
		for i := range 2000 {
			all.Go(func() {
				lease, err := l.Acquire(bg, fmt.Sprint(i))
				if err != nil {
					t.Errorf("Acquire: %v", err)
					return
				}
				if err := lease.Release(bg); err != nil {
					t.Errorf("Release: %v", err)
				}
			})
		}
		all.Wait()
		if n := lost.Load(); n > 0 {
			t.Errorf("%d leases were lost", n)
		}
		if n := p.dropped.Load(); n > 0 {
			t.Errorf("%d connections were given up", n)
		}
		// Two of three connections that are not kept back could serve 50 of each a second.
		if took := time.Since(start); took > 2*2000*20*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
}

// When the store falls silent, those who wait for a place are told as soon as those who have one.
func TestSilenceIsToldToThoseWhoWaitForAPlace(t *testing.T) {
	virtual(t, func(t *testing.T, store *memory.Store, _ *faulty) {
		p := &pooled{Backend: store.Client(), connections: make(chan struct{}, 4), takes: time.Millisecond}
		l := newLocker(t, p)
		_ = acquire(t, l, "x").Release(bg)
		p.down.Store(true)
		start := time.Now()
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				_, err := l.TryAcquire(bg, fmt.Sprint(i))
				if !errors.Is(err, anylock.ErrUnavailable) {
					t.Errorf("TryAcquire: %v", err)
				}
			})
		}
		all.Wait()
		if took := time.Since(start); took > 3*anylock.DefaultRequestTimeout {
			t.Errorf("took %v", took)
		}
		p.down.Store(false)
	})
}
