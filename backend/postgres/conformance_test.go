package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

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

// harness is what the modes share.
func harness(t *testing.T, s *containers.Server, params ...string) conformance.Harness {
	return conformance.Harness{
		Open: func(ctx context.Context) (conformance.Client, error) {
			network := containers.NewNetwork(t)
			b, err := postgres.Open(ctx, urlAt(s, network.Addr(t, s.Addr()), params...))
			return conformance.Client{
				Backend: b, Cut: network.Cut, Heal: network.Heal, Slow: network.Slow,
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
