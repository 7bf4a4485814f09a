package anylock

import (
	"context"
	"errors"
	"time"

	"github.com/anylock/anylock/internal/scheduler"
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
	job   scheduler.Job
}

// undo releases what was granted, or may have been, by a request sent at some time, after a delay.
func (l *Locker) undo(g Grant, sent time.Time, delay time.Duration) {
	l.undoings.Add(&undoing{grant: g, until: sent.Add(g.TTL)}, time.Now().Add(delay), 0)
}

// undoLease releases a lease in the background, unless that is going on already. Its place in the local queue is free.
func (l *Locker) undoLease(lease *Lease, delay time.Duration) {
	l.leave(lease)
	lease.mu.Lock()
	already := lease.undoing
	lease.undoing = true
	lease.mu.Unlock()
	if !already {
		until := time.Now().Add(delay + lease.grant.TTL)
		l.undoings.Add(&undoing{lease: lease, grant: lease.grant, until: until}, time.Now().Add(delay), 0)
	}
}

func (l *Locker) undoBatch(due []*undoing) {
	var batch []*undoing
	var grants []Grant
	var leases []*Lease
	for _, u := range due {
		if u.lease == nil || !u.lease.wasReleased() {
			batch, grants, leases = append(batch, u), append(grants, u.grant), append(leases, u.lease)
		}
	}
	if len(batch) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.cfg.requestTimeout)
	defer cancel()
	for i, err := range l.tellStoreAside(ctx, grants, leases) {
		u := batch[i]
		if err == nil || errors.Is(err, ErrLost) {
			continue
		}
		u.tries++
		again := time.Now().Add(backoff(u.tries, 50*time.Millisecond, time.Second))
		if isUnknown(err) && again.Before(u.until) {
			l.undoings.Add(u, again, 0)
		} else {
			l.notUndone(u, err)
		}
	}
}

// notUndone is the end of an undoing that the store has not confirmed.
func (l *Locker) notUndone(u *undoing, err error) {
	l.cfg.logger.Debug("anylock: could not undo; the lock expires by itself", "backend", l.desc.Name, "name", u.grant.Name, "err", err)
	if u.lease != nil {
		l.reportUnreleased(u.lease, err)
	}
}

func (l *Lease) wasReleased() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.released
}

// settle waits until nothing is going on in the background, or ctx ends.
func (l *Locker) settle(ctx context.Context) {
	l.renewals.Drain(ctx)
	l.background.Wait(ctx)
	l.undoings.Hurry()
	l.undoings.Drain(ctx)
}
