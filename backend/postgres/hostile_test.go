package postgres_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/backend/postgres"
	"github.com/anylock/anylock/conformance/containers"
)

// TestPoolerInUse: other sessions come and go all the time, so that what comes back is often the same by chance.
func TestPoolerInUse(t *testing.T) {
	s := containers.Postgres(t)
	db := admin(t, s)
	db.exec("ALTER DATABASE postgres SET statement_timeout = '7s'")
	db.exec("ALTER DATABASE postgres SET default_transaction_isolation = 'serializable'")
	bouncer := containers.PgBouncer(t, s)
	app := must(pgxpool.New(context.Background(), urlOf(bouncer, "default_query_exec_mode=simple_protocol", "pool_max_conns=6")))(t)
	defer app.Close()
	ctx, stop := context.WithCancel(t.Context())
	var traffic sync.WaitGroup
	for range 6 {
		traffic.Go(func() {
			for ctx.Err() == nil {
				_, _ = app.Exec(ctx, "SELECT pg_sleep(0.002)")
				time.Sleep(time.Millisecond)
			}
		})
	}
	for i := range 40 {
		mode := []string{"mode=advisory", "mode=rowlock"}[i%2]
		b, err := postgres.Open(ctx10(t), urlOf(bouncer, mode))
		if err == nil {
			_ = b.Close()
		}
		if !errors.Is(err, anylock.ErrInvalid) || !strings.Contains(err.Error(), "pooler") {
			t.Errorf("%s: %v", mode, err)
		}
	}
	a, b := locker(t, urlOf(bouncer)), locker(t, urlOf(bouncer))
	l := must(a.Acquire(ctx10(t), "n"))(t)
	wait, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := b.Acquire(wait, "n"); !errors.Is(err, anylock.ErrHeld) {
		t.Error(err)
	}
	must(0, l.Release(ctx10(t)))(t)
	stop()
	traffic.Wait()
	var open []pgx.Tx
	for range 4 { // all that the pooler has
		tx := must(app.Begin(ctx10(t)))(t)
		open = append(open, tx)
		var timeout, level string
		err := tx.QueryRow(ctx10(t), "SELECT current_setting('statement_timeout'), current_setting('default_transaction_isolation')").
			Scan(&timeout, &level)
		if err != nil || timeout != "7s" || level != "serializable" {
			t.Errorf("a session of the application: %s, %s, %v", timeout, level, err)
		}
	}
	for _, tx := range open {
		must(0, tx.Rollback(ctx10(t)))(t)
	}
}

// TestSessionOfAStandby: advisory locks work on one, and exclude nobody who uses the primary.
func TestSessionOfAStandby(t *testing.T) {
	s := server(t)
	for _, mode := range []string{"mode=advisory", "mode=rowlock"} {
		schema := freshSchema(t, s)
		open(t, urlOf(s, schema, mode)) // makes the tables
		pool := must(pgxpool.New(context.Background(), urlOf(s)))(t)
		defer pool.Close()
		settings := pool.Config()
		settings.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
		readOnly := must(pgxpool.NewWithConfig(context.Background(), settings))(t)
		defer readOnly.Close()
		b := must(postgres.New(readOnly, postgres.WithMode(postgres.Mode(strings.TrimPrefix(mode, "mode="))),
			postgres.WithSchema(strings.TrimPrefix(schema, "schema="))))(t)
		defer b.Close()
		_, err := b.Acquire(ctx10(t), request("n"))
		if !errors.Is(err, anylock.ErrUnavailable) || !strings.Contains(err.Error(), "default_transaction_read_only)") {
			t.Errorf("%s: %v", mode, err)
		}
	}
}

// TestSessionsAreLikeThePools: what the pool's hook sets decides which table a name means.
func TestSessionsAreLikeThePools(t *testing.T) {
	s := server(t)
	name := strings.TrimPrefix(freshSchema(t, s), "schema=")
	db := admin(t, s)
	db.exec("CREATE SCHEMA " + name)
	db.exec("CREATE TABLE " + name + ".hooked (id int PRIMARY KEY)")
	db.exec("INSERT INTO " + name + ".hooked VALUES (42)")
	settings := must(pgxpool.ParseConfig(urlOf(s)))(t)
	settings.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "SET search_path = "+name)
		return err
	}
	app := must(pgxpool.NewWithConfig(context.Background(), settings))(t)
	defer app.Close()
	b := must(postgres.New(app, postgres.WithMode(postgres.RowLock),
		postgres.WithAdopted(postgres.Adopted{Table: "hooked", Column: "id"})))(t)
	defer b.Close()
	tx := must(app.Begin(ctx10(t)))(t)
	must(tx.Exec(ctx10(t), "SELECT FROM hooked WHERE id = 42 FOR UPDATE"))(t)
	if _, err := b.Acquire(ctx10(t), request("42")); !errors.Is(err, anylock.ErrHeld) {
		t.Errorf("while the application has the row: %v", err)
	}
	must(0, tx.Rollback(ctx10(t)))(t)
	must(b.Acquire(ctx10(t), request("42")))(t)
}

// TestAdvisoryRepeatedRequest: what the second answer promises is what the lock is kept for.
func TestAdvisoryRepeatedRequest(t *testing.T) {
	b := open(t, urlOf(server(t), freshSchema(t, server(t)), "mode=advisory"))
	req := request("repeated")
	req.TTL = 800 * time.Millisecond
	must(b.Acquire(ctx10(t), req))(t)
	time.Sleep(600 * time.Millisecond)
	g := must(b.Acquire(ctx10(t), req))(t)
	time.Sleep(400 * time.Millisecond)
	if other, err := b.Acquire(ctx10(t), request("repeated")); !errors.Is(err, anylock.ErrHeld) {
		t.Errorf("another request, %v before the end of the promise: token %d, %v", time.Until(g.From.Add(g.TTL)), other.Token, err)
	}
	if err := b.Renew(ctx10(t), []anylock.Grant{g})[0].Err; err != nil {
		t.Errorf("Renew: %v", err)
	}
	if err := b.Release(ctx10(t), []anylock.Grant{g})[0]; err != nil {
		t.Errorf("Release: %v", err)
	}
}

// TestReadOnlyConnection: a connection that reached a standby does not stay in the pool.
func TestReadOnlyConnection(t *testing.T) {
	s := server(t)
	schema := freshSchema(t, s)
	open(t, urlOf(s, schema)) // makes the tables
	first := true
	settings := must(pgxpool.ParseConfig(urlOf(s, "pool_max_conns=1")))(t)
	settings.AfterConnect = func(ctx context.Context, c *pgx.Conn) (err error) {
		if first {
			_, err = c.Exec(ctx, "SET default_transaction_read_only = on")
		}
		first = false
		return err
	}
	pool := must(pgxpool.NewWithConfig(context.Background(), settings))(t)
	defer pool.Close()
	must(pool.Exec(ctx10(t), "SELECT 1"))(t)
	b := must(postgres.New(pool, postgres.WithSchema(strings.TrimPrefix(schema, "schema="))))(t)
	defer b.Close()
	must(b.Acquire(ctx10(t), request("n")))(t)
}
