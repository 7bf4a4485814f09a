package anylock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/anylock/anylock/internal/bootclock"
	"github.com/anylock/anylock/internal/scheduler"
)

// Lease is one acquisition of a lock. All methods may be called from many goroutines. A nil Lease is not held: its
// methods report [ErrInvalid].
//
// It may be trusted until its trust window ends, which only successful renewals move; then Done is closed and Err is not
// nil, whether or not the store can be reached. After a pause of the process ask Err, which compares the clock before
// it answers. Even so a holder can be paused between asking and acting: what must never happen twice needs the Token,
// checked where the data lives.
type Lease struct {
	locker *Locker
	grant  Grant
	holder string    // its label
	since  time.Time // when it was granted
	cap    time.Time // no renewal after this; zero: no limit
	margin time.Duration

	mu       sync.Mutex
	window   window
	ended    error         // why it ended; nil: it has not, as far as was looked
	lastErr  error         // of the renewals since the last good one
	done     chan struct{} // made when asked for
	contexts map[context.Context]context.CancelCauseFunc
	timer    *time.Timer   // ends it with its window
	renewing int           // renewals that are under way
	idle     chan struct{} // closed when there are none
	left     bool          // it has given up its place in the local queue
	started  bool          // the core knows the grant
	unborn   error         // why the grant ended before that

	releasing chan struct{} // closed when the release that is under way is over
	sent      bool          // a release was sent while the window was open
	released  bool          // the store said that it does not have it any more
	undoing   bool          // it is released in the background
	told      bool          // what a hook is told of its end was decided
	result    error         // of the release, once released

	renewal scheduler.Job
}

// Name returns the lock's name.
func (l *Lease) Name() string {
	if l == nil {
		return ""
	}
	return l.grant.Name
}

// Token returns the fencing token of this acquisition, zero for a nil Lease.
func (l *Lease) Token() Token {
	if l == nil {
		return 0
	}
	return l.grant.Token
}

// TTL returns what the store really granted, which may be more than was asked for.
func (l *Lease) TTL() time.Duration {
	if l == nil {
		return 0
	}
	return l.grant.TTL
}

