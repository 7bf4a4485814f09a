package anylock

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/anylock/anylock/internal/scheduler"
)

const (
	// undoPatience is how long the undoing of an attempt waits for the attempt's own answer.
	undoPatience = 200 * time.Millisecond
	// mostUndoings is how many attempts without an answer are remembered: an outage in which more fail leaves the oldest
	// to their expiry.
	mostUndoings = 4096
)

// undoing is a release that goes on in the background until the store has answered or the lock has expired there: of
// an attempt whose outcome is unknown, or of a lease whose release failed. Any error is tried again, since what may be
// granted must not stay because of one that passes.
type undoing struct {
	grant Grant
	lease *Lease // nil: nobody has it
	until time.Time
	tries int
	err   error         // of the last try
	place *list.Element // among those that go on; nil: it is over
	job   scheduler.Job
}

// undoings are those that go on.
type undoings struct {
	scheduler.Scheduler[*undoing]

	mu       sync.Mutex
	attempts list.List // of *undoing without a lease, the oldest first
	leases   list.List // of *undoing with one: no more than there were leases
}

func (s *undoings) listOf(u *undoing) *list.List {
	if u.lease == nil {
		return &s.attempts
	}
	return &s.leases
}

// begin schedules an undoing. It returns one that is given up for it, if there are too many.
func (s *undoings) begin(u *undoing, delay time.Duration) (dropped *undoing) {
	s.mu.Lock()
	u.place = s.listOf(u).PushBack(u)
	if s.attempts.Len() > mostUndoings {
		dropped = s.attempts.Remove(s.attempts.Front()).(*undoing)
		dropped.place = nil
	}
	s.mu.Unlock()
	s.Add(u, time.Now().Add(delay), 0)
	if dropped != nil {
		s.Remove(dropped)
	}
	return dropped
}

// failed notes the error of a try, and reports whether there will be another.
func (s *undoings) failed(u *undoing, err error) (again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u.place == nil {
		return false
	}
	u.err = err
	u.tries++
	delay := backoff(u.tries, 50*time.Millisecond, time.Second)
	if errors.Is(err, ErrClosed) {
		return true // in vain, but it is left, and Close says so
	}
	if !time.Now().Add(delay).Before(u.until) {
		return false
	}
	s.Add(u, time.Now().Add(delay), 0) // not if they were ended: then it is left
	return true
}

// over ends an undoing, and reports whether it was not over before.
func (s *undoings) over(u *undoing) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u.place == nil {
		return false
	}
	s.listOf(u).Remove(u.place)
	u.place = nil
	return true
}

// end stops them all and returns those whose locks may still be in the store.
func (s *undoings) end() (left []*undoing) {
	s.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, l := range []*list.List{&s.leases, &s.attempts} {
		for e := l.Front(); e != nil; e = e.Next() {
			u := e.Value.(*undoing)
			u.place = nil
			if now.Before(u.until) {
				left = append(left, u)
			}
		}
		l.Init()
	}
	return left
}

// undo releases what was granted, or may have been, by a request that the store may have handled since then at the
// latest, after a delay.
func (l *Locker) undo(g Grant, handled time.Time, delay time.Duration) {
	l.beginUndoing(&undoing{grant: g, until: handled.Add(g.TTL)}, delay)
}

// undoLease releases a lease in the background, unless that is going on already. Its place in the local queue is free.
func (l *Locker) undoLease(lease *Lease, delay time.Duration) {
	l.leave(lease)
	lease.mu.Lock()
	already := lease.undoing
	lease.undoing = true
	lease.mu.Unlock()
	if !already {
		l.beginUndoing(&undoing{lease: lease, grant: lease.grant, until: time.Now().Add(delay + lease.grant.TTL)}, delay)
	}
}

func (l *Locker) beginUndoing(u *undoing, delay time.Duration) {
	if dropped := l.undoings.begin(u, delay); dropped != nil {
		l.notUndone(dropped, errors.New("too many attempts have had no answer"))
	}
}

func (l *Locker) undoBatch(due []*undoing) {
	var batch []*undoing
	var grants []Grant
	var leases []*Lease
	for _, u := range due {
		if u.lease != nil && u.lease.wasReleased() {
			l.undoings.over(u)
			continue
		}
		batch, grants, leases = append(batch, u), append(grants, u.grant), append(leases, u.lease)
	}
	if len(batch) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.cfg.requestTimeout)
	defer cancel()
	for i, err := range l.tellStoreAside(ctx, grants, leases) {
		u := batch[i]
		switch {
		case err == nil || errors.Is(err, ErrLost):
			l.undoings.over(u)
		case !l.undoings.failed(u, err) && l.undoings.over(u):
			l.notUndone(u, err)
		}
	}
}

// notUndone is the end of an undoing that the store has not confirmed.
func (l *Locker) notUndone(u *undoing, err error) {
	if u.lease != nil {
		l.reportUnreleased(u.lease, err)
	}
	l.cfg.logger.Debug("anylock: could not undo; the lock expires by itself", "backend", l.desc.Name, "name", u.grant.Name, "err", err)
}

func (l *Lease) wasReleased() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.released
}
