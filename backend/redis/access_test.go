package redis

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/conformance/containers"
)

var aclLine = regexp.MustCompile(`ACL SETUSER locker on >PASSWORD (.*)`)

// documentedRules are the rules in both documents, which must be the same.
func documentedRules(t *testing.T) []string {
	t.Helper()
	var first string
	for _, file := range []string{"doc.go", "../../docs/backends/redis.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := aclLine.FindStringSubmatch(string(text))
		if found == nil {
			t.Fatalf("%s has no ACL line", file)
		}
		if first == "" {
			first = found[1]
		}
		if found[1] != first {
			t.Fatalf("%s says %q, doc.go %q", file, found[1], first)
		}
	}
	return strings.Fields(first)
}

func setUser(t *testing.T, admin *redis.Client, rules ...string) {
	t.Helper()
	args := []any{"acl", "setuser", "locker", "reset", "on", ">pw"}
	for _, r := range rules {
		args = append(args, r)
	}
	if err := admin.Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
}

func locker(server *containers.Server) string { return "redis://locker:pw@" + server.Addr() }

// useAll does everything that a backend can do.
func useAll(t *testing.T, ctx context.Context, b *Backend) { //nolint:revive // t first
	t.Helper()
	woken := mustWatch(t, ctx, b, "x")
	for _, name := range []string{"x", "{a}b", "}{", "ü"} {
		g := mustAcquire(t, b, request(name, newID()))
		mustAcquire(t, b, request(name, g.ID))
		_, err := b.Acquire(t.Context(), request(name, newID()))
		_ = wantHeld(t, err)
		if r := b.Renew(t.Context(), []anylock.Grant{g})[0]; r.Err != nil {
			t.Fatal(r.Err)
		}
		mustRelease(t, b, g)
		wantClass(t, b.Release(t.Context(), []anylock.Grant{{Name: name, ID: newID()}})[0], anylock.ErrLost)
	}
	wantWoken(t, woken)
}

func TestDocumentedACLSuffices(t *testing.T) {
	for kind, start := range map[string]func(testing.TB, ...containers.Option) *containers.Server{
		"redis": containers.Redis, "valkey": containers.Valkey,
	} {
		t.Run(kind, func(t *testing.T) {
			server := start(t)
			admin := rawClient(t, server)
			setUser(t, admin, documentedRules(t)...)
			b := open(t, locker(server))
			ctx, cancel := context.WithCancel(t.Context())
			useAll(t, ctx, b)
			admin.ScriptFlush(t.Context())
			useAll(t, ctx, b)
			cancel()
			eventually(t, "the names are unsubscribed", func() bool { return len(admin.PubSubChannels(t.Context(), "*").Val()) == 0 })
			denied, err := admin.Do(t.Context(), "acl", "log").Slice()
			if err != nil || len(denied) != 0 {
				t.Errorf("denied: %v %v", denied, err)
			}

			setUser(t, admin, append(documentedRules(t), "+wait", "+select")...)
			waiting := open(t, locker(server)+"/3?wait=1&waittimeout=10ms")
			_, err = waiting.Acquire(t.Context(), request("x", newID()))
			wantClass(t, err, anylock.ErrUnavailable) // there is no replica
		})
	}
}

