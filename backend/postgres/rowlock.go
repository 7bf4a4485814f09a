package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/anylock/anylock"
)

const (
	sessionMinTTL = 100 * time.Millisecond
	sessionMaxTTL = 24 * 24 * time.Hour // the server counts milliseconds in 31 bits
	sessionBatch  = 100                 // pings at the same time

	// insertPatience bounds how long a try waits for a transaction that is just making the row: one of LockTx, that is.
	insertPatience = "50ms"
	// sweepMoment is how long the sweeper has a row.
	sweepMoment = 10 * time.Millisecond
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

// rowStatements are the texts that depend on the configuration. All but count have one argument, or begin with it: the name.
type rowStatements struct {
	count               string // a token, if the row is free
	version             string // the last token
	try, wait           string // the own row
	tryOther, waitOther string // the adopted row; empty: there is none
	lookOther           string // whether it is there, and how it is spelled
	look                string // whether it is there, and may be swept; $2 is the retention in microseconds
	insert              string
}

// sweepable is the condition of sql/sweep_rows.sql.
const sweepable = "created_at < clock_timestamp() - $2::bigint * interval '1 microsecond' AND NOT EXISTS (SELECT FROM {locks} AS l " +
	"WHERE l.name = {rows}.name AND l.expires_at > clock_timestamp() - $2::bigint * interval '1 microsecond')"

func (c config) rowStatements() rowStatements {
	s := rowStatements{
		wait:   c.fill("SELECT 1 FROM {rows} WHERE name = $1 FOR UPDATE"),
		look:   c.fill("SELECT " + sweepable + " FROM {rows} WHERE name = $1"),
		insert: c.fill("INSERT INTO {rows} (name) VALUES ($1) ON CONFLICT (name) DO NOTHING"),
	}
	s.count = c.tokenStatement("EXISTS (SELECT FROM {rows} WHERE name = $1::text FOR UPDATE SKIP LOCKED)")
	s.version = c.fill("SELECT version FROM {locks} WHERE name = $1")
	s.try = s.wait + " SKIP LOCKED" // and not NOWAIT, which would put an ERROR into the server's log for each refusal
	if a := c.adopt; a != nil {
		// FOR KEY SHARE excludes FOR UPDATE, and lets the application update the row from its own connections.
		rows := " FROM " + a.table() + " WHERE " + a.condition()
		s.waitOther = "SELECT " + a.spelled() + " AS spelled" + rows + " FOR KEY SHARE"
		// One row for all that there are, since those that somebody else has are skipped without a word.
		s.tryOther = "WITH mine AS MATERIALIZED (" + s.waitOther + " SKIP LOCKED), counted AS (SELECT count(*) AS n, min(spelled) AS " +
			"spelled FROM mine) SELECT spelled FROM counted WHERE n > 0 AND n = (SELECT count(*)" + rows + ")"
		s.lookOther = "SELECT count(*) > 0, min(" + a.spelled() + ")" + rows
	}
	return s
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
		from, err := h.session.prove(ctx, h.session.pingServer)
		grant := h.grant
		grant.From = from
		return grant, err
	}
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

// errHandedOver says that the row kept coming and going.
var errHandedOver = errors.New("the row of the lock changes too quickly")

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
		token, err := r.lockRow(ctx, patient, conn, req, ttl)
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
			session := newSession(conn, ttl, proven, req.Lost)
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
		token, err := r.nextToken(ctx, req)
		return token, conn.taken, err
	}
	type answer struct {
		token anylock.Token
		err   error
	}
	tokens := make(chan answer, 1)
	go func() {
		token, err := r.nextToken(ctx, req)
		tokens <- answer{token, err}
	}()
	from := time.Now()
	err := conn.Ping(ctx)
	got := <-tokens
	return got.token, from, errors.Join(err, got.err)
}

// lockRow begins a transaction and locks the row in it. It returns the token if that came with it, or 0. After an error
// nothing is locked, or the connection is broken.
func (r *rowLocks) lockRow(ctx, patient context.Context, conn *connection, req anylock.Request, ttl time.Duration) (anylock.Token, error) {
	if req.Wait {
		defer conn.interruptWith(ctx)()
	}
	name := r.config.prefix + req.Name
	live, ctx := ctx, patient
	for try := range 5 {
		if live.Err() != nil { // nobody wants it any more: leave no trace of it in the queue
			return 0, context.Cause(live)
		}
		locked, token, err := r.lockOnce(live, ctx, conn, name, req, ttl)
		if locked || err != nil {
			return token, err
		}
		own, unused, other, err := r.look(ctx, conn, name, req.Name)
		switch {
		case err != nil:
			return 0, err
		case !other:
			return 0, r.config.adopt.missing()
		case own && !req.Wait && unused && try == 0: // perhaps only the sweeper has it, for a moment
			time.Sleep(sweepMoment)
			continue
		case own && !req.Wait:
			if leaving := r.holds.leaving(req.Name); leaving != nil && ctx.Err() == nil {
				select {
				case <-leaving:
				case <-ctx.Done():
				}
				continue
			}
			holder, _ := r.lastHolder(ctx, req.Name) // nice to know
			return 0, &anylock.HeldError{Holder: holder}
		case own: // it was deleted and made anew
			continue
		}
		if err := r.makeRow(ctx, conn, name, req.Wait); err != nil {
			return 0, err
		}
	}
	return 0, anylock.Unavailable(errHandedOver)
}

