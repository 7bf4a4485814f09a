package anylock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// release tells the store that a lease, which has ended here, is over.
func (l *Locker) release(ctx context.Context, lease *Lease) error {
	for {
		lease.mu.Lock()
		if lease.released {
			defer lease.mu.Unlock()
			return lease.result
		}
		other := lease.releasing
		if other == nil {
			lease.releasing = make(chan struct{})
			lease.mu.Unlock()
			return l.releaseNow(ctx, lease)
		}
		lease.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return l.error("release", lease.grant.Name, cancelled(ctx, nil))
		}
	}
}

func (l *Locker) releaseNow(ctx context.Context, lease *Lease) error {
	sent := time.Now()
	_, err := ask(ctx, l, true, func(ctx context.Context) (struct{}, error) {
		again := lease.sending()
		err := l.backend.Release(ctx, []Grant{lease.grant})[0]
		l.answered(lease, err, again)
		return struct{}{}, err
	}, nil)
	lease.mu.Lock()
	close(lease.releasing)
	lease.releasing = nil
	released, result, ended := lease.released, lease.result, lease.ended
	lease.mu.Unlock()
	if released {
		return result
	}
	l.undoLease(lease)
	switch {
	case !errors.Is(err, errNoAnswer):
		err = Unavailable(err)
	case ctx.Err() != nil:
		err = fmt.Errorf("%w; the release goes on in the background", cancelled(ctx, nil))
	default:
		err = Unavailable(fmt.Errorf("no answer for %v; the release is tried again in the background", time.Since(sent).Round(time.Millisecond)))
	}
	if !errors.Is(ended, ErrReleased) { // what the caller must know comes first
		err = fmt.Errorf("%w; and its release failed: %w", ended, err)
	}
	return l.error("release", lease.grant.Name, err)
}

// sending notes that a release is about to be sent, and reports whether one was sent before while the window was open:
// since nobody else can have had the lock then, it was that one if the store does not have the lease any more.
func (l *Lease) sending() (again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	open := l.window.leftLately() > 0
	again = l.sent && open
	l.sent = l.sent || open
	return again
}

// answered takes the store's answer to a release.
func (l *Locker) answered(lease *Lease, err error, again bool) {
	gone := errors.Is(err, ErrLost)
	if err != nil && !gone {
		return
	}
	lease.mu.Lock()
	if lease.released {
		lease.mu.Unlock()
		return
	}
	lease.released = true
	held := Event{Name: lease.grant.Name, Token: lease.grant.Token, Elapsed: time.Since(lease.since)}
	lost := false
	switch {
	case !errors.Is(lease.ended, ErrReleased):
		lease.result = lease.ended
		held.Err = lease.result
	case gone && !again:
		lost = true
		lease.result = l.error("release", lease.grant.Name, fmt.Errorf("the store did not have it any more: %w", err))
		held.Err = lease.result
	}
	lease.mu.Unlock()
	l.leave(lease)
	switch {
	case lost:
		l.alarms.lost.warn(l.alarms.logger, "anylock: lease was lost before its release", "name", held.Name)
		l.tell(l.cfg.hooks.Lost, held)
	case !errors.Is(held.Err, ErrLost): // of which the hook has been told
		l.call(l.cfg.hooks.Released, held)
	}
}

// leave gives up a lease's place in the local queue, once.
func (l *Locker) leave(lease *Lease) {
	lease.mu.Lock()
	left := lease.left
	lease.left = true
	lease.mu.Unlock()
	if !left {
		l.queue.leave(lease.grant.Name)
	}
}

// lost is called once for a lease that ended without being released.
func (l *Locker) lost(lease *Lease, err error) {
	held := time.Since(lease.since)
	l.alarms.lost.warn(l.alarms.logger, "anylock: lease was lost", "name", lease.grant.Name, "held", held, "err", err)
	l.tell(l.cfg.hooks.Lost, Event{Name: lease.grant.Name, Token: lease.grant.Token, Elapsed: held, Err: err})
	l.leave(lease)
	// Its holder may need the margin to stop; after that let the backend forget it.
	l.undoings.add(&undoing{lease: lease, grant: lease.grant, until: time.Now().Add(2 * lease.grant.TTL)}, time.Now().Add(lease.margin), 0)
}

// releaseAll releases leases in batches.
func (l *Locker) releaseAll(ctx context.Context, leases []*Lease) error {
	var failed int
	var first error
	for len(leases) > 0 {
		batch := leases[:min(len(leases), max(l.desc.MaxBatch, 1))]
		leases = leases[len(batch):]
		for _, err := range l.releaseBatch(ctx, batch) {
			if err != nil && !errors.Is(err, ErrLost) {
				failed++
				first = errors.Join(first, err)
			}
		}
	}
	if failed == 0 {
		return nil
	}
	return Unavailable(fmt.Errorf("%d locks could not be released and stay until they expire: %w", failed, first))
}

// releaseBatch releases leases that have ended, at most MaxBatch of them, and returns an error for each.
func (l *Locker) releaseBatch(ctx context.Context, leases []*Lease) []error {
	grants := make([]Grant, len(leases))
	again := make([]bool, len(leases))
	for i, lease := range leases {
		grants[i], again[i] = lease.grant, lease.sending()
	}
	ctx, cancel := context.WithTimeout(ctx, l.cfg.requestTimeout)
	defer cancel()
	return l.releaseGrants(ctx, grants, func(i int, err error) { l.answered(leases[i], err, again[i]) })
}

// releaseGrants calls the backend aside. answered is told of each answer, also of late ones.
func (l *Locker) releaseGrants(ctx context.Context, grants []Grant, answered func(int, error)) []error {
	errs, ok := aside(ctx, &l.background, nil, nil, func() []error {
		errs := l.backend.Release(ctx, grants)
		for i, err := range errs {
			answered(i, err)
		}
		return errs
	}, func([]error) {})
	if ok && len(errs) == len(grants) {
		return errs
	}
	errs = make([]error, len(grants))
	for i := range errs {
		errs[i] = Unavailable(errors.New("no answer to the release"))
	}
	return errs
}
