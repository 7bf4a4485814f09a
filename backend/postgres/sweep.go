package postgres

import (
	"context"
	_ "embed"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/anylock/anylock"
)

//go:embed sql/sweep.sql
var sweepSQL string

//go:embed sql/sweep_rows.sql
var sweepRowsSQL string

//go:embed sql/keep.sql
var keepSQL string

const (
	sweepBatch   = 1000
	sweepTimeout = 10 * time.Second
)

// sweeper deletes what has not been used for the retention, so that names made at run time leave nothing behind. It works
// after releases, some four times a retention, and in one client at a time mostly.
type sweeper struct {
	*database
	sql     string
	more    string       // of the second table; empty: there is none
	next    atomic.Int64 // in nanoseconds since 1970, when to sweep again
	running sync.WaitGroup
	closing atomic.Bool
}

// sometimes sweeps in the background if it is time to.
func (s *sweeper) sometimes() {
	now := time.Now().UnixNano()
	next := s.next.Load()
	if now < next {
		return
	}
	interval := s.config.retention / 4
	wait := interval*3/4 + rand.N(interval/2)
	if !s.next.CompareAndSwap(next, now+int64(wait)) || next == 0 && rand.N(16) > 0 { // a process that starts has brothers
		return
	}
	s.running.Go(func() {
		ctx, cancel := context.WithTimeout(s.life, sweepTimeout)
		defer cancel()
		_, _ = s.sweep(ctx) // whoever comes next tries again
	})
}

// sweep returns how many it has deleted.
func (s *sweeper) sweep(ctx context.Context) (total int64, err error) {
	for _, sql := range []string{s.more, s.sql} {
		for n := int64(sweepBatch); sql != "" && n == sweepBatch && err == nil && (total == 0 || !s.closing.Load()); total += n {
			n = 0
			err = s.run(ctx, statement{
				sql:  sql,
				args: []any{s.config.retention.Microseconds(), int64(sweepBatch)},
				each: func(row pgx.CollectableRow) error { return row.Scan(&n) },
			})
		}
	}
	return total, err
}

// noted is when the table was told last that a lock is held, in nanoseconds since 1970. Only modes whose lock is a session's
// need it: mode lease renews in the table.
type noted struct{ atomic.Int64 }

func notedNow() *noted {
	n := new(noted)
	n.Store(time.Now().UnixNano())
	return n
}

// inUse is for how long the table should take a lock with this TTL for held: until it must have been renewed and noted again.
func (c config) inUse(ttl time.Duration) time.Duration { return ttl + c.noteAfter() }

func (c config) noteAfter() time.Duration { return c.retention / 4 }

// keep notes in the background that locks are held, where it is time to. For a lock held for longer than the retention that
// is what keeps its counter, and afterwards for a whole retention more.
func (s *sweeper) keep(grants []anylock.Grant, notes []*noted) {
	now := time.Now().UnixNano()
	var names []string
	var times []int64
	var due []*noted
	for i, n := range notes {
		if n == nil {
			continue
		}
		if last := n.Load(); now-last >= int64(s.config.noteAfter()) && n.CompareAndSwap(last, now) {
			names = append(names, s.config.prefix+grants[i].Name)
			times = append(times, s.config.inUse(grants[i].TTL).Microseconds())
			due = append(due, n)
		}
	}
	if len(due) == 0 {
		return
	}
	s.running.Go(func() {
		ctx, cancel := context.WithTimeout(s.life, sweepTimeout)
		defer cancel()
		if s.run(ctx, statement{sql: s.config.fill(keepSQL), args: []any{names, times}, repeatable: true}) != nil {
			for _, n := range due {
				n.Store(0) // the next renewal tries again
			}
		}
	})
}

// wait lets the statement under way finish, for a moment: of processes that live shortly none would ever get that far.
func (s *sweeper) wait() {
	s.closing.Store(true)
	done := make(chan struct{})
	go func() {
		s.running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(closePatience):
	}
	s.end()
	<-done
}
