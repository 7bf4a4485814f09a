package postgres_test

import (
	"context"
	gosql "database/sql"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/backend/postgres"
)

func TestLockTx(t *testing.T) {
	s := server(t)
	schema := freshSchema(t, s)
	in := postgres.WithSchema(strings.TrimPrefix(schema, "schema="))
	leases := locker(t, urlOf(s, schema, "mode=rowlock"))
	db := admin(t, s)
	std := must(gosql.Open("pgx", urlOf(s)))(t)
	defer std.Close()
	ctx := ctx10(t)
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}

	tx := must(db.Begin(ctx))(t)
	must(tx.Exec(ctx, "SET LOCAL lock_timeout = '7s'"))(t)
	must(0, postgres.LockTx(ctx, tx, "n", in))(t)
	must(0, postgres.LockTx(ctx, tx, "n", in))(t) // again is no harm
	if _, err := leases.TryAcquire(ctx, "n"); !errors.Is(err, anylock.ErrHeld) {
		t.Errorf("a lease while a transaction has the lock (whose row it has just made): %v", err)
	}

	other := must(std.BeginTx(ctx, nil))(t)
	must(other.Exec("CREATE TEMPORARY TABLE mine (n int)"))(t)
	start := time.Now()
	err := postgres.LockSQLTx(short(), other, "n", in)
	if !errors.Is(err, anylock.ErrHeld) {
		t.Errorf("a second transaction: %v", err)
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("it waited for %v", took)
	}
	must(other.Exec("INSERT INTO mine VALUES (1)"))(t) // it can go on
	var timeout string
	must(0, other.QueryRow("SHOW lock_timeout").Scan(&timeout))(t)
	if timeout != "0" {
		t.Errorf("lock_timeout is %s after a wait that failed", timeout)
	}
	must(0, tx.QueryRow(ctx, "SHOW lock_timeout").Scan(&timeout))(t)
	if timeout != "7s" {
		t.Errorf("lock_timeout is %s after a lock", timeout)
	}
	must(0, tx.Commit(ctx))(t)
	must(0, postgres.LockSQLTx(short(), other, "n", in))(t)
	must(0, other.Commit())(t)

	lease := must(leases.TryAcquire(ctx, "n"))(t)
	tx = must(db.Begin(ctx))(t)
	must(tx.Exec(ctx, "SAVEPOINT before"))(t)
	if err := postgres.LockTx(short(), tx, "n", in); !errors.Is(err, anylock.ErrHeld) {
		t.Errorf("a transaction while a lease has the lock: %v", err)
	}
	must(0, lease.Release(ctx))(t)
	must(0, postgres.LockTx(short(), tx, "n", in))(t)
	must(tx.Exec(ctx, "ROLLBACK TO before"))(t)
	must(0, must(leases.TryAcquire(ctx, "n"))(t).Release(ctx))(t)
	must(0, tx.Rollback(ctx))(t)

	tx = must(db.Begin(ctx))(t)
	for _, far := range []time.Time{time.Now().AddDate(0, 0, 25), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)} {
		ctx, cancel := context.WithDeadline(context.Background(), far)
		if err := postgres.LockTx(ctx, tx, "n", in); err != nil {
			t.Errorf("with a deadline in %v: %v", far.Year(), err)
		}
		cancel()
	}
	must(0, tx.Rollback(ctx))(t)

	if err := postgres.LockTx(ctx, nil, "n"); !errors.Is(err, anylock.ErrInvalid) {
		t.Errorf("a nil transaction: %v", err)
	}
	tx = must(db.Begin(ctx))(t)
	defer func() { _ = tx.Rollback(ctx) }()
	if err := postgres.LockTx(ctx, tx, "n", postgres.WithTable("nowhere")); !errors.Is(err, anylock.ErrInvalid) {
		t.Errorf("a missing table: %v", err)
	}
	if err := postgres.LockTx(ctx, tx, "", in); !errors.Is(err, anylock.ErrInvalid) {
		t.Errorf("no name: %v", err)
	}
	must(tx.Exec(ctx, "SELECT 1"))(t)
}

