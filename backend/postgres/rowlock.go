package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/anylock/anylock"
)

const (
	sessionMinTTL = 100 * time.Millisecond
	sessionMaxTTL = 24 * 24 * time.Hour // the server counts milliseconds in 31 bits
	sessionBatch  = 100                 // pings at the same time
	// unprovenTime is how long the server keeps a lock that came out of its queue until its session has proven that it is still
	// there, if that is less than its TTL: waiters that have vanished, three behind each other, must not cost the fourth three TTLs.
	unprovenTime = 2 * time.Second
)

// rowLocks keeps a lock as a row that is locked in a transaction as long as the lease. The server ends the transaction when
// it hears nothing for a TTL (idle_in_transaction_session_timeout), so that a holder that has died, stands still or is cut
// off loses the lock as it would anywhere else.
type rowLocks struct {
	*database
	conns   *connections
	holds   holds
	sweeper sweeper
	rowSQL  rowStatements
}

func newRowLocks(d *database, connect connectFunc) *rowLocks {
	return &rowLocks{
		database: d,
		conns:    newConnections(connect, d.config.conns),
		sweeper:  sweeper{database: d, sql: d.config.fill(sweepSQL), more: d.config.fill(sweepRowsSQL)},
		rowSQL:   d.config.rowStatements(),
	}
}

func (r *rowLocks) introduce(ctx context.Context) error { return r.conns.introduce(ctx) }

func (r *rowLocks) describe() anylock.Description {
	return anylock.Description{
		Name:       "postgres",
		Guarantees: sessionGuarantees(),
		MinTTL:     sessionMinTTL, MaxTTL: sessionMaxTTL, MaxBatch: sessionBatch,
	}
}

// sessionGuarantees are those of locks that the server forgets when it stops.
func sessionGuarantees() anylock.Guarantees {
	return anylock.Guarantees{
		Exclusion: anylock.ScopeNode,
		Fencing:   anylock.ScopeNode,
		FIFO:      true,
		Wake:      anylock.WakeQueue,
		Clock:     anylock.ClockStore,
		HoldCost:  anylock.CostConnection,
		Survives:  anylock.HolderCrash | anylock.HolderPartition | oneServer,
	}
}

func (r *rowLocks) acquire(ctx context.Context, req anylock.Request) (anylock.Grant, error) {
	h, err := r.holds.begin(ctx, identity{req.Name, req.ID})
	if err != nil {
		return anylock.Grant{}, err
	}
	if h.session != nil { // a repeated request finds its own lock
		from, err := h.session.prove(ctx)
		grant := h.grant
		grant.From = from
		return grant, err
	}
	defer whenSilent(ctx, func() { r.conns.dropIdle(); r.reconnect() })()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.abandoned, cancel)()
	patient, cancelPatient := r.patient(ctx)
	defer cancelPatient()
	grant, session, err := r.lock(ctx, patient, req)
	if !r.holds.settle(h, grant, session) && err == nil {
		r.conns.drop(session.seize())
		err = anylock.Unavailable(errReleasedMeanwhile)
	}
	if err != nil {
		return anylock.Grant{}, err
	}
	return grant, nil
}

var errReleasedMeanwhile = errors.New("the request was released before it was granted")

// lock takes the lock on a connection that then is the session's. When ctx ends it stops waiting; what it has sent by then
// may still be answered while patient lasts, so that the connection stays good.
func (r *rowLocks) lock(ctx, patient context.Context, req anylock.Request) (anylock.Grant, *session, error) {
	none := func(err error) (anylock.Grant, *session, error) { return anylock.Grant{}, nil, err }
	ttl := wholeMilliseconds(req.TTL)
	for try := 1; ; try++ {
		conn, err := r.conns.take(ctx, patient)
		if err != nil {
			return none(err)
		}
		attempt := rowAttempt{rowLocks: r, conn: conn, req: req, name: r.config.prefix + req.Name, ttl: ttl}
		token, err := attempt.run(ctx, patient)
		if err == nil && ctx.Err() != nil {
			_, _ = conn.Exec(patient, "ROLLBACK")
			err = context.Cause(ctx)
		}
		if err == nil {
			token, proven, err := r.certify(ctx, conn, req, token)
			if err != nil {
				r.conns.drop(conn)
				return none(err)
			}
			session := newSession(conn, ttl, proven, rowTimeout, req.Lost)
			return anylock.Grant{Name: req.Name, ID: req.ID, Token: token, TTL: ttl, From: proven}, session, nil
		}
		reused := conn.reused
		r.conns.give(conn) // somebody else may have it from here on
		switch {
		case ctx.Err() != nil || try >= 4:
			return none(err)
		case sqlState(err) == undefinedTable && try == 1:
			if err := r.createTables(patient); err != nil {
				return none(err)
			}
		case reused && isConnectionError(ctx, err):
			r.conns.dropIdle() // they are dead as well, most likely
		default:
			return none(err)
		}
	}
}

