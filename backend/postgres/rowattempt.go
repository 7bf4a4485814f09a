package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/anylock/anylock"
)

const (
	// insertPatience bounds how long a try waits for a transaction that is just making the row: one of LockTx, that is.
	insertPatience = "50ms"
	// sweepMoment is how long the sweeper has a row.
	sweepMoment = 10 * time.Millisecond
)

// errHandedOver says that the row kept coming and going.
var errHandedOver = errors.New("the row of the lock changes too quickly")

// rowAttempt locks the row of a request, and the adopted one, in a transaction that stays open.
type rowAttempt struct {
	*rowLocks
	conn *connection
	req  anylock.Request
	name string // of the own row
	ttl  time.Duration
}

// run returns the token if that came with the lock, or 0. When ctx ends nothing more is sent, but what was sent is waited
// for while patient lasts. After an error nothing is locked, or the connection is broken.
func (a *rowAttempt) run(ctx, patient context.Context) (anylock.Token, error) {
	for try := range 5 {
		if ctx.Err() != nil { // nobody wants it any more: leave no trace of it in the queue
			return 0, context.Cause(ctx)
		}
		if err := a.arm(patient); err != nil {
			return 0, err
		}
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		got, err := a.lock(ctx, patient)
		if err != nil || got.all() {
			return got.token, err
		}
		row, err := a.look(patient)
		switch {
		case err != nil:
			return 0, err
		case row.unused && !a.req.Wait && try == 0: // perhaps only the sweeper has it, for a moment
			time.Sleep(sweepMoment)
		case row.there && a.req.Wait: // it was deleted and made anew
		case row.there:
			leaving := a.holds.leaving(a.req.Name)
			if leaving == nil || patient.Err() != nil {
				return 0, a.held(patient, got)
			}
			select {
			case <-leaving:
			case <-patient.Done():
			}
		default:
			if err := a.makeRow(ctx, patient); err != nil {
				return 0, err
			}
		}
	}
	return 0, anylock.Unavailable(errHandedOver)
}

// held tells who has the lock, if it is one of us.
func (a *rowAttempt) held(ctx context.Context, got gotRows) error {
	if got.own {
		return new(anylock.HeldError) // the adopted row is locked by code that does not know of us
	}
	return &anylock.HeldError{Holder: a.holder(ctx, a.rowSQL.holder, a.name)}
}

// arm sets the TTL as the session's timeout. Not in the transaction, whose rollback would undo it. One that waits gets its TTL
// when it proves its lock.
func (a *rowAttempt) arm(ctx context.Context) error {
	ttl := a.ttl
	if a.req.Wait {
		ttl = min(ttl, unprovenTime)
	}
	if a.conn.ttl == ttl {
		return nil
	}
	_, err := a.conn.Exec(ctx, fmt.Sprintf("SET idle_in_transaction_session_timeout = %d", ttl.Milliseconds()))
	if err == nil {
		a.conn.ttl = ttl
	}
	return err
}

// gotRows are the rows that an attempt has locked.
type gotRows struct {
	own, other bool
	token      anylock.Token // 0: not known yet
}

func (g gotRows) all() bool { return g.own && g.other }