// Deadline returns the end of the trust window: the latest time until which the lease may be trusted unless it is renewed
// before. It is the zero time for a nil Lease.
func (l *Lease) Deadline() time.Time {
	if l == nil {
		return time.Time{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.window.end.Add(-bootclock.Between(l.window.slept, bootclock.Suspended()))
}

// Err returns nil while the lease may be trusted. After that it returns an error that matches [ErrLost], [ErrReleased]
// or [ErrClosed], always the same. It looks at the clock and does no I/O.
func (l *Lease) Err() error {
	if l == nil {
		return errNilLease("check")
	}
	l.mu.Lock()
	ended, over := l.ended, l.window.left() <= 0
	l.mu.Unlock()
	if ended == nil && over {
		return l.end(l.overdue())
	}
	return ended
}

// Done returns a channel that is closed when the lease ends for any reason, at the end of its trust window at the latest.
// It is nil for a nil Lease.
func (l *Lease) Done() <-chan struct{} {
	if l == nil {
		return nil
	}
	_ = l.Err() // the clock may have passed the window while the process was stopped
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done == nil {
		l.done = make(chan struct{})
		if l.ended != nil {
			close(l.done)
		}
	}
	return l.done
}

// Context returns a copy of parent that is also cancelled when the lease ends; its [context.Cause] is then what Err
// returns. Its Err looks at the clock as Lease.Err does. Call the cancel function when the work is done.
func (l *Lease) Context(parent context.Context) (context.Context, context.CancelFunc) {
	inner, cancel := context.WithCancelCause(parent)
	if l == nil {
		cancel(errNilLease("context"))
		return inner, func() {}
	}
	ctx := leaseContext{inner, parent, l}
	if ended := l.Err(); ended != nil {
		cancel(ended)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil {
		cancel(l.ended)
	} else {
		if l.contexts == nil {
			l.contexts = make(map[context.Context]context.CancelCauseFunc)
		}
		l.contexts[inner] = cancel
	}
	return ctx, func() {
		l.mu.Lock()
		delete(l.contexts, inner)
		l.mu.Unlock()
		cancel(nil)
	}
}

// leaseContext looks at the clock before it says that all is well.
type leaseContext struct {
	context.Context
	parent context.Context
	lease  *Lease
}

type leaseContextKey struct{}

func (c leaseContext) Value(key any) any {
	if key == (leaseContextKey{}) {
		return c
	}
	return c.Context.Value(key)
}

func (c leaseContext) Err() error {
	_ = c.lease.Err()
	return c.Context.Err()
}

// Renew asks the store now, as before a risky step, and moves the trust window if it agrees. It costs one round trip.
// An error that matches [ErrLost] means that the lease has ended. Any other means that the store did not say: the lease
// may still be trusted until its Deadline.
func (l *Lease) Renew(ctx context.Context) error {
	if l == nil {
		return errNilLease("renew")
	}
	if err := l.Err(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return l.locker.error("renew", l.grant.Name, cancelled(ctx, nil))
	}
	if l.capped(time.Now()) {
		return l.locker.error("renew", l.grant.Name, ErrMaxHold)
	}
	if !l.beginRenewal() {
		return l.Err()
	}
	bounded, cancel := context.WithTimeout(ctx, l.locker.cfg.requestTimeout)
	defer cancel()
	err := l.locker.renew(bounded, []*Lease{l})[0]
	if ended := l.Err(); ended != nil {
		return ended
	}
	if err != nil && ctx.Err() != nil {
		err = cancelled(ctx, nil)
	}
	if err != nil {
		return l.locker.error("renew", l.grant.Name, err)
	}
	return nil
}

// Release gives the lock back. The lease ends here and now in any case; the error tells what became of the lock:
//
//   - nil: it is free, or was already by an earlier Release.
//   - [ErrLost]: the lease had been lost before; somebody else may have had the lock while it was thought to be held.
//   - [ErrClosed]: the Locker was closed before, and has released it.
//   - [ErrUnavailable], or ctx's own error: the store did not confirm it. The release is tried again in the background
//     until the lock has expired in the store; calling Release again is harmless and waits for an answer.
//
// ctx bounds the wait, not the release: even if it has ended the store is told. If it comes from the lease's own Context,
// the context that this was made from counts. It costs one round trip.
func (l *Lease) Release(ctx context.Context) error {
	if l == nil {
		return errNilLease("release")
	}
	if c, ok := ctx.Value(leaseContextKey{}).(leaseContext); ok && c.lease == l {
		ctx = c.parent // the lease's own context ends with it, here and now
	}
	_ = l.end(l.locker.error("hold", l.grant.Name, ErrReleased))
	if wait := l.renewalsOver(); wait != nil {
		select {
		case <-wait:
		case <-ctx.Done(): // the store must be told all the same
		}
	}
	return l.locker.release(ctx, l)
}

// renewalsOver returns a channel that is closed when no renewal is under way, or nil if none is.
func (l *Lease) renewalsOver() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.renewing > 0 && l.idle == nil {
		l.idle = make(chan struct{})
	}
	return l.idle
}

// end ends the lease because of err, unless it has ended already, and returns why it ended.
func (l *Lease) end(err error) error {
	l.mu.Lock()
	if l.ended != nil {
		defer l.mu.Unlock()
		return l.ended
	}
	if l.window.leftLately() <= 0 && !errors.Is(err, ErrLost) {
		err = l.overdueLocked() // it was over before anybody said so
	}
	l.ended = err
	lost := errors.Is(err, ErrLost)
	report := lost && l.claimReport()
	if l.done != nil {
		close(l.done)
	}
	contexts := l.contexts
	l.contexts = nil
	if l.timer != nil {
		l.timer.Stop()
	}
	l.mu.Unlock()

	for _, cancel := range contexts {
		cancel(err)
	}
	l.locker.renewals.Remove(l)
	if report {
		l.locker.report(l, l.locker.cfg.hooks.Lost, err)
	}
	if lost {
		l.locker.lost(l, err)
	}
	return err
}

// claimReport reports whether it is for the caller, who has the mutex, to tell a hook how the lease has ended: that is
// decided once, together with why it ended.
func (l *Lease) claimReport() bool {
	first := !l.told
	l.told = true
	return first
}

// overdue is the loss of a lease whose trust window is over.
func (l *Lease) overdue() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.overdueLocked()
}

func (l *Lease) overdueLocked() error {
	var cause error
	capped := l.capped(l.window.end)
	switch {
	case capped && l.lastErr != nil:
		cause = fmt.Errorf("%w, and renewals had failed before: %w", ErrMaxHold, l.lastErr)
	case capped:
		cause = ErrMaxHold
	case l.lastErr != nil:
		cause = fmt.Errorf("its trust window ended without a successful renewal, the last of which failed: %w", l.lastErr)
	default:
		cause = errors.New("its trust window ended without a renewal")
	}
	return l.locker.error("hold", l.grant.Name, classify(ErrLost, cause))
}

// capped reports whether renewals have ended at time t because of WithMaxHold.
func (l *Lease) capped(t time.Time) bool { return !l.cap.IsZero() && !t.Before(l.cap) }

// expire is called when the window should be over, and waits on if it was moved meanwhile.
func (l *Lease) expire() {
	l.mu.Lock()
	left := l.window.left()
	if l.ended == nil && left > 0 {
		l.timer.Reset(left)
	}
	l.mu.Unlock()
	if left <= 0 {
		_ = l.Err()
	}
}

// lostInStore is the backend's word that the grant has ended.
func (l *Lease) lostInStore(err error) {
	if !errors.Is(err, ErrLost) {
		err = classify(ErrLost, err)
	}
	if err == nil {
		err = ErrLost
	}
	l.mu.Lock()
	started := l.started
	if !started {
		l.unborn = err
	}
	l.mu.Unlock()
	if started {
		_ = l.end(l.locker.error("hold", l.grant.Name, fmt.Errorf("the store ended it: %w", err)))
	}
}

// beginRenewal counts a renewal that is about to leave; false: the lease has ended.
func (l *Lease) beginRenewal() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil {
		return false
	}
	l.renewing++
	return true
}

// endRenewal stops counting a renewal that came back or was left behind.
func (l *Lease) endRenewal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.renewing--; l.renewing == 0 && l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}

// renewed moves the window. slept is bootclock.Suspended() from before the request left.
func (l *Lease) renewed(r Renewal, slept time.Duration) {
	if r.TTL <= 0 {
		r.TTL = l.grant.TTL
	}
	if now := time.Now(); r.From.After(now) {
		r.From = now
	}
	w := l.windowOf(r.From, r.TTL, slept)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastErr = nil
	if w.end.After(l.window.end) {
		l.window = w
	}
}

// windowOf is the trust window of a grant or renewal; slept is bootclock.Suspended() from before its request left.
func (l *Lease) windowOf(from time.Time, ttl, slept time.Duration) window {
	return window{end: from.Add(ttl - l.margin), slept: slept}
}

func (l *Lease) renewFailed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastErr = err
}

func errNilLease(op string) error {
	return &Error{Op: op, Err: Invalidf("the lease is nil; check the error of the acquire first")}
}
