package containers_test

import (
	"context"
	"net"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/anylock/anylock/conformance/containers"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(containers.Main{M: m},
		// The reaper of testcontainers, where there is one, is connected until the process ends.
		goleak.IgnoreAnyFunction("github.com/testcontainers/testcontainers-go.(*Reaper).connect.func1"),
		// go-redis tries a server that was down once more, up to a second after its client is closed.
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// dialer is how a go-redis client is put on a network.
type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// short is how long a test waits for something that should not happen.
const short = 300 * time.Millisecond

func patience(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// newClient connects to a single node, without the driver's own retries, which would hide faults.
func newClient(t *testing.T, server *containers.Server, dial dialer) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr:                  server.Addr(),
		Username:              server.Username,
		Password:              server.Password,
		TLSConfig:             server.TLS,
		Dialer:                dial,
		MaxRetries:            -1,
		PoolSize:              1, // so that the connection that was warmed up is the one in use
		ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func succeed(t *testing.T, what string, cmd redis.Cmder) {
	t.Helper()
	if err := cmd.Err(); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// pingHangs asserts that a PING gets no answer, and no error either, until its context ends.
func pingHangs(t *testing.T, client *redis.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), short)
	defer cancel()
	start := time.Now()
	err := client.Ping(ctx).Err()
	if err == nil {
		t.Fatal("PING was answered")
	}
	if waited := time.Since(start); waited < short {
		t.Fatalf("PING failed after %v, with %v: the fault was noticed", waited, err)
	}
}

func TestRequireTurnsSkipIntoFailure(t *testing.T) {
	if os.Getenv("ANYLOCK_TEST_CONTAINERS") == "require" {
		t.Skip("the outcome is the same")
	}
	t.Setenv("ANYLOCK_TEST_CONTAINERS", "require")
	containers.Redis(t, containers.Shared())
}
