package anylock

import (
	"context"
	"errors"
	"time"
)

// undoPatience is how long the undoing of an attempt waits for the attempt's own answer.
const undoPatience = 200 * time.Millisecond

// undoing is a release that goes on in the background until the store has answered or the lock has expired there: of
// an attempt whose outcome is unknown, or of a lease whose release failed.
type undoing struct {
	grant Grant
	lease *Lease // nil: nobody has it
	until time.Time
	tries int
	job   job
}

// undo releases what was granted, or may have been, by a request sent at some time, after a delay.
func (l *Locker) undo(g Grant, sent time.Time, delay time.Duration) {
	l.undoings.add(&undoing{grant: g, until: sent.Add(g.TTL)}, time.Now().Add(delay), 0)
}

// undoLease releases a lease in the background.
func (l *Locker) undoLease(lease *Lease) {
	l.leave(lease)
	l.undoings.add(&undoing{lease: lease, grant: lease.grant, until: time.Now().Add(lease.grant.TTL)}, time.Now().Add(undoPatience), 0)
}

func (l *Locker) undoBatch(due []*undoing) {
	var batch []*undoing
	var grants []Grant
	for _, u := range due {
		if u.lease == nil || !u.lease.wasReleased() {
			batch, grants = append(batch, u), append(grants, u.grant)
		}
	}
	if len(batch) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.cfg.requestTimeout)
	defer cancel()
	errs := l.releaseGrants(ctx, grants, func(i int, err error) {
		if lease := batch[i].lease; lease != nil {
			l.answered(lease, err, lease.sending())
		}
	})
	for i, u := range batch {
		err := errs[i]
		if err == nil || errors.Is(err, ErrLost) || errors.Is(err, ErrInvalid) || errors.Is(err, ErrClosed) {
			continue
		}
		u.tries++
		if again := time.Now().Add(backoff(u.tries, 50*time.Millisecond, time.Second)); again.Before(u.until) {
			l.undoings.add(u, again, 0)
		} else {
			l.cfg.logger.Debug("anylock: could not undo; the lock expires by itself", "backend", l.desc.Name, "name", u.grant.Name, "err", err)
			if u.lease != nil && errors.Is(u.lease.Err(), ErrReleased) {
				l.call(l.cfg.hooks.Released, Event{Name: u.grant.Name, Token: u.grant.Token, Elapsed: time.Since(u.lease.since), Err: Unavailable(err)})
			}
		}
	}
}

func (l *Lease) wasReleased() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.released
}

// settle waits until nothing is going on in the background, or ctx ends.
func (l *Locker) settle(ctx context.Context) {
	l.renewals.drain(ctx)
	l.background.wait(ctx)
	l.undoings.hurry()
	l.undoings.drain(ctx)
}
