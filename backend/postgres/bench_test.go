package postgres_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/anylock/anylock"
)

// Each benchmark interleaves ours with the floor, what the same work costs by hand, and reports the ratio.

func BenchmarkLeaseAgainstUpdates(b *testing.B) {
	s := server(b)
	schema := freshSchema(b, s)
	backend := open(b, urlOf(s, schema))
	db := must(pgxpool.New(context.Background(), urlOf(s)))(b)
	defer db.Close()
	table := strings.TrimPrefix(schema, "schema=") + ".bare"
	must(db.Exec(context.Background(), "CREATE TABLE "+table+" (key text PRIMARY KEY, n bigint NOT NULL, who text) WITH (fillfactor = 50)"))(b)
	must(db.Exec(context.Background(), "INSERT INTO "+table+" VALUES ('n', 0)"))(b)
	ctx := context.Background()
	compare(b,
		func() {
			g := must(backend.Acquire(ctx, request("n")))(b)
			must(0, backend.Release(ctx, []anylock.Grant{g})[0])(b)
		},
		func() {
			for _, who := range []string{"me", ""} {
				must(db.Exec(ctx, "UPDATE "+table+" SET n = n + 1, who = $2 WHERE key = $1", "n", who))(b)
			}
		})
}

func BenchmarkRowLockAgainstForUpdate(b *testing.B) {
	s := server(b)
	schema := freshSchema(b, s)
	backend := open(b, urlOf(s, schema, "mode=rowlock"))
	db := must(pgxpool.New(context.Background(), urlOf(s)))(b)
	defer db.Close()
	ctx := context.Background()
	table := strings.TrimPrefix(schema, "schema=") + ".bare"
	must(db.Exec(ctx, "CREATE TABLE "+table+" (key text PRIMARY KEY)"))(b)
	must(db.Exec(ctx, "INSERT INTO "+table+" VALUES ('n')"))(b)
	compare(b,
		func() {
			g := must(backend.Acquire(ctx, request("n")))(b)
			must(0, backend.Release(ctx, []anylock.Grant{g})[0])(b)
		},
		func() {
			must(0, pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "SELECT 1 FROM "+table+" WHERE key = $1 FOR UPDATE", "n")
				return err
			}))(b)
		})
}

func BenchmarkAdvisory(b *testing.B) {
	s := server(b)
	backend := open(b, urlOf(s, freshSchema(b, s), "mode=advisory"))
	ctx := context.Background()
	for b.Loop() {
		g := must(backend.Acquire(ctx, request("n")))(b)
		must(0, backend.Release(ctx, []anylock.Grant{g})[0])(b)
	}
}

// The time from the release to the grant of somebody who waits in the server's queue.
func BenchmarkHandOver(b *testing.B) {
	s := server(b)
	for _, mode := range []string{"mode=lease", "mode=rowlock", "mode=advisory"} {
		b.Run(mode, func(b *testing.B) {
			schema := freshSchema(b, s)
			clients := [2]*anylock.Locker{locker(b, urlOf(s, schema, mode)), locker(b, urlOf(s, schema, mode))}
			ctx := context.Background()
			var took []time.Duration
			lease := must(clients[0].Acquire(ctx, "n"))(b)
			for i := 1; i <= b.N; i++ {
				got := make(chan *anylock.Lease)
				var at time.Time
				go func() {
					next := must(clients[i%2].Acquire(ctx, "n"))(b)
					at = time.Now()
					got <- next
				}()
				time.Sleep(20 * time.Millisecond)
				start := time.Now()
				must(0, lease.Release(ctx))(b)
				lease = <-got
				took = append(took, at.Sub(start))
			}
			_ = lease.Release(ctx)
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(0, "ns/op")
		})
	}
	b.Run("FOR UPDATE by hand", func(b *testing.B) {
		ctx := context.Background()
		db := must(pgxpool.New(ctx, urlOf(s)))(b)
		defer db.Close()
		schema := freshSchema(b, s)
		open(b, urlOf(s, schema))
		table := strings.TrimPrefix(schema, "schema=") + ".bare"
		must(db.Exec(ctx, "CREATE TABLE "+table+" (key text PRIMARY KEY)"))(b)
		must(db.Exec(ctx, "INSERT INTO "+table+" VALUES ('n')"))(b)
		lock := func() pgx.Tx {
			tx := must(db.Begin(ctx))(b)
			must(tx.Exec(ctx, "SELECT 1 FROM "+table+" WHERE key = $1 FOR UPDATE", "n"))(b)
			return tx
		}
		var took []time.Duration
		tx := lock()
		for range b.N {
			got := make(chan pgx.Tx)
			var at time.Time
			go func() {
				next := lock()
				at = time.Now()
				got <- next
			}()
			time.Sleep(20 * time.Millisecond)
			start := time.Now()
			must(0, tx.Commit(ctx))(b)
			tx = <-got
			took = append(took, at.Sub(start))
		}
		_ = tx.Rollback(ctx)
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
		b.ReportMetric(0, "ns/op")
	})
}

// compare runs two things in turns and reports how many times as quick ours is as the floor.
func compare(b *testing.B, ours, floor func()) {
	for range 50 {
		ours()
		floor()
	}
	var a, z time.Duration
	for b.Loop() {
		start := time.Now()
		ours()
		middle := time.Now()
		floor()
		a, z = a+middle.Sub(start), z+time.Since(middle)
	}
	b.ReportMetric(float64(a.Microseconds())/float64(b.N), "ours-µs")
	b.ReportMetric(float64(z.Microseconds())/float64(b.N), "floor-µs")
	b.ReportMetric(float64(z)/float64(a), "floor/ours")
	b.ReportMetric(0, "ns/op")
}
