package anylock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/anylock/anylock/internal/background"
)

// release tells the store that a lease, which has ended here, is over.
func (l *Locker) release(ctx context.Context, lease *Lease) error {
	l.background.Begin()
	defer l.background.Done()
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
	defer func() {
		lease.mu.Lock()
		defer lease.mu.Unlock()
		close(lease.releasing)
		lease.releasing = nil
	}()
	places := l.admission.releases
	err := l.admission.enter(ctx, places, nil, l.cfg.requestTimeout)
	sent := time.Now()
	if err == nil {
		_, err = ask(ctx, l, true, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, l.tellStore(ctx, []Grant{lease.grant}, []*Lease{lease})[0]
		}, nil)
		l.admission.leave(places)
		if err == nil || !isUnknown(err) {
			l.admission.note()
		}
	}
	lease.mu.Lock()
	released, result, over := lease.released, lease.result, lease.ended
	lease.mu.Unlock()
	if released {
		return result
	}
	l.undoLease(lease, undoPatience)
	switch {
	case !errors.Is(err, errNoAnswer):
		err = Unavailable(err)
	case ctx.Err() != nil:
		err = fmt.Errorf("%w; the release goes on in the background", cancelled(ctx, nil))
	default:
		err = Unavailable(fmt.Errorf("no answer for %v; the release is tried again in the background", time.Since(sent).Round(time.Millisecond)))
	}
	if !errors.Is(over, ErrReleased) { // what the caller must know comes first
		err = fmt.Errorf("%w; and its release failed: %w", over, &cause{err})
	}
	return l.error("release", lease.grant.Name, err)
}

// tellStore makes one call of the backend's Release and takes its answers. leases are those of the grants, nil where
// nobody has one.
func (l *Locker) tellStore(ctx context.Context, grants []Grant, leases []*Lease) []error {
	again := make([]bool, len(leases))
	for i, lease := range leases {
		again[i] = lease != nil && lease.sending()
	}
	errs := l.backend.Release(ctx, grants)
	if len(errs) != len(grants) {
		err := fmt.Errorf("the backend answered %d of %d releases; report this to whoever wrote it", len(errs), len(grants))
		errs = slices.Repeat([]error{Unavailable(err)}, len(grants))
	}
	for i, lease := range leases {
		if lease != nil {
			l.answered(lease, errs[i], again[i])
		}
	}
	return errs
}

// tellStoreAside is tellStore for a batch in the background. Answers that come after ctx has ended count all the same.
func (l *Locker) tellStoreAside(ctx context.Context, grants []Grant, leases []*Lease) []error {
	errs, ok := background.Call(ctx, &l.background, nil, nil, func() []error { return l.tellStore(ctx, grants, leases) }, func([]error) {})
	if !ok {
		errs = slices.Repeat([]error{Unavailable(errors.New("no answer to the release"))}, len(grants))
	}
	return errs
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
	hook, lost := l.cfg.hooks.Released, false
	switch {
	case !errors.Is(lease.ended, ErrReleased):
		lease.result = lease.ended
	case gone && !again:
		hook, lost = l.cfg.hooks.Lost, true
		lease.result = l.error("release", lease.grant.Name, fmt.Errorf("the store did not have it any more: %w", err))
	}
	result, report := lease.result, lease.claimReport()
	lease.mu.Unlock()
	if report {
		l.report(lease, hook, result)
	}
	l.leave(lease)
	if lost {
		l.troubles.lost.Warn(l.troubles.logger, "anylock: lease was lost before its release", "name", lease.grant.Name)
	}
}

// report tells a hook how a lease has ended. Whoever calls it has claimed that.
func (l *Locker) report(lease *Lease, hook func(Event), err error) {
	l.tell(hook, Event{Name: lease.grant.Name, Token: lease.grant.Token, Elapsed: time.Since(lease.since), Err: err})
}

// reportUnreleased tells the hook that a release was given up, unless one was told of the lease already.
func (l *Locker) reportUnreleased(lease *Lease, err error) {
	lease.mu.Lock()
	report := lease.claimReport()
	lease.mu.Unlock()
	if report {
		l.report(lease, l.cfg.hooks.Released, Unavailable(err))
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
	// Its holder may need the margin to stop; after that let the backend forget it.
	l.undoLease(lease, lease.margin)
	l.troubles.lost.Warn(l.troubles.logger, "anylock: lease was lost", "name", lease.grant.Name, "held", held, "err", err)
}
