package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/backend/postgres"
	"github.com/anylock/anylock/conformance"
	"github.com/anylock/anylock/conformance/containers"
)

func TestConformanceLease(t *testing.T) {
	s := containers.Postgres(t)
	h := harness(t, s)
	db := admin(t, s)
	h.Steal = func(ctx context.Context, name string) error {
		tag, err := db.Exec(ctx, "UPDATE anylock SET id = NULL WHERE name = $1 AND expires_at > clock_timestamp()", name)
		if err == nil && tag.RowsAffected() == 0 {
			err = fmt.Errorf("%q is not held", name)
		}
		return err
	}
	h.Leftovers = func(ctx context.Context) ([]string, error) {
		return lines(ctx, db, `SELECT 'lease '||name FROM anylock WHERE id IS NOT NULL AND expires_at > clock_timestamp()
			UNION ALL SELECT 'waits '||pid FROM pg_locks WHERE NOT granted`)
	}
	conformance.Run(t, h)
}

func TestConformanceRowLock(t *testing.T) {
	s := containers.Postgres(t)
	conformance.Run(t, sessionHarness(t, s, "mode=rowlock"))
}

func TestConformanceAdopted(t *testing.T) {
	s := containers.Postgres(t)
	db := admin(t, s)
	db.exec("CREATE TABLE jobs (key text PRIMARY KEY, n bigint NOT NULL DEFAULT 0)")
	h := sessionHarness(t, s, "mode=rowlock", "table=jobs", "column=key")
	open := h.Open
	h.Open = func(ctx context.Context) (conformance.Client, error) {
		c, err := open(ctx)
		if err == nil {
			c.Backend = &withRows{c.Backend, db}
		}
		return c, err
	}
	h.Foreign = func(ctx context.Context, name string) (func(context.Context) error, error) {
		db.exec("INSERT INTO jobs (key) VALUES ($1) ON CONFLICT DO NOTHING", name)
		tx, err := db.Begin(ctx)
		if err != nil {
			return nil, err
		}
		if _, err = tx.Exec(ctx, "SELECT FROM jobs WHERE key = $1 FOR UPDATE NOWAIT", name); err != nil {
			_ = tx.Rollback(ctx)
			return nil, fmt.Errorf("%w: %w", anylock.ErrHeld, err)
		}
		return func(ctx context.Context) error {
			if _, err := tx.Exec(ctx, "UPDATE jobs SET n = n + 1 WHERE key = $1", name); err != nil {
				return err
			}
			return tx.Commit(ctx)
		}, nil
	}
	conformance.Run(t, h)
}

func TestConformanceAdvisory(t *testing.T) {
	s := containers.Postgres(t)
	conformance.Run(t, sessionHarness(t, s, "mode=advisory"))
}

// withRows is an application that makes the row of a lock before it takes the lock.
type withRows struct {
	anylock.Backend
	db sql
}

func (b *withRows) Acquire(ctx context.Context, req anylock.Request) (anylock.Grant, error) {
	if _, err := b.db.Exec(ctx, "INSERT INTO jobs (key) VALUES ($1) ON CONFLICT DO NOTHING", req.Name); err != nil {
		return anylock.Grant{}, err
	}
	return b.Backend.Acquire(ctx, req)
}

// sessionHarness is for modes whose lock is a session's.
func sessionHarness(t *testing.T, s *containers.Server, params ...string) conformance.Harness {
	h := harness(t, s, append(params, "conns=40")...)
	h.MaxHolds = 30
	h.TellsLoss = true
	db := admin(t, s)
	h.Leftovers = func(ctx context.Context) ([]string, error) {
		return lines(ctx, db, `SELECT state||' '||pid||' '||query FROM pg_stat_activity
			WHERE backend_type = 'client backend' AND state <> 'idle' AND application_name <> 'admin'
			UNION ALL SELECT 'advisory '||pid||' '||objid FROM pg_locks WHERE locktype = 'advisory'`)
	}
	return h
}

// harness is what the modes share.
func harness(t *testing.T, s *containers.Server, params ...string) conformance.Harness {
	return conformance.Harness{
		Open: func(ctx context.Context) (conformance.Client, error) {
			scope := &scope{TB: t}
			network := containers.NewNetwork(scope)
			b, err := postgres.Open(ctx, urlAt(s, network.Addr(t, s.Addr()), params...))
			return conformance.Client{
				Backend: b, Close: scope.end, Cut: network.Cut, Heal: network.Heal, Slow: network.Slow, Stall: network.Stall,
				DropReply: func() { network.DropReply("") },
			}, err
		},
		TTL:              time.Second,
		Secret:           s.Password,
		IgnoreGoroutines: []string{"github.com/jackc/pgx/v5/pgconn.(*PgConn).asyncClose.func1"},
		Pause:            s.Pause, Resume: s.Resume,
		Kill: s.Kill, Start: s.Restart,
	}
}

func lines(ctx context.Context, db sql, query string, args ...any) ([]string, error) {
	rows, _ := db.Query(ctx, query, args...)
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// scope ends what belongs to one client before the test ends.
type scope struct {
	testing.TB
	cleanups []func()
}

func (s *scope) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

func (s *scope) end() {
	for _, f := range s.cleanups {
		f()
	}
}
