package containers_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/anylock/anylock/conformance/containers"
)

func TestKilledRedisComesBackEmptyAtTheSameAddress(t *testing.T) {
	ctx := patience(t)
	server := containers.Redis(t, containers.Shared())
	client := newClient(t, server, nil)
	succeed(t, "SET", client.Set(ctx, "survives", "no", 0))

	if err := server.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	if err := client.Ping(ctx).Err(); err == nil {
		t.Fatal("a killed server answered")
	}
	if err := server.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if err := newClient(t, server, nil).Get(ctx, "survives").Err(); !errors.Is(err, redis.Nil) {
		t.Fatalf("GET after the restart: %v, want no such key", err)
	}
}

func TestAppendOnlyRedisSurvivesKill(t *testing.T) {
	ctx := patience(t)
	server := containers.Redis(t, containers.AppendOnly())
	succeed(t, "SET", newClient(t, server, nil).Set(ctx, "survives", "yes", 0))
	if err := server.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	value, err := newClient(t, server, nil).Get(ctx, "survives").Result()
	if err != nil || value != "yes" {
		t.Fatalf("GET after the restart: %q, %v", value, err)
	}
}

func TestPausedServerHangsAndResumes(t *testing.T) {
	ctx := patience(t)
	server := containers.Redis(t, containers.Shared())
	client := newClient(t, server, nil)
	succeed(t, "PING", client.Ping(ctx))

	if err := server.Pause(ctx); err != nil {
		t.Fatal(err)
	}
	pingHangs(t, client)
	if err := server.Resume(ctx); err != nil {
		t.Fatal(err)
	}
	succeed(t, "PING after Resume", newClient(t, server, nil).Ping(ctx))
}

func TestSharedServerWorksAgainAfterATestThatBrokeIt(t *testing.T) {
	ctx := patience(t)
	for name, breakIt := range map[string]func(*containers.Server) error{
		"pause": func(s *containers.Server) error { return s.Pause(ctx) },
		"kill":  func(s *containers.Server) error { return s.Kill(ctx) },
	} {
		var first *containers.Server
		t.Run(name, func(t *testing.T) {
			first = containers.Redis(t, containers.Shared())
			if err := breakIt(first); err != nil {
				t.Fatal(err)
			}
		})
		second := containers.Redis(t, containers.Shared())
		if first != second {
			t.Error("not shared")
		}
		succeed(t, "PING", newClient(t, second, nil).Ping(ctx))
	}
}

func TestNamedServerTakesNoFaults(t *testing.T) {
	t.Setenv("ANYLOCK_TEST_REDIS", "redis.example:6379")
	server := containers.Redis(t)
	if server.Addr() != "redis.example:6379" || server.CanFault() {
		t.Errorf("got %s, faults %t", server.URL(), server.CanFault())
	}
	if err := server.Kill(t.Context()); !errors.Is(err, containers.ErrNotOurs) {
		t.Errorf("Kill: %v, want ErrNotOurs", err)
	}
}

func TestExecReportsExitStatus(t *testing.T) {
	ctx := patience(t)
	server := containers.Redis(t, containers.Shared())
	if output, err := server.Exec(ctx, "echo", "hello"); err != nil || output != "hello\n" {
		t.Errorf("echo: %q, %v", output, err)
	}
	if _, err := server.Exec(ctx, "sh", "-c", "echo reason >&2; exit 3"); err == nil ||
		!strings.Contains(err.Error(), "exited with 3: reason") {
		t.Errorf("exit 3: %v", err)
	}
}

func TestValkey(t *testing.T) {
	info, err := newClient(t, containers.Valkey(t), nil).Info(patience(t), "server").Result()
	if err != nil || !strings.Contains(info, "server_name:valkey") {
		t.Errorf("INFO: %v %s", err, info)
	}
}

func TestRedisTLSUserIsLimitedToItsKeys(t *testing.T) {
	ctx := patience(t)
	server := containers.RedisTLS(t, containers.User{
		Name: "app", Password: "secret", Rules: []string{"~lock:*", "resetchannels", "&lock:*", "+@all", "-@dangerous"},
	})
	client := newClient(t, server, nil)
	succeed(t, "SET of its own key", client.Set(ctx, "lock:a", "1", 0))
	if err := client.Set(ctx, "other", "1", 0).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
		t.Errorf("SET of another key: %v, want NOPERM", err)
	}

	opts, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	opts.TLSConfig = server.TLS
	fromURL := redis.NewClient(opts)
	defer fromURL.Close()
	succeed(t, "PING by URL", fromURL.Ping(ctx))

	plain := newClient(t, &containers.Server{Addrs: server.Addrs}, nil)
	if err := plain.Ping(ctx).Err(); err == nil {
		t.Error("a client without TLS was served")
	}
}