// Each wait of a statement has a lock_timeout of its own: one for those in front, then one for the holder.
func TestLockTxKeepsItsDeadlineInAQueue(t *testing.T) {
	s := server(t)
	schema := freshSchema(t, s)
	in := postgres.WithSchema(strings.TrimPrefix(schema, "schema="))
	lease := must(locker(t, urlOf(s, schema, "mode=rowlock")).Acquire(ctx10(t), "n"))(t)
	db := admin(t, s)
	waiting := func(n int64) {
		eventually(t, 5*time.Second, "waiters", func() bool {
			return value[int64](db, "SELECT count(*) FROM pg_locks WHERE NOT granted") >= n
		})
	}
	lock := func(wait time.Duration) (tx pgx.Tx, result chan error) {
		tx = must(db.Begin(ctx10(t)))(t)
		must(tx.Exec(ctx10(t), "SET LOCAL statement_timeout = '1min'"))(t)
		result = make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), wait)
			defer cancel()
			result <- postgres.LockTx(ctx, tx, "n", in)
		}()
		return tx, result
	}
	first, firstResult := lock(1500 * time.Millisecond)
	waiting(1)
	start := time.Now()
	second, secondResult := lock(2 * time.Second)
	waiting(2)
	for _, result := range []chan error{firstResult, secondResult} {
		if err := <-result; !errors.Is(err, anylock.ErrHeld) {
			t.Errorf("LockTx: %v", err)
		}
	}
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("a wait of 2s took %v", took)
	}
	for _, tx := range []pgx.Tx{first, second} {
		var timeout string
		must(0, tx.QueryRow(ctx10(t), "SHOW statement_timeout").Scan(&timeout))(t)
		if timeout != "1min" {
			t.Errorf("statement_timeout is %s afterwards", timeout)
		}
		must(0, tx.Rollback(ctx10(t)))(t)
	}

	tx := must(db.Begin(ctx10(t)))(t)
	defer func() { _ = tx.Rollback(context.Background()) }()
	must(tx.Exec(ctx10(t), "SET LOCAL statement_timeout = '200ms'"))(t)
	if err := postgres.LockTx(ctx10(t), tx, "n", in); !errors.Is(err, anylock.ErrUnavailable) || errors.Is(err, anylock.ErrHeld) {
		t.Errorf("the transaction's own timeout: %v", err)
	}
	must(tx.Exec(ctx10(t), "SELECT 1"))(t)
	must(0, lease.Release(ctx10(t)))(t)
	must(0, postgres.LockTx(ctx10(t), tx, "n", in))(t)
	var timeout string
	must(0, tx.QueryRow(ctx10(t), "SHOW statement_timeout").Scan(&timeout))(t)
	if timeout != "200ms" {
		t.Errorf("statement_timeout is %s after a lock", timeout)
	}
}

