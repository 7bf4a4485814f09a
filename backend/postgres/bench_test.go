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

// BenchmarkHandOver takes the time from the release to the grant of a single waiter; the floor is SELECT ... FOR UPDATE by
// hand, in the server's queue.
func BenchmarkHandOver(b *testing.B) {
	s := server(b)
	ctx := context.Background()
	db := must(pgxpool.New(ctx, urlOf(s)))(b)
	defer db.Close()
	for _, mode := range []string{"mode=lease", "mode=rowlock", "mode=advisory"} {
		b.Run(mode, func(b *testing.B) {
			schema := freshSchema(b, s)
			clients := [2]*anylock.Locker{locker(b, urlOf(s, schema, mode)), locker(b, urlOf(s, schema, mode))}
			turn := 0
			handOver(b, db, func() func() {
				turn++
				lease := must(clients[turn%2].Acquire(ctx, "n"))(b)
				return func() { must(0, lease.Release(ctx))(b) }
			})
		})
	}
	b.Run("FOR UPDATE by hand", func(b *testing.B) {
		schema := freshSchema(b, s)
		open(b, urlOf(s, schema))
		table := strings.TrimPrefix(schema, "schema=") + ".bare"
		must(db.Exec(ctx, "CREATE TABLE "+table+" (key text PRIMARY KEY)"))(b)
		must(db.Exec(ctx, "INSERT INTO "+table+" VALUES ('n')"))(b)
		handOver(b, db, func() func() {
			tx := must(db.Begin(ctx))(b)
			must(tx.Exec(ctx, "SELECT 1 FROM "+table+" WHERE key = $1 FOR UPDATE", "n"))(b)
			return func() { must(0, tx.Commit(ctx))(b) }
		})
	})
}

// handOver hands a lock on b.N times.
func handOver(b *testing.B, db *pgxpool.Pool, lock func() (unlock func())) {
	took := make([]time.Duration, 0, b.N)
	unlock := lock()
	for range b.N {
		type turn struct {
			at     time.Time
			unlock func()
		}
		got := make(chan turn)
		go func() {
			next := lock()
			got <- turn{time.Now(), next}
		}()
		// Until the waiter surely waits. Not asleep, since a machine at rest takes most of a millisecond to hear anything.
		for start := time.Now(); time.Since(start) < 20*time.Millisecond; {
			must(db.Exec(context.Background(), "SELECT 1"))(b)
		}
		start := time.Now()
		unlock()
		next := <-got
		unlock = next.unlock
		took = append(took, next.at.Sub(start))
	}
	unlock()
	b.ReportMetric(median(took), "p50-µs")
	b.ReportMetric(0, "ns/op")
}

// compare runs two things in turns and reports how many times as quick ours is as the floor, by their medians: a disk that
// is slow now and then is not the difference between them.
func compare(b *testing.B, ours, floor func()) {
	for range 50 {
		ours()
		floor()
	}
	var took, bare []time.Duration
	for b.Loop() {
		start := time.Now()
		ours()
		middle := time.Now()
		floor()
		took, bare = append(took, middle.Sub(start)), append(bare, time.Since(middle))
	}
	b.ReportMetric(median(took), "ours-µs")
	b.ReportMetric(median(bare), "floor-µs")
	b.ReportMetric(median(bare)/median(took), "floor/ours")
	b.ReportMetric(0, "ns/op")
}

// median is in microseconds.
func median(took []time.Duration) float64 {
	slices.Sort(took)
	return float64(took[len(took)/2].Nanoseconds()) / 1000
}