// lockOnce is one round trip, which is not begun any more once live has ended. If it is refused, the transaction is over.
//
// A try counts before it locks, in a transaction of its own that finds the row free. If nobody has counted since when it
// has the lock, that is the token: all grants before it counted before, and all after it will count later. With adopted
// rows it counts afterwards: they may be held by code that does not know of us, and a refused try should write nothing.
func (r *rowLocks) lockOnce(live, ctx context.Context, conn *connection, name string, req anylock.Request, ttl time.Duration) (bool, anylock.Token, error) {
	if conn.ttl != ttl { // not in the transaction, whose rollback would undo it
		if _, err := conn.Exec(ctx, fmt.Sprintf("SET idle_in_transaction_session_timeout = %d", ttl.Milliseconds())); err != nil {
			return false, 0, err
		}
		conn.ttl = ttl
		if live.Err() != nil {
			return false, 0, context.Cause(live)
		}
	}
	const begin = "BEGIN ISOLATION LEVEL READ COMMITTED"
	var counted, version int64
	var gotOwn, gotOther bool
	var spelled *string
	batch := new(pgx.Batch)
	queue := func(sql string, args []any, got *bool, to ...any) {
		batch.Queue(sql, args...).Query(func(rows pgx.Rows) error {
			return collect(rows, nil, func(row pgx.CollectableRow) error {
				if got != nil {
					*got = true
				}
				return row.Scan(to...)
			})
		})
	}
	own, other := r.rowSQL.try, r.rowSQL.tryOther
	if req.Wait {
		own, other = r.rowSQL.wait, r.rowSQL.waitOther
	}
	countsFirst := !req.Wait && other == ""
	if countsFirst {
		batch.Queue(begin)
		queue(r.rowSQL.count, tokenArgs(r.config, req), nil, &counted)
		batch.Queue("COMMIT")
	}
	batch.Queue(begin)
	queue(own, []any{name}, &gotOwn, nil)
	if other != "" {
		queue(other, []any{req.Name}, &gotOther, &spelled)
	}
	if countsFirst {
		queue(r.rowSQL.version, []any{name}, nil, &version)
	}
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		r.rollback(ctx, conn)
		return false, 0, r.config.explain(err)
	}
	var err error
	if gotOther {
		err = r.config.adopt.checkSpelling(req.Name, spelled)
	}
	if err == nil && gotOwn && (gotOther || other == "") {
		if counted != version {
			counted = 0
		}
		return true, anylock.Token(counted), nil
	}
	_, broken := conn.Exec(ctx, "ROLLBACK")
	return false, 0, errors.Join(err, broken)
}

// rollback ends a transaction that failed, so that the connection can be used again.
func (r *rowLocks) rollback(ctx context.Context, conn *connection) {
	if !conn.IsClosed() && conn.PgConn().TxStatus() != 'I' {
		_, _ = conn.Exec(ctx, "ROLLBACK")
	}
}

// look tells which rows are there, and whether nobody has used the lock for so long that its own row may be swept.
func (r *rowLocks) look(ctx context.Context, conn *connection, name, plain string) (own, unused, other bool, err error) {
	other = true
	err = conn.QueryRow(ctx, r.rowSQL.look, name, r.config.retention.Microseconds()).Scan(&unused)
	own = err == nil
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return false, false, false, err
	}
	err = nil
	if a := r.config.adopt; a != nil {
		var spelled *string
		if err = conn.QueryRow(ctx, r.rowSQL.lookOther, plain).Scan(&other, &spelled); err == nil {
			err = a.checkSpelling(plain, spelled)
		}
	}
	return own, unused, other, err
}

// makeRow makes the own row. LockTx may be making it in a transaction that is not over: then its lock is held.
func (r *rowLocks) makeRow(ctx context.Context, conn *connection, name string, wait bool) error {
	if wait {
		_, err := conn.Exec(ctx, r.rowSQL.insert, name)
		return err
	}
	batch := new(pgx.Batch)
	batch.Queue("BEGIN ISOLATION LEVEL READ COMMITTED")
	batch.Queue("SET LOCAL lock_timeout = '" + insertPatience + "'")
	batch.Queue(r.rowSQL.insert, name)
	batch.Queue("COMMIT")
	err := conn.SendBatch(ctx, batch).Close()
	if err != nil {
		r.rollback(ctx, conn)
	}
	if sqlState(err) == lockNotAvailable {
		return &anylock.HeldError{}
	}
	return err
}

func (s *session) pingServer(ctx context.Context) error { return s.Ping(ctx) }

// watch: the server's queue wakes.
func (r *rowLocks) watch(context.Context, string) (<-chan struct{}, error) { return nil, nil }

func (r *rowLocks) renew(ctx context.Context, grants []anylock.Grant) []anylock.Renewal {
	renewals := make([]anylock.Renewal, len(grants))
	var asking sync.WaitGroup
	for i, g := range grants {
		asking.Go(func() {
			session, grant := r.holds.find(of(g))
			if session == nil {
				renewals[i].Err = anylock.ErrLost
				return
			}
			from, err := session.prove(ctx, session.pingServer)
			renewals[i] = anylock.Renewal{From: from, TTL: grant.TTL, Err: err}
		})
	}
	asking.Wait()
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
