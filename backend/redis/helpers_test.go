package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/conformance/containers"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(holderVariable); url != "" {
		holdUntilLost(url)
		return
	}
	redis.SetLogger(quiet{})
	goleak.VerifyTestMain(containers.Main{M: m},
		goleak.IgnoreAnyFunction("github.com/testcontainers/testcontainers-go.(*Reaper).connect.func1"),
		// go-redis tries a server that was down once more, up to a second after its client is closed.
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// quiet keeps what go-redis says about servers that tests have broken out of their output.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// shared is a server for tests that keep to names of their own.
func shared(t testing.TB) *containers.Server {
	t.Helper()
	return containers.Redis(t, containers.Shared())
}

func newID() string { return rand.Text() }

// unique makes a lock's name that no other test has.
func unique(t testing.TB) string { return t.Name() + "-" + rand.Text()[:6] }

func request(name, id string) anylock.Request {
	return anylock.Request{Name: name, ID: id, TTL: 10 * time.Second, Holder: "test"}
}

// rawClient is the other side: a client without anylock.
func rawClient(t testing.TB, s *containers.Server) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{
		Addr: s.Addr(), Username: s.Username, Password: s.Password, TLSConfig: s.TLS, ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func over(t testing.TB, client redis.UniversalClient, opts ...Option) *Backend {
	t.Helper()
	b, err := New(client, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func open(t testing.TB, url string) *Backend {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	b, err := Open(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func mustAcquire(t testing.TB, b *Backend, req anylock.Request) anylock.Grant {
	t.Helper()
	g, err := b.Acquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func mustRelease(t testing.TB, b *Backend, g anylock.Grant) {
	t.Helper()
	if err := b.Release(t.Context(), []anylock.Grant{g})[0]; err != nil {
		t.Fatal(err)
	}
}

func wantHeld(t testing.TB, err error) *anylock.HeldError {
	t.Helper()
	held := (*anylock.HeldError)(nil)
	if !errors.As(err, &held) {
		t.Fatalf("%v, want a HeldError", err)
	}
	return held
}

func wantClass(t testing.TB, err, class error) {
	t.Helper()
	if !errors.Is(err, class) {
		t.Fatalf("%v, want %v", err, class)
	}
}
