package postgres_test

import (
	"context"
	cryptorand "crypto/rand"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/backend/postgres"
	"github.com/anylock/anylock/conformance/containers"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(containers.Main{M: m},
		// pgx says goodbye to servers that do not answer for up to 15 seconds.
		goleak.IgnoreAnyFunction("github.com/jackc/pgx/v5/pgconn.(*PgConn).asyncClose.func1"),
		goleak.IgnoreAnyFunction("github.com/testcontainers/testcontainers-go.(*Reaper).connect.func1"))
}

// server is the one that most tests share.
func server(t testing.TB) *containers.Server {
	t.Helper()
	return containers.Postgres(t, containers.Shared())
}

// urlOf is the URL of a server with parameters "name=value".
func urlOf(s *containers.Server, params ...string) string { return urlAt(s, s.Addr(), params...) }

func urlAt(s *containers.Server, addr string, params ...string) string {
	return "postgres://" + url.UserPassword(s.Username, s.Password).String() + "@" + addr + "/postgres?" +
		strings.Join(append([]string{"sslmode=disable"}, params...), "&")
}

// freshSchema makes parameters for tables of the test's own, which are dropped when it ends.
func freshSchema(t testing.TB, s *containers.Server) string {
	t.Helper()
	name := "test_" + strings.ToLower(cryptorand.Text())
	t.Cleanup(func() { admin(t, s).exec("DROP SCHEMA IF EXISTS " + name + " CASCADE") })
	return "schema=" + name
}

func open(t testing.TB, url string) *postgres.Backend {
	t.Helper()
	b, err := postgres.Open(ctx10(t), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func locker(t testing.TB, url string, opts ...anylock.Option) *anylock.Locker {
	t.Helper()
	l, err := anylock.Open(ctx10(t), url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

func ctx10(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// sql is a pool of the application, or an administrator.
type sql struct {
	testing.TB
	*pgxpool.Pool
}

func admin(t testing.TB, s *containers.Server) sql {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), urlOf(s, "application_name=admin", "pool_max_conns=4"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		closed := make(chan struct{})
		go func() {
			pool.Close() // waits for connections that a test which failed has left
			close(closed)
		}()
		select {
		case <-closed:
		case <-time.After(5 * time.Second):
			t.Error("connections were not given back")
		}
	})
	return sql{t, pool}
}

func (s sql) exec(query string, args ...any) {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if _, err := s.Exec(ctx, query, args...); err != nil {
		s.Fatalf("%s: %v", query, err)
	}
}

// value returns the one value of a query.
func value[T any](s sql, query string, args ...any) T {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	rows, _ := s.Query(ctx, query, args...)
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		s.Fatalf("%s: %v", query, err)
	}
	return v
}

// eventually polls until check is true.
func eventually(t testing.TB, limit time.Duration, what string, check func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !check(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func long() bool { return os.Getenv("ANYLOCK_TEST_LONG") != "" }