// Three kinds of clients that know nothing of each other but the row.
func TestCounterOfThreeKinds(t *testing.T) {
	s := server(t)
	schema := freshSchema(t, s)
	name := strings.TrimPrefix(schema, "schema=")
	open(t, urlOf(s, schema, "mode=rowlock"))
	db := admin(t, s)
	table := name + ".account"
	db.exec("CREATE TABLE " + table + " (id bigint PRIMARY KEY, n bigint NOT NULL)")
	db.exec("INSERT INTO " + table + " VALUES (7, 0)")
	total := 3000
	if long() {
		total = 10000
	}
	var left atomic.Int64
	left.Store(int64(total))
	read := "SELECT n FROM " + table + " WHERE id = 7"
	write := "UPDATE " + table + " SET n = $1 WHERE id = 7"
	ctx := context.Background()
	legacy := func() error {
		return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			var n int64
			if err := tx.QueryRow(ctx, read+" FOR UPDATE").Scan(&n); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, write, n+1)
			return err
		})
	}
	inTx := func() error {
		return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			err := postgres.LockTx(ctx, tx, "7", postgres.WithSchema(name), postgres.WithAdopted(postgres.Adopted{Table: table, Column: "id"}))
			if err != nil {
				return err
			}
			var n int64
			if err := tx.QueryRow(ctx, read).Scan(&n); err != nil {
				return err
			}
			_, err = tx.Exec(ctx, write, n+1)
			return err
		})
	}
	app := admin(t, s) // the application's own connections
	var running sync.WaitGroup
	for range 2 {
		l := locker(t, urlOf(s, schema, "mode=rowlock", "table="+table, "column=id", "conns=4"))
		leased := func() error {
			return l.Do(ctx, "7", func(ctx context.Context, _ *anylock.Lease) error {
				var n int64
				if err := app.QueryRow(ctx, read).Scan(&n); err != nil {
					return err
				}
				_, err := app.Exec(ctx, write, n+1)
				return err
			})
		}
		for _, increment := range []func() error{legacy, inTx, leased} {
			running.Go(func() {
				for left.Add(-1) >= 0 {
					if err := increment(); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	running.Wait()
	if n := value[int64](db, read); n != int64(total) {
		t.Errorf("%d of %d increments", n, total)
	}
}

func TestAdoptedRows(t *testing.T) {
	s := server(t)
	schema := freshSchema(t, s)
	name := strings.TrimPrefix(schema, "schema=")
	open(t, urlOf(s, schema, "mode=rowlock"))
	db := admin(t, s)
	table := name + ".account"
	db.exec("CREATE TABLE " + table + " (id bigint PRIMARY KEY, n bigint NOT NULL)")
	db.exec("INSERT INTO " + table + " VALUES (7, 0)")
	url := urlOf(s, schema, "mode=rowlock", "table="+table, "column=id")
	l := locker(t, url)
	ctx := ctx10(t)
	for range 2 { // the second time the row of the lock would be there
		if _, err := l.TryAcquire(ctx, "007"); !errors.Is(err, anylock.ErrInvalid) || !strings.Contains(err.Error(), `"7"`) {
			t.Errorf("the row 7 by another name: %v", err)
		}
		db.exec("INSERT INTO " + name + ".anylock_rows (name) VALUES ('007') ON CONFLICT DO NOTHING")
	}
	adopted := postgres.WithAdopted(postgres.Adopted{Table: table, Column: "id"})
	tx := must(db.Begin(ctx))(t)
	if err := postgres.LockTx(ctx, tx, "7", postgres.WithSchema(name), adopted, postgres.WithMode(postgres.Advisory)); !errors.Is(err, anylock.ErrInvalid) {
		t.Errorf("LockTx in mode advisory: %v", err)
	}
	must(0, tx.Rollback(ctx))(t)
	for _, wrong := range []postgres.Adopted{
		{Table: table, Column: "id", Where: "id = $1::bigint"}, {Table: table, Where: "id = 7"}, {Column: "id"},
	} {
		if _, err := postgres.Schema(postgres.WithMode(postgres.RowLock), postgres.WithAdopted(wrong)); !errors.Is(err, anylock.ErrInvalid) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}

	tx = must(db.Begin(ctx))(t)
	must(tx.Exec(ctx, "SELECT FROM "+table+" WHERE id = 7 FOR UPDATE"))(t)
	if _, err := l.TryAcquire(ctx, "7"); !errors.Is(err, anylock.ErrHeld) {
		t.Errorf("while legacy code has the row: %v", err)
	}
	got := make(chan *anylock.Lease)
	go func() { got <- must(l.Acquire(ctx, "7", anylock.WithHolder("anylock")))(t) }()
	time.Sleep(100 * time.Millisecond)
	select {
	case <-got:
		t.Fatal("the lock was granted while legacy code has the row")
	default:
	}
	must(0, tx.Commit(ctx))(t)
	lease := <-got
	start := time.Now()
	db.exec("UPDATE " + table + " SET n = n + 1 WHERE id = 7")
	if took := time.Since(start); took > time.Second {
		t.Errorf("the application's UPDATE waited for %v", took)
	}
	tx = must(db.Begin(ctx))(t)
	if _, err := tx.Exec(ctx, "SELECT FROM "+table+" WHERE id = 7 FOR UPDATE NOWAIT"); err == nil {
		t.Error("legacy code got the row of a lease")
	}
	must(0, tx.Rollback(ctx))(t)
	must(0, lease.Release(ctx))(t)

	tx = must(db.Begin(ctx))(t)
	defer func() { _ = tx.Rollback(ctx) }()
	must(tx.Exec(ctx, "SELECT FROM "+table+" WHERE id = 7 FOR UPDATE NOWAIT"))(t)
	var held *anylock.HeldError
	if _, err := l.TryAcquire(ctx, "7"); !errors.As(err, &held) || held.Holder != "" {
		t.Errorf("while legacy code has the row that anylock had before: %v", err)
	}
}

// A name that comes from a user is told from a configuration that is wrong.
func TestMissingRow(t *testing.T) {
	s := server(t)
	schema := freshSchema(t, s)
	name := strings.TrimPrefix(schema, "schema=")
	open(t, urlOf(s, schema, "mode=rowlock"))
	db := admin(t, s)
	table := name + ".account"
	db.exec("CREATE TABLE " + table + " (id bigint PRIMARY KEY, day date NOT NULL)")
	db.exec("INSERT INTO " + table + " VALUES (7, '2026-12-01')")
	for _, c := range []struct{ column, lock, spelled string }{
		{"id", "8", ""}, {"id", "007", "7"}, {"id", "seven", ""}, {"id", "anylock", ""}, {"id", "99999999999999999999", ""},
		{"day", "2026-12-32", ""}, {"day", "tomorrow or so", ""},
	} {
		adopted := postgres.Adopted{Table: table, Column: c.column}
		l := locker(t, urlOf(s, schema, "mode=rowlock", "table="+table, "column="+c.column))
		_, waited := l.Acquire(ctx10(t), c.lock)
		_, tried := l.TryAcquire(ctx10(t), c.lock)
		tx := must(db.Begin(ctx10(t)))(t)
		inTx := postgres.LockTx(ctx10(t), tx, c.lock, postgres.WithSchema(name), postgres.WithAdopted(adopted))
		must(tx.Exec(ctx10(t), "SELECT"))(t)
		must(0, tx.Rollback(ctx10(t)))(t)
		for how, err := range map[string]error{"Acquire": waited, "TryAcquire": tried, "LockTx": inTx} {
			missing, ok := errors.AsType[*postgres.MissingRowError](err)
			if !ok || missing.Table != table || missing.Spelled != c.spelled || !errors.Is(err, anylock.ErrInvalid) || errors.Is(err, anylock.ErrUnavailable) {
				t.Errorf("%s of %q, which is no row's %s: %v", how, c.lock, c.column, err)
			}
		}
	}
	_, err := postgres.Open(ctx10(t), urlOf(s, schema, "mode=rowlock", "table="+table, "column=nothing"))
	if _, ok := errors.AsType[*postgres.MissingRowError](err); ok || !errors.Is(err, anylock.ErrInvalid) {
		t.Errorf("a missing column: %v", err)
	}
}

// A lock may stand for several rows, and then has all of them or none.
func TestAdoptedGroupOfRows(t *testing.T) {
	s := server(t)
	schema := freshSchema(t, s)
	table := strings.TrimPrefix(schema, "schema=") + ".jobs"
	open(t, urlOf(s, schema, "mode=rowlock"))
	db := admin(t, s)
	db.exec("CREATE TABLE " + table + " (id bigint PRIMARY KEY, tenant text NOT NULL)")
	db.exec("INSERT INTO " + table + " VALUES (1, 'acme'), (2, 'acme'), (3, 'other')")
	l := locker(t, urlOf(s, schema, "mode=rowlock", "table="+table, "column=tenant"))
	ctx := ctx10(t)
	for _, id := range []string{"1", "2"} {
		tx := must(db.Begin(ctx))(t)
		must(tx.Exec(ctx, "SELECT FROM "+table+" WHERE id = "+id+" FOR UPDATE"))(t)
		if _, err := l.TryAcquire(ctx, "acme"); !errors.Is(err, anylock.ErrHeld) {
			t.Errorf("while legacy code has row %s: %v", id, err)
		}
		must(0, tx.Rollback(ctx))(t)
	}
	lease := must(l.TryAcquire(ctx, "acme"))(t)
	if n := value[int64](db, "SELECT count(*) FROM (SELECT FROM "+table+" WHERE tenant = 'acme' FOR UPDATE SKIP LOCKED) AS free"); n != 0 {
		t.Errorf("legacy code can lock %d rows of a lease", n)
	}
	must(0, lease.Release(ctx))(t)
}
