package anylock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

const (
	// pollCap is how long a waiter that can be woken sleeps at most: what a missed wake-up costs.
	pollCap = 5 * time.Second
	// wakeSpread spreads those who were woken by the same message, so that not always the same one comes first.
	wakeSpread = time.Millisecond
	// expirySpread does so for those who wait for the same expiry.
	expirySpread = 5 * time.Millisecond
	// winsAlone is after how many wake-ups in a row that found the lock free a Locker believes that it has no rivals.
	winsAlone = 8
)

// races tells a Locker without rivals, which need not spread its waiters when they are woken. A timer of less than a
// millisecond may take a whole one, which is more than all the rest of a hand-over.
type races struct{ won atomic.Int32 }

// ran notes what a waiter found when it was woken.
func (r *races) ran(won bool) {
	if won {
		r.won.Add(1)
	} else {
		r.won.Store(0)
	}
}

// unrivalled is false now and then for those who have no rivals too: a rival that always comes later would never be seen.
func (r *races) unrivalled() bool { return r.won.Load() >= winsAlone && rand.N(8) > 0 }

// pause waits until it makes sense to ask the store again; n counts the attempts and err is what the last one got.
func (a *acquisition) pause(n int, err error) error {
	held := errors.Is(err, ErrHeld)
	if held && a.wake == nil && !a.deaf && a.desc.Guarantees.Wake == WakeNotify {
		listening, err := a.listen()
		if err != nil {
			return err
		}
		if listening {
			return nil // look again: it may have become free before we listened
		}
	}
	timer := time.NewTimer(a.delay(n, held))
	defer timer.Stop()
	var wake <-chan struct{}
	if held {
		wake = a.wake
	}
	for {
		select {
		case <-timer.C:
			return nil
		case _, open := <-wake:
			wake = nil
			if !open { // against the contract: as good as none
				a.wake, a.deaf = nil, true
			}
			a.woken = true
			if a.races.unrivalled() {
				return nil
			}
			timer.Reset(rand.N(wakeSpread))
		case <-a.draining:
			return ErrClosed
		case <-a.ctx.Done():
			if !held {
				return fmt.Errorf("%w; before that: %w", cancelled(a.ctx, nil), err)
			}
			return cancelled(a.ctx, a.held)
		}
	}
}

// delay is how long to wait without a wake-up.
func (a *acquisition) delay(n int, held bool) time.Duration {
	if !held {
		return backoff(n, 20*time.Millisecond, 500*time.Millisecond)
	}
	delay := pollCap
	if a.wake == nil {
		delay = backoff(n, 4*time.Millisecond, 250*time.Millisecond)
	}
	if free := a.held.RetryAfter; free > 0 {
		delay = min(delay, free+time.Millisecond+rand.N(expirySpread))
	}
	return delay
}

// backoff is the delay after attempt n, counted from 0: half as long again each time, up to most, and jittered by a
// quarter to both sides.
func backoff(n int, first, most time.Duration) time.Duration {
	d := first
	for range n {
		if d += d / 2; d >= most {
			d = most
			break
		}
	}
	return d*3/4 + rand.N(d/2)
}

// listen asks the backend for wake-ups. It reports whether there will be any.
func (a *acquisition) listen() (bool, error) {
	type watch struct {
		wake <-chan struct{}
		stop context.CancelFunc
	}
	w, err := ask(a.ctx, a.Locker, false, func(ctx context.Context) (watch, error) {
		listening, stop := context.WithCancel(a.ctx) // the wake-ups outlive the request for them
		inTime := context.AfterFunc(ctx, stop)
		wake, err := a.backend.Watch(listening, a.name)
		if !inTime() && err == nil {
			err = errNoAnswer
		}
		if err != nil {
			stop()
		}
		return watch{wake, stop}, err
	}, func(late watch, _ error) { late.stop() })
	switch {
	case errors.Is(err, ErrInvalid), errors.Is(err, ErrClosed):
		return false, err
	case err != nil:
		return false, nil //nolint:nilerr // the waiter polls, and tries to listen again
	case w.wake == nil:
		w.stop()
		a.deaf = true
		return false, nil
	}
	a.wake, a.stopWaking = w.wake, w.stop
	return true, nil
}

// cancelled is the error of a wait that ended with its context: it matches the context's error and, if somebody is known
// to have the lock, ErrHeld.
func cancelled(ctx context.Context, held *HeldError) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, err) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	if held != nil {
		return fmt.Errorf("gave up waiting: %w (%w)", err, held)
	}
	return err
}