// certify gets the token if it is not known yet, and proves afresh that the lock is held if it came out of the server's
// queue, both at once.
func (r *rowLocks) certify(ctx context.Context, conn *connection, req anylock.Request, token anylock.Token) (anylock.Token, time.Time, error) {
	switch {
	case token > 0:
		return token, conn.taken, nil
	case !req.Wait:
		token, err := r.nextToken(ctx, req, conn)
		return token, conn.taken, err
	}
	type answer struct {
		token anylock.Token
		err   error
	}
	tokens := make(chan answer, 1)
	go func() {
		token, err := r.nextToken(ctx, req, conn)
		tokens <- answer{token, err}
	}()
	from := time.Now()
	_, err := conn.Exec(ctx, fmt.Sprintf("SET LOCAL idle_in_transaction_session_timeout = %d", wholeMilliseconds(req.TTL).Milliseconds()))
	got := <-tokens
	return got.token, from, errors.Join(err, got.err)
}

// rowTimeout holds until the transaction ends. The session's own timeout, see arm, is that of the next lock.
func rowTimeout(d time.Duration) string {
	return fmt.Sprintf("SET LOCAL idle_in_transaction_session_timeout = %d", d.Milliseconds())
}

// watch: the server's queue wakes.
func (r *rowLocks) watch(context.Context, string) (<-chan struct{}, error) { return nil, nil }

func (r *rowLocks) renew(ctx context.Context, grants []anylock.Grant) []anylock.Renewal {
	renewals := make([]anylock.Renewal, len(grants))
	notes := make([]*noted, len(grants))
	var asking sync.WaitGroup
	for i, g := range grants {
		asking.Go(func() {
			h := r.holds.find(of(g))
			if h == nil {
				renewals[i].Err = anylock.ErrLost
				return
			}
			from, err := h.session.prove(ctx)
			renewals[i] = anylock.Renewal{From: from, TTL: h.grant.TTL, Err: err}
			if err == nil {
				notes[i] = h.noted
			}
		})
	}
	asking.Wait()
	r.sweeper.keep(grants, notes)
	return renewals
}

func (r *rowLocks) release(ctx context.Context, grants []anylock.Grant) []error {
	results := make([]error, len(grants))
	var asking sync.WaitGroup
	for i, g := range grants {
		asking.Go(func() { results[i] = r.releaseOne(ctx, g) })
	}
	asking.Wait()
	r.sweeper.sometimes()
	return results
}

func (r *rowLocks) releaseOne(ctx context.Context, g anylock.Grant) error {
	h := r.holds.end(of(g))
	if h == nil {
		return anylock.ErrLost
	}
	session := h.session
	if session == nil {
		select {
		case <-h.settled:
			return nil
		case <-ctx.Done():
			return anylock.Unavailable(context.Cause(ctx))
		}
	}
	// Nothing was written, so there is nothing to commit: a rollback does not wait for the disk.
	err := session.use(ctx, false, func(ctx context.Context) error {
		_, err := session.Exec(ctx, "ROLLBACK")
		return err
	})
	conn := session.seize()
	if err != nil {
		r.conns.drop(conn)
		return err
	}
	r.conns.give(conn)
	return nil
}

func (r *rowLocks) close() {
	r.sweeper.wait()
	for _, session := range r.holds.closeAll() {
		r.conns.drop(session.seize())
	}
	r.conns.close()
	r.database.close()
}

// wholeMilliseconds rounds up to what the server's timeouts can count.
func wholeMilliseconds(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}
