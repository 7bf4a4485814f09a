package memory

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/backend/internal/gate"
	"github.com/anylock/anylock/backend/internal/yield"
)

const (
	minTTL   = time.Millisecond
	maxTTL   = 10 * 365 * 24 * time.Hour
	maxBatch = 1000

	standBack = 2 * time.Millisecond
)

// Backend is a client of a [Store].
type Backend struct {
	store *Store
	once  sync.Once
	end   chan struct{} // closed by Close

	yielder yield.Yielder
}

var _ anylock.Backend = (*Backend)(nil)

// Client returns a new client.
func (s *Store) Client() *Backend { return &Backend{store: s, end: make(chan struct{})} }

// Acquire implements [anylock.Backend].
func (b *Backend) Acquire(ctx context.Context, req anylock.Request) (anylock.Grant, error) {
	if err := b.usable(ctx); err != nil {
		return anylock.Grant{}, err
	}
	b.yielder.Yield(ctx, req.Name, standBack)
	s := b.store
	s.mu.Lock()
	if s.ended[req.ID] {
		defer s.mu.Unlock()
		return anylock.Grant{}, gate.ErrTooLate
	}
	k := s.lock(req.Name)
	s.locks[req.Name] = k // it may just have been forgotten
	switch {
	case k.id == req.ID:
		k.expires = time.Now().Add(req.TTL)
		defer s.mu.Unlock()
		return anylock.Grant{Name: req.Name, ID: req.ID, Token: k.token, TTL: req.TTL, From: time.Now()}, nil
	case k.id == "":
		defer s.mu.Unlock()
		return s.grant(k, req), nil
	case !req.Wait || s.wake != anylock.WakeQueue:
		defer s.mu.Unlock()
		return anylock.Grant{}, &anylock.HeldError{Holder: k.holder, RetryAfter: time.Until(k.expires)}
	}
	w := &waiter{req: req, granted: make(chan anylock.Grant, 1)}
	place := k.queue.PushBack(w)
	s.watchExpiry(req.Name, k)
	s.mu.Unlock()

	var err error
	select {
	case grant := <-w.granted:
		return grant, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-b.end:
		err = anylock.ErrClosed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case grant := <-w.granted: // just now; whoever asked gives it back
		return grant, nil
	default:
	}
	k.queue.Remove(place)
	s.watchExpiry(req.Name, k)
	return anylock.Grant{}, err
}

// Watch implements [anylock.Backend].
func (b *Backend) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	if err := b.usable(ctx); err != nil {
		return nil, err
	}
	s := b.store
	if s.wake != anylock.WakeNotify {
		return nil, nil
	}
	wake := make(chan struct{}, 1)
	s.mu.Lock()
	s.watchers[name] = append(s.watchers[name], wake)
	s.mu.Unlock()
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		left := slices.DeleteFunc(s.watchers[name], func(w chan struct{}) bool { return w == wake })
		if s.watchers[name] = left; len(left) == 0 {
			delete(s.watchers, name)
		}
	})
	return wake, nil
}

// Renew implements [anylock.Backend].
func (b *Backend) Renew(ctx context.Context, grants []anylock.Grant) []anylock.Renewal {
	renewals := make([]anylock.Renewal, len(grants))
	for i, g := range grants {
		renewals[i] = b.renew(ctx, g)
	}
	return renewals
}

func (b *Backend) renew(ctx context.Context, g anylock.Grant) anylock.Renewal {
	if err := b.usable(ctx); err != nil {
		return anylock.Renewal{Err: err}
	}
	s := b.store
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.locks[g.Name]
	if k == nil || k.id != g.ID || !k.held() {
		return anylock.Renewal{Err: anylock.ErrLost}
	}
	now := time.Now()
	k.expires = now.Add(g.TTL)
	return anylock.Renewal{From: now, TTL: g.TTL}
}

// Release implements [anylock.Backend].
func (b *Backend) Release(ctx context.Context, grants []anylock.Grant) []error {
	errs := make([]error, len(grants))
	for i, g := range grants {
		errs[i] = b.release(ctx, g)
	}
	return errs
}

func (b *Backend) release(ctx context.Context, g anylock.Grant) error {
	if err := b.usable(ctx); err != nil {
		return err
	}
	s := b.store
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remember(g.ID)
	k := s.locks[g.Name]
	if k == nil || k.id != g.ID {
		return anylock.ErrLost
	}
	live := k.held()
	s.free(g.Name, k)
	if len(s.watchers[g.Name]) > 0 {
		b.yielder.Released(g.Name)
	}
	if !live {
		return anylock.ErrLost
	}
	return nil
}

// Describe implements [anylock.Backend].
func (b *Backend) Describe() anylock.Description {
	return anylock.Description{
		Name: "memory", MinTTL: minTTL, MaxTTL: maxTTL, MaxBatch: maxBatch, Deadlines: true,
		Guarantees: anylock.Guarantees{
			Exclusion: anylock.ScopeProcess,
			Fencing:   anylock.ScopeProcess,
			FIFO:      b.store.wake == anylock.WakeQueue,
			Wake:      b.store.wake,
			Clock:     anylock.ClockProcess,
			// Whatever ends the store ends its holders too, and no network is between them.
			Survives: anylock.HolderCrash | anylock.HolderPartition | anylock.StoreRestart | anylock.ReplicaPromotion |
				anylock.MinorityLoss | anylock.MajorityLoss | anylock.StoreClockStep,
		},
	}
}

// Close implements [anylock.Backend]. The Store lives on.
func (b *Backend) Close() error {
	b.once.Do(func() { close(b.end) })
	return nil
}

func (b *Backend) usable(ctx context.Context) error {
	select {
	case <-b.end:
		return anylock.ErrClosed
	default:
		return context.Cause(ctx)
	}
}