// lock is one round trip. If it does not get all rows, the transaction is over.
//
// A try counts before it locks, in a transaction of its own that finds the row free. If nobody has counted since when it
// has the lock, that is the token: all grants before it counted before, and all after it will count later. With adopted
// rows it counts afterwards: they may be held by code that does not know of us, and a refused try should write nothing.
func (a *rowAttempt) lock(waiting, ctx context.Context) (gotRows, error) {
	const begin = "BEGIN ISOLATION LEVEL READ COMMITTED"
	var counted, version int64
	var spelled *string
	got := gotRows{other: a.config.adopt == nil}
	var batch pgx.Batch
	queue := func(sql string, args []any, each func(pgx.CollectableRow) error) {
		batch.Queue(sql, args...).Query(func(rows pgx.Rows) error { return collect(rows, nil, each) })
	}
	countsFirst := !a.req.Wait && a.config.adopt == nil
	if countsFirst {
		batch.Queue(begin)
		queue(a.rowSQL.count, tokenArgs(a.config, a.req, a.conn), func(row pgx.CollectableRow) error { return row.Scan(&counted) })
		batch.Queue("COMMIT")
	}
	batch.Queue(begin)
	own, other := a.rowSQL.try, a.rowSQL.tryOther
	if a.req.Wait {
		own, other = a.rowSQL.wait, a.rowSQL.waitOther
	}
	queue(own, []any{a.name}, func(pgx.CollectableRow) error { got.own = true; return nil })
	if a.config.adopt != nil {
		queue(other, []any{a.req.Name}, func(row pgx.CollectableRow) error { got.other = true; return row.Scan(&spelled) })
	}
	if countsFirst {
		queue(a.rowSQL.version, []any{a.name}, func(row pgx.CollectableRow) error { return row.Scan(&version) })
	}
	if err := a.interruptible(waiting, func() error { return a.conn.SendBatch(ctx, &batch).Close() }); err != nil {
		a.rollback(ctx)
		return gotRows{}, a.config.explain(err)
	}
	if counted == version {
		got.token = anylock.Token(counted)
	}
	err := a.config.checkSpelling(a.req.Name, spelled)
	if err == nil && got.all() {
		return got, nil
	}
	_, broken := a.conn.Exec(ctx, "ROLLBACK")
	return got, errors.Join(err, broken)
}

// interruptible runs a statement that may wait for long, if the request may. It ends with the context waiting.
func (a *rowAttempt) interruptible(waiting context.Context, run func() error) error {
	if a.req.Wait {
		defer a.conn.interruptWith(waiting)()
	}
	return run()
}

// rollback ends a transaction that failed, so that the connection can be used again.
func (a *rowAttempt) rollback(ctx context.Context) {
	if !a.conn.IsClosed() && a.conn.PgConn().TxStatus() != 'I' {
		_, _ = a.conn.Exec(ctx, "ROLLBACK")
	}
}

// ownRow is what is known of the own row.
type ownRow struct {
	there  bool
	unused bool // for so long that it may be swept
}

// look looks for the rows of a lock that was not got. An adopted row that is missing is an error.
func (a *rowAttempt) look(ctx context.Context) (row ownRow, err error) {
	err = a.conn.QueryRow(ctx, a.rowSQL.look, a.name, a.config.retention.Microseconds()).Scan(&row.unused)
	row.there = err == nil
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return row, err
	}
	if a.config.adopt == nil {
		return row, nil
	}
	var there bool
	var spelled *string
	err = a.conn.QueryRow(ctx, a.rowSQL.lookOther, a.req.Name).Scan(&there, &spelled)
	if err == nil && !there {
		err = a.config.adopt.missing()
	}
	if err == nil {
		err = a.config.checkSpelling(a.req.Name, spelled)
	}
	return row, err
}

// makeRow makes the own row. LockTx may be making it in a transaction that is not over: then its lock is held.
func (a *rowAttempt) makeRow(waiting, ctx context.Context) error {
	if a.req.Wait {
		return a.interruptible(waiting, func() error {
			_, err := a.conn.Exec(ctx, a.rowSQL.insert, a.name)
			return err
		})
	}
	batch := new(pgx.Batch)
	batch.Queue("BEGIN ISOLATION LEVEL READ COMMITTED")
	batch.Queue("SET LOCAL lock_timeout = '" + insertPatience + "'")
	batch.Queue(a.rowSQL.insert, a.name)
	batch.Queue("COMMIT")
	err := a.conn.SendBatch(ctx, batch).Close()
	if err != nil {
		a.rollback(ctx)
	}
	if sqlState(err) == lockNotAvailable {
		return new(anylock.HeldError)
	}
	return err
}