func TestMissingRightShowsBeforeALockIsTaken(t *testing.T) {
	server := containers.Redis(t)
	admin := rawClient(t, server)
	rules := documentedRules(t)
	for i, rule := range rules {
		if rule == "+ping" || rule == "+subscribe" || rule == "+unsubscribe" || !strings.HasPrefix(rule, "+") && !strings.HasPrefix(rule, "&") {
			continue
		}
		setUser(t, admin, append(append([]string{}, rules[:i]...), rules[i+1:]...)...)
		_, err := open(t, locker(server)).Acquire(t.Context(), request("x", newID()))
		if !errors.Is(err, anylock.ErrInvalid) || !strings.Contains(err.Error(), "ACL") {
			t.Errorf("without %s: %v, want ErrInvalid", rule, err)
		}
		if left := admin.Keys(t.Context(), "lock:x*").Val(); len(left) != 0 {
			t.Errorf("without %s: %v is left", rule, left)
		}
	}
	setUser(t, admin, append(rules, "-subscribe")...)
	_, err := open(t, locker(server)).Watch(t.Context(), "x")
	wantClass(t, err, anylock.ErrInvalid)
	setUser(t, admin, append(rules, "-ping")...)
	_, err = Open(t.Context(), locker(server))
	wantClass(t, err, anylock.ErrInvalid)
	setUser(t, admin, rules...)
	_, err = open(t, locker(server)+"?wait=1").Acquire(t.Context(), request("x", newID()))
	wantClass(t, err, anylock.ErrInvalid)
	_, err = open(t, locker(server)+"?prefix=other:").Acquire(t.Context(), request("x", newID()))
	wantClass(t, err, anylock.ErrInvalid)
}

// The right to publish may go while a lock is held: it must be freed all the same.
func TestReleaseWithoutTheRightToPublish(t *testing.T) {
	server := containers.Redis(t)
	admin := rawClient(t, server)
	setUser(t, admin, documentedRules(t)...)
	b := open(t, locker(server))
	g := mustAcquire(t, b, request("x", newID()))
	admin.Do(t.Context(), "acl", "setuser", "locker", "-publish")
	mustRelease(t, b, g)
	mustAcquire(t, b, request("x", newID()))
}

func TestPasswordIsRotated(t *testing.T) {
	server := containers.Redis(t)
	admin := rawClient(t, server)
	admin.Ping(t.Context())
	open(t, server.URL())
	if err := admin.ConfigSet(t.Context(), "requirepass", "n3w").Err(); err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{"redis://:0ld@" + server.Addr(), "redis://" + server.Addr()} {
		start := time.Now()
		_, err := Open(t.Context(), url)
		wantClass(t, err, anylock.ErrInvalid)
		if took := time.Since(start); took > time.Second {
			t.Errorf("took %v", took)
		}
		if strings.Contains(err.Error(), "0ld") {
			t.Errorf("%v shows the password", err)
		}
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: "0ld", ContextTimeoutEnabled: true})
	defer client.Close()
	b := over(t, client)
	for range 30 { // more than the pool has connections
		start := time.Now()
		_, err := b.Acquire(t.Context(), request("x", newID()))
		wantClass(t, err, anylock.ErrInvalid)
		_, err = b.Watch(t.Context(), "x")
		wantClass(t, err, anylock.ErrInvalid)
		if took := time.Since(start); took > time.Second {
			t.Fatalf("took %v", took)
		}
	}
	if err := admin.ConfigSet(t.Context(), "requirepass", "0ld").Err(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	mustAcquire(t, b, request("x", newID()))
	eventually(t, "Watch works again", func() bool { _, err := b.Watch(t.Context(), "x"); return err == nil })
	t.Logf("recovered after %v", time.Since(start).Round(time.Microsecond))
}

func TestTLS(t *testing.T) {
	user := containers.User{Name: "app", Password: "s3cret", Rules: documentedRules(t)}
	server := containers.RedisTLS(t, user)
	_, err := Open(t.Context(), server.URL())
	wantClass(t, err, anylock.ErrInvalid) // a certificate that nobody trusts
	if !strings.Contains(err.Error(), "ca=") || strings.Contains(err.Error(), "s3cret") {
		t.Error(err)
	}
	for _, url := range []string{ // TLS to a port without it, and the other way round
		strings.Replace(shared(t).URL(), "redis://", "rediss://", 1), strings.Replace(server.URL(), "rediss://", "redis://", 1),
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err = Open(ctx, url)
		cancel()
		wantClass(t, err, anylock.ErrUnavailable)
	}

	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: user.Name, Password: user.Password, TLSConfig: server.TLS})
	defer client.Close()
	useAll(t, t.Context(), over(t, client))

	d := newDialer(server.TLS)
	defer d.Close()
	conn, err := d.dial(t.Context(), "tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if len(d.conns) != 0 {
		t.Fatal("a closed connection is kept")
	}
}
