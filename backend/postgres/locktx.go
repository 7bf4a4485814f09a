package postgres

import (
	"context"
	gosql "database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5"

	"github.com/anylock/anylock"
)

// defaultTxWait is how long LockTx waits when its context has no deadline.
const defaultTxWait = 30 * time.Second

// txGrace is how long the server may take to end the wait and put everything back.
const txGrace = 5 * time.Second

// LockTx takes a lock inside the caller's own transaction: lock and data live and die together. There is no lease and
// nothing to renew, and no token is needed, since nothing that the transaction wrote is kept when the lock was lost. It
// excludes, and is excluded by, leases of [RowLock] on the same name, and other LockTx; with [WithAdopted] also code that
// locks the team's row by SELECT ... FOR UPDATE.
//
// It waits until ctx's deadline, 30s if it has none, and then returns an error that matches [anylock.ErrHeld]. A
// statement_timeout of the transaction's own still ends each of its waits, with [anylock.ErrUnavailable]. After both the
// transaction, its savepoints and its settings are as they were before, and can go on. It may be called again in the
// same transaction, and after ROLLBACK TO a savepoint that was set before it the lock is free again. When ctx is cancelled
// before its deadline, pgx closes the connection, as it does for any statement.
//
// Call it first in the transaction, in READ COMMITTED, and read what it protects after it: with REPEATABLE READ or
// SERIALIZABLE all statements see the data as it was before the wait, and Postgres refuses to write what has changed since
// (40001).
//
// The tables must exist, see [Schema]. [WithSchema], [WithTable], [WithPrefix] and [WithAdopted] apply; they must be the same
// as those of the leases. A table that is for leases of another mode is an error, unless [WithMixedModes] is set.
func LockTx(ctx context.Context, tx pgx.Tx, name string, opts ...Option) error {
	if tx == nil {
		return lockTxError(name, anylock.Invalidf("the transaction is nil"))
	}
	return lockTx(ctx, pgxTx{tx}, name, opts)
}

// LockSQLTx is [LockTx] for database/sql, with any driver for Postgres.
func LockSQLTx(ctx context.Context, tx *gosql.Tx, name string, opts ...Option) error {
	if tx == nil {
		return lockTxError(name, anylock.Invalidf("the transaction is nil"))
	}
	return lockTx(ctx, sqlTx{tx}, name, opts)
}

// txn is what the two kinds of transactions have in common.
type txn interface {
	exec(ctx context.Context, sql string, args ...any) error
	// row reads the one row of a query; none is reported as false.
	row(ctx context.Context, sql string, args []any, to ...any) (bool, error)
}

func lockTxError(name string, err error) error {
	return &anylock.Error{Op: "lock in transaction", Backend: "postgres", Name: name, Err: err}
}

func lockTx(ctx context.Context, tx txn, name string, opts []Option) error {
	c, err := configure(defaults(), append([]Option{WithMode(RowLock)}, opts...))
	if err == nil && c.mode != RowLock { // it would not exclude them
		err = anylock.Invalidf("LockTx excludes leases of mode=rowlock, and the mode is %s", c.mode)
	}
	if err == nil {
		err = anylock.CheckName(name)
	}
	if err != nil {
		return lockTxError(name, err)
	}
	if ctx.Err() != nil {
		return lockTxError(name, ctx.Err())
	}
	wait := defaultTxWait
	if end, ok := ctx.Deadline(); ok {
		wait = min(time.Until(end), sessionMaxTTL)
	}
	// The server ends the wait when ctx's deadline has come. If the driver did, it would end the connection.
	patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait+txGrace)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) {
			cancel()
		}
	})()
	if err := c.lockTx(patient, tx, name, wait); err != nil {
		return lockTxError(name, err)
	}
	return nil
}

// lockTx works behind a savepoint, so that the transaction survives when the wait is over.
func (c config) lockTx(ctx context.Context, tx txn, name string, wait time.Duration) error {
	const savepoint = "anylock_lock_tx"
	if err := tx.exec(ctx, "SAVEPOINT "+savepoint); err != nil {
		return classify(err)
	}
	until := time.Now().Add(max(wait, time.Millisecond))
	err := c.lockRows(ctx, &limits{tx: tx, until: until, sql: c.fill(limitSQL)}, name)
	if err == nil {
		return classify(tx.exec(ctx, "RELEASE SAVEPOINT "+savepoint))
	}
	undo := tx.exec(ctx, "ROLLBACK TO SAVEPOINT "+savepoint)
	if undo == nil {
		undo = tx.exec(ctx, "RELEASE SAVEPOINT "+savepoint)
	}
	switch {
	case sqlState(err) == lockNotAvailable, sqlState(err) == queryCanceled && !time.Now().Before(until):
		err = fmt.Errorf("gave up after %v: %w", wait.Round(time.Millisecond), new(anylock.HeldError))
	default:
		err = classify(err)
	}
	if undo != nil {
		return fmt.Errorf("%w; the transaction cannot go on: %w", err, undo)
	}
	return err
}

// lockRows locks the own row and the adopted one.
func (c config) lockRows(ctx context.Context, limit *limits, name string) error {
	tx, s := limit.tx, c.rowStatements()
	if err := checkEncoding(ctx, tx, c.prefix+name); err != nil {
		return err
	}
	var one int
	if err := c.checkAdopted(ctx, tx, s, name); err != nil {
		return err
	}
	for try := 1; ; try++ {
		if err := limit.renew(ctx); err != nil {
			return err
		}
		if err := c.checkMode(limit.used); err != nil {
			return err
		}
		found, err := tx.row(ctx, s.wait, []any{c.prefix + name}, &one)
		if err != nil {
			return err
		}
		if found {
			break
		}
		if try == 5 {
			return anylock.Unavailable(errHandedOver)
		}
		if err := tx.exec(ctx, s.insert, c.prefix+name); err != nil {
			return err
		}
	}
	if a := c.adopt; a != nil {
		if err := limit.renew(ctx); err != nil {
			return err
		}
		// Here the application updates the row in this very transaction, so the lock can be the stronger one.
		found, err := tx.row(ctx, "SELECT 1 FROM "+a.table()+" WHERE "+a.condition()+" FOR UPDATE", []any{name}, &one)
		if err != nil {
			return a.explain(err)
		}
		if !found { // it has gone meanwhile
			return a.missing()
		}
	}
	return limit.end(ctx)
}

// checkAdopted makes sure that the row is there under this name, before anything is waited for.
func (c config) checkAdopted(ctx context.Context, tx txn, s rowStatements, name string) error {
	if c.adopt == nil {
		return nil
	}
	var there bool
	var spelled *string
	if _, err := tx.row(ctx, s.lookOther, []any{name}, &there, &spelled); err != nil {
		return c.adopt.explain(err)
	}
	if !there {
		return c.adopt.missing()
	}
	return c.checkSpelling(name, spelled)
}

// limits bound how long the server waits in a transaction, by two settings that are the caller's: lock_timeout, whose error
// is the clear one, counts anew for each wait of a statement, for those in front and then for the holder;
// statement_timeout counts them all.
type limits struct {
	tx    txn
	until time.Time
	sql   string
	used  string // the mode that the table is for

	lockTimeout, statementTimeout string // the caller's, once they are known
}

// limitSQL leaves the caller's own statement_timeout in force where it is the shorter one. $1 is in milliseconds.
const limitSQL = `SELECT current_setting('lock_timeout'), own, set_config('lock_timeout', $1::text, true),
	set_config('statement_timeout', CASE WHEN ms > 0 AND ms < $1::text::bigint THEN own ELSE $1::text END, true), ` + claimedSQL + `
FROM (SELECT own, (extract(epoch FROM own::interval) * 1000)::bigint AS ms
	FROM (SELECT coalesce(nullif($2::text, ''), current_setting('statement_timeout')) AS own) AS a) AS b`

// renew gives the statements that follow the time that is left.
func (l *limits) renew(ctx context.Context) error {
	left := strconv.FormatInt(max(time.Until(l.until).Milliseconds(), 0)+1, 10)
	var lockTimeout, statementTimeout, now string
	_, err := l.tx.row(ctx, l.sql, []any{left, l.statementTimeout}, &lockTimeout, &statementTimeout, &now, &now, &l.used)
	if err == nil && l.statementTimeout == "" {
		l.lockTimeout, l.statementTimeout = lockTimeout, statementTimeout
	}
	return err
}

// end puts the caller's settings back.
func (l *limits) end(ctx context.Context) error {
	const sql = "SELECT set_config('lock_timeout', $1, true), set_config('statement_timeout', $2, true)"
	var now string
	_, err := l.tx.row(ctx, sql, []any{l.lockTimeout, l.statementTimeout}, &now, &now)
	return err
}

type pgxTx struct{ pgx.Tx }

func (t pgxTx) exec(ctx context.Context, sql string, args ...any) error {
	_, err := t.Exec(ctx, sql, args...)
	return err
}

func (t pgxTx) row(ctx context.Context, sql string, args []any, to ...any) (bool, error) {
	err := t.QueryRow(ctx, sql, args...).Scan(to...)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

type sqlTx struct{ *gosql.Tx }

func (t sqlTx) exec(ctx context.Context, sql string, args ...any) error {
	_, err := t.ExecContext(ctx, sql, args...)
	return err
}

func (t sqlTx) row(ctx context.Context, sql string, args []any, to ...any) (bool, error) {
	rows, err := t.QueryContext(ctx, sql, args...)
	if err != nil {
		return false, err
	}
	defer func() { _ = rows.Close() }()
	found := false
	for rows.Next() { // an adopted condition may find several
		found = true
		if err := rows.Scan(to...); err != nil {
			return false, err
		}
	}
	return found, rows.Err()
}

// checkEncoding makes sure that the caller's session means by a name what ours do. It asks only for names that two encodings
// may write differently, which costs such a name a round trip more.
func checkEncoding(ctx context.Context, tx txn, name string) error {
	if !strings.ContainsFunc(name, func(r rune) bool { return r > unicode.MaxASCII }) {
		return nil
	}
	var encoding string
	if _, err := tx.row(ctx, "SELECT current_setting('client_encoding')", nil, &encoding); err != nil {
		return err
	}
	if encoding != "UTF8" {
		return errEncoding(encoding)
	}
	return nil
}
