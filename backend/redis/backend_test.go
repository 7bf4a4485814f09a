package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/conformance/containers"
)

func TestAcquireRenewRelease(t *testing.T) {
	for kind, start := range map[string]func(testing.TB, ...containers.Option) *containers.Server{
		"redis": containers.Redis, "valkey": containers.Valkey,
	} {
		t.Run(kind, func(t *testing.T) {
			server := start(t, containers.Shared())
			b, raw, name := open(t, server.URL()), rawClient(t, server), unique(t)
			g := mustAcquire(t, b, request(name, newID()))
			if g.Token <= 0 || g.TTL != 10*time.Second || time.Since(g.From) > 5*time.Second {
				t.Fatalf("%+v", g)
			}
			value := raw.Get(t.Context(), "lock:"+name).Val()
			if want := g.ID + ":" + strconv.FormatInt(int64(g.Token), 10) + ":test"; value != want {
				t.Fatalf("the key has %q, want %q", value, want)
			}
			_, err := b.Acquire(t.Context(), request(name, newID()))
			held := wantHeld(t, err)
			if held.Holder != "test" || held.RetryAfter <= 9*time.Second || held.RetryAfter > 10*time.Second+time.Millisecond {
				t.Fatalf("%+v", held)
			}
			raw.PExpire(t.Context(), "lock:"+name, time.Second)
			if r := b.Renew(t.Context(), []anylock.Grant{g})[0]; r.Err != nil || r.TTL != g.TTL || !r.From.After(g.From) {
				t.Fatalf("%+v", r)
			}
			if left := raw.PTTL(t.Context(), "lock:"+name).Val(); left < 9*time.Second || left > 10*time.Second {
				t.Fatalf("renewed to %v", left)
			}
			mustRelease(t, b, g)
			if n := raw.Exists(t.Context(), "lock:"+name).Val(); n != 0 {
				t.Fatal("the key is still there")
			}
			wantClass(t, b.Renew(t.Context(), []anylock.Grant{g})[0].Err, anylock.ErrLost)
			if next := mustAcquire(t, b, request(name, newID())); next.Token <= g.Token {
				t.Fatalf("token %d after %d", next.Token, g.Token)
			}
		})
	}
}

func TestAcquireIsIdempotent(t *testing.T) {
	server := shared(t)
	b, raw, name := open(t, server.URL()), rawClient(t, server), unique(t)
	first := mustAcquire(t, b, request(name, newID()))
	raw.PExpire(t.Context(), "lock:"+name, time.Second)
	again := mustAcquire(t, b, request(name, first.ID))
	if again.Token != first.Token {
		t.Fatalf("token %d, then %d", first.Token, again.Token)
	}
	if left := raw.PTTL(t.Context(), "lock:"+name).Val(); left < 9*time.Second {
		t.Fatalf("the repeated acquire left %v", left)
	}
	_, err := b.Acquire(t.Context(), request(name, first.ID[:len(first.ID)-1])) // a prefix of an ID is another ID
	_ = wantHeld(t, err)
}

func TestRepliesLost(t *testing.T) {
	server := shared(t)
	network := containers.NewNetwork(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Dialer: network.DialContext, ContextTimeoutEnabled: true})
	defer client.Close()
	b, raw, name := over(t, client), rawClient(t, server), unique(t)
	mustRelease(t, b, mustAcquire(t, b, request(unique(t), newID()))) // warm

	network.DropReply("evalsha")
	g := mustAcquire(t, b, request(name, newID())) // go-redis repeats it by itself
	network.DropReply("evalsha")
	mustRelease(t, b, g)

	grants := []anylock.Grant{mustAcquire(t, b, request(name, newID())), mustAcquire(t, b, request(name+"2", newID()))}
	network.DropReply(grants[1].ID)
	for i, err := range b.Release(t.Context(), grants) {
		if err != nil {
			t.Fatalf("release %d in a batch: %v", i, err)
		}
	}

	// Somebody else may have come in between.
	g = mustAcquire(t, b, request(name, newID()))
	mustRelease(t, b, g)
	other := mustAcquire(t, b, request(name, newID()))
	mustRelease(t, b, g) // again
	if !strings.HasPrefix(raw.Get(t.Context(), "lock:"+name).Val(), other.ID) {
		t.Fatal("the repeated release has freed another's lock")
	}
}

// A release that is repeated is told of a loss only if there was one.
func TestReleaseAgain(t *testing.T) {
	server := shared(t)
	network := containers.NewNetwork(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Dialer: network.DialContext, ContextTimeoutEnabled: true})
	defer client.Close()
	b, raw, name := over(t, client), rawClient(t, server), unique(t)
	mustRelease(t, b, mustAcquire(t, b, request(name, newID()))) // warm
	g := mustAcquire(t, b, request(name, newID()))
	network.Slow(300 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	wantClass(t, b.Release(ctx, []anylock.Grant{g})[0], anylock.ErrUnavailable)
	network.Slow(0)
	mustRelease(t, b, g)
	mustRelease(t, b, g)
	stolen := mustAcquire(t, b, request(name, newID()))
	raw.Del(t.Context(), "lock:"+name)
	for range 2 {
		wantClass(t, b.Release(t.Context(), []anylock.Grant{stolen})[0], anylock.ErrLost)
	}
}

func TestLateDuplicates(t *testing.T) {
	b, name := open(t, shared(t).URL()), unique(t)
	g := mustAcquire(t, b, request(name, newID()))
	mustRelease(t, b, g)
	_, err := b.Acquire(t.Context(), request(name, g.ID))
	wantClass(t, err, anylock.ErrLost)

	// The undo of an acquire may overtake it.
	id := newID()
	never := []anylock.Grant{{Name: name, ID: id}}
	wantClass(t, b.Release(t.Context(), never)[0], anylock.ErrLost)
	wantClass(t, b.Release(t.Context(), never)[0], anylock.ErrLost)
	_, err = b.Acquire(t.Context(), request(name, id))
	wantClass(t, err, anylock.ErrLost)
	if next := mustAcquire(t, b, request(name, newID())); next.Token <= g.Token {
		t.Fatalf("token %d after %d", next.Token, g.Token)
	}
}

func TestStaleHolderChangesNothing(t *testing.T) {
	server := shared(t)
	b, raw, name := open(t, server.URL()), rawClient(t, server), unique(t)
	a := mustAcquire(t, b, request(name, newID()))
	raw.Del(t.Context(), "lock:"+name) // as if expired
	c := request(name, newID())
	c.TTL = time.Minute
	mustAcquire(t, b, c)
	wantClass(t, b.Renew(t.Context(), []anylock.Grant{a})[0].Err, anylock.ErrLost)
	wantClass(t, b.Release(t.Context(), []anylock.Grant{a})[0], anylock.ErrLost)
	if left := raw.PTTL(t.Context(), "lock:"+name).Val(); left < 50*time.Second {
		t.Fatalf("the next holder has %v left", left)
	}
}

func TestTTLs(t *testing.T) {
	server := shared(t)
	b, raw := open(t, server.URL()), rawClient(t, server)
	for ask, want := range map[time.Duration]time.Duration{
		10 * time.Millisecond: 10 * time.Millisecond, 1500*time.Millisecond + 1: 1501 * time.Millisecond, maxTTL: maxTTL,
	} {
		req := request(unique(t), newID())
		req.TTL = ask
		g := mustAcquire(t, b, req)
		if g.TTL != want {
			t.Errorf("asked for %v, got %v", ask, g.TTL)
		}
		if left := raw.PTTL(t.Context(), "lock:"+req.Name).Val(); ask > time.Second && (left > want || left < want-time.Second) {
			t.Errorf("asked for %v, the key has %v", ask, left)
		}
	}
	for _, ttl := range []time.Duration{0, -1, time.Millisecond, maxTTL + 1, 1<<63 - 1} {
		req := request(unique(t), newID())
		req.TTL = ttl
		_, err := b.Acquire(t.Context(), req)
		wantClass(t, err, anylock.ErrInvalid)
		g := mustAcquire(t, b, request(req.Name, req.ID))
		g.TTL = ttl
		wantClass(t, b.Renew(t.Context(), []anylock.Grant{g})[0].Err, anylock.ErrInvalid)
		mustRelease(t, b, g)
	}
}

func TestRetryAfterIsWhenTheLockIsFree(t *testing.T) {
	b, name := open(t, shared(t).URL()), unique(t)
	for range 20 {
		req := request(name, newID())
		req.TTL = 20 * time.Millisecond
		mustAcquire(t, b, req)
		_, err := b.Acquire(t.Context(), request(name, newID()))
		time.Sleep(wantHeld(t, err).RetryAfter)
		mustRelease(t, b, mustAcquire(t, b, request(name, newID())))
	}
}

func TestTokensGrow(t *testing.T) {
	server := containers.Redis(t)
	b, raw, name := open(t, server.URL()), rawClient(t, server), unique(t)
	k := keysFor("lock:", name)
	var last anylock.Token
	for _, after := range []struct {
		what string
		do   func(g anylock.Grant) error
	}{
		{"release", func(g anylock.Grant) error { return b.Release(t.Context(), []anylock.Grant{g})[0] }},
		{"loss of the lock", func(anylock.Grant) error { return raw.Del(t.Context(), k.lock).Err() }},
		{"loss of both keys", func(anylock.Grant) error { return raw.Del(t.Context(), k.lock, k.counter).Err() }},
		{"FLUSHALL", func(anylock.Grant) error { return raw.FlushAll(t.Context()).Err() }},
		{"a garbled counter", func(anylock.Grant) error {
			return errors.Join(raw.Del(t.Context(), k.lock).Err(), raw.Set(t.Context(), k.counter, "garbled", 0).Err())
		}},
		{"restart", func(anylock.Grant) error { return server.Restart(t.Context()) }},
		{"nothing more", func(anylock.Grant) error { return nil }},
	} {
		g := mustAcquire(t, b, request(name, newID()))
		if g.Token <= last {
			t.Fatalf("token %d after %d, before %s", g.Token, last, after.what)
		}
		last = g.Token
		if err := after.do(g); err != nil {
			t.Fatalf("%s: %v", after.what, err)
		}
	}
}

func TestMinToken(t *testing.T) {
	server := shared(t)
	b, raw, name := open(t, server.URL()), rawClient(t, server), unique(t)
	next := func(least anylock.Token) anylock.Token {
		req := request(name, newID())
		req.MinToken = least
		g := mustAcquire(t, b, req)
		mustRelease(t, b, g)
		return g.Token
	}
	for _, step := range []struct{ least, want anylock.Token }{{7, 7}, {7, 8}, {5, 9}, {1000, 1000}} {
		if got := next(step.least); got != step.want {
			t.Errorf("MinToken %d gave %d, want %d: the time must not come in", step.least, got, step.want)
		}
	}
	byTime := next(0)
	if byTime < anylock.Token(time.Now().Add(-time.Hour).UnixMicro()) {
		t.Errorf("without MinToken %d, want the time in microseconds", byTime)
	}
	if got := next(1001); got != byTime+1 {
		t.Errorf("%d after %d", got, byTime)
	}
	ahead := byTime + anylock.Token((48 * time.Hour).Microseconds())
	if got := next(ahead); got != ahead {
		t.Errorf("MinToken %d gave %d", ahead, got)
	}
	if keep := raw.PTTL(t.Context(), keysFor("lock:", name).counter).Val(); keep < 48*time.Hour || keep > 50*time.Hour {
		t.Errorf("the counter is 48h ahead of the time and is kept for %v, want 49h", keep)
	}
	if got := next(maxToken); got != maxToken {
		t.Errorf("MinToken %d gave %d", int64(maxToken), got)
	}
	for _, least := range []anylock.Token{0, maxToken, maxToken + 1} {
		req := request(name, newID())
		req.MinToken = least
		_, err := b.Acquire(t.Context(), req)
		wantClass(t, err, anylock.ErrInvalid)
	}
}

func TestCountersExpire(t *testing.T) {
	server := shared(t)
	b, raw, name := open(t, server.URL()), rawClient(t, server), unique(t)
	counter := keysFor("lock:", name).counter
	kept := func(least, most time.Duration) {
		t.Helper()
		if left := raw.PTTL(t.Context(), counter).Val(); left < least || left > most {
			t.Fatalf("the counter is kept for %v, want %v to %v", left, least, most)
		}
	}
	g := mustAcquire(t, b, request(name, newID()))
	kept(59*time.Minute, time.Hour)
	mustRelease(t, b, g)
	kept(59*time.Minute, time.Hour)
	long := request(name, newID())
	long.TTL = 5 * time.Hour
	mustRelease(t, b, mustAcquire(t, b, long))
	kept(5*time.Hour-time.Minute, 5*time.Hour)
}

func TestForeignLocks(t *testing.T) {
	server := shared(t)
	b, raw, name := open(t, server.URL()+"?prefix="), rawClient(t, server), unique(t)
	compareAndDelete := redis.NewScript(`if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`)
	foreign := func(ttl time.Duration) bool {
		err := raw.SetArgs(t.Context(), name, "c29tZSByYW5kb20gdmFsdWU=", redis.SetArgs{Mode: "NX", TTL: ttl}).Err()
		return err == nil
	}

	if !foreign(10 * time.Second) {
		t.Fatal("a free name was refused")
	}
	_, err := b.Acquire(t.Context(), request(name, newID()))
	if held := wantHeld(t, err); held.RetryAfter < 9*time.Second || held.Holder != "" {
		t.Fatalf("%+v", held)
	}
	raw.Persist(t.Context(), name)
	_, err = b.Acquire(t.Context(), request(name, newID()))
	if held := wantHeld(t, err); held.RetryAfter != 0 {
		t.Fatalf("a key without TTL expires in %v", held.RetryAfter)
	}
	wantClass(t, b.Release(t.Context(), []anylock.Grant{{Name: name, ID: newID()}})[0], anylock.ErrLost)
	if n := compareAndDelete.Run(t.Context(), raw, []string{name}, "c29tZSByYW5kb20gdmFsdWU=").Val(); n != int64(1) {
		t.Fatal("the foreign lock was changed")
	}

	g := mustAcquire(t, b, request(name, newID()))
	if foreign(time.Second) {
		t.Fatal("SET NX took what anylock holds")
	}
	if n := compareAndDelete.Run(t.Context(), raw, []string{name}, "c29tZSByYW5kb20gdmFsdWU=").Val(); n != int64(0) {
		t.Fatal("foreign code could free it")
	}
	mustRelease(t, b, g)
	if !foreign(time.Second) {
		t.Fatal("it is not free for others")
	}
}

func TestWrongType(t *testing.T) {
	server := shared(t)
	b, raw, name := open(t, server.URL()), rawClient(t, server), unique(t)
	raw.RPush(t.Context(), "lock:"+name, "x")
	_, err := b.Acquire(t.Context(), request(name, newID()))
	wantClass(t, err, anylock.ErrInvalid)
	wantClass(t, b.Renew(t.Context(), []anylock.Grant{{Name: name, ID: newID(), TTL: time.Second}})[0].Err, anylock.ErrInvalid)
	results := b.Release(t.Context(), []anylock.Grant{{Name: name, ID: newID()}, mustAcquire(t, b, request(name+"2", newID()))})
	wantClass(t, results[0], anylock.ErrInvalid)
	if results[1] != nil {
		t.Fatalf("one bad element failed another: %v", results[1])
	}
	if raw.LLen(t.Context(), "lock:"+name).Val() != 1 {
		t.Fatal("the list was changed")
	}
}

func TestServerForgetsScripts(t *testing.T) {
	server := containers.Redis(t)
	b, raw := open(t, server.URL()), rawClient(t, server)
	flush := func() {
		t.Helper()
		if err := raw.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	one := func() { // each operation alone
		name := unique(t)
		flush()
		g := mustAcquire(t, b, request(name, newID()))
		flush()
		if r := b.Renew(t.Context(), []anylock.Grant{g})[0]; r.Err != nil {
			t.Fatal(r.Err)
		}
		flush()
		mustRelease(t, b, g)
	}
	one()
	one()
	var grants []anylock.Grant
	for i := range 50 {
		grants = append(grants, mustAcquire(t, b, request(fmt.Sprint(unique(t), i), newID())))
	}
	flush()
	for _, r := range b.Renew(t.Context(), grants) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	flush()
	for _, err := range b.Release(t.Context(), grants) {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestBatches(t *testing.T) {
	b := open(t, shared(t).URL())
	name := unique(t)
	var grants []anylock.Grant
	for i := range maxBatch {
		grants = append(grants, mustAcquire(t, b, request(fmt.Sprint(name, i), newID())))
	}
	grants[7].ID = newID()
	for i, r := range b.Renew(t.Context(), grants) {
		if lost := errors.Is(r.Err, anylock.ErrLost); lost != (i == 7) || !lost && r.Err != nil {
			t.Fatalf("renew %d: %v", i, r.Err)
		}
	}
	for i, err := range b.Release(t.Context(), grants) {
		if lost := errors.Is(err, anylock.ErrLost); lost != (i == 7) || !lost && err != nil {
			t.Fatalf("release %d: %v", i, err)
		}
	}
	if n := len(b.Renew(t.Context(), nil)) + len(b.Release(t.Context(), nil)); n != 0 {
		t.Fatal("something out of nothing")
	}
}

func TestOutOfMemory(t *testing.T) {
	server := containers.Redis(t)
	b, raw, name := open(t, server.URL()), rawClient(t, server), unique(t)
	g := mustAcquire(t, b, request(name, newID()))
	raw.ConfigSet(t.Context(), "maxmemory", "1")
	_, err := b.Acquire(t.Context(), request(name+"2", newID()))
	wantClass(t, err, anylock.ErrUnavailable)
	if r := b.Renew(t.Context(), []anylock.Grant{g})[0]; r.Err != nil {
		t.Fatal(r.Err)
	}
	mustRelease(t, b, g)
	wantClass(t, b.Release(t.Context(), []anylock.Grant{{Name: name, ID: newID()}})[0], anylock.ErrLost)
}

func TestReplicaSaysNothing(t *testing.T) {
	server := containers.Redis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
	defer client.Close()
	b, raw, name := over(t, client), rawClient(t, server), unique(t)
	gone := mustAcquire(t, b, request(name, newID()))
	mustRelease(t, b, gone)
	held := unique(t)
	mustAcquire(t, b, request(held, newID()))
	raw.Do(t.Context(), "replicaof", "127.0.0.1", "1")
	never := []anylock.Grant{{Name: name, ID: newID(), TTL: time.Second}}
	_, err := b.Acquire(t.Context(), request(name, newID()))
	wantClass(t, err, anylock.ErrUnavailable)
	_, err = b.Acquire(t.Context(), request(name, gone.ID))
	wantClass(t, err, anylock.ErrUnavailable)
	another := []anylock.Grant{{Name: held, ID: newID(), TTL: time.Second}}
	_, err = b.Acquire(t.Context(), request(held, another[0].ID))
	wantClass(t, err, anylock.ErrUnavailable)
	wantClass(t, b.Renew(t.Context(), another)[0].Err, anylock.ErrUnavailable)
	wantClass(t, b.Release(t.Context(), another)[0], anylock.ErrUnavailable)
	wantClass(t, b.Renew(t.Context(), never)[0].Err, anylock.ErrUnavailable)
	wantClass(t, b.Release(t.Context(), never)[0], anylock.ErrUnavailable)
}

func TestRoundTrips(t *testing.T) {
	server := shared(t)
	network := containers.NewNetwork(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Dialer: network.DialContext, ContextTimeoutEnabled: true})
	defer client.Close()
	b, name := over(t, client), unique(t)
	cost := func(do func()) int {
		before := network.RoundTrips()
		do()
		return network.RoundTrips() - before
	}
	var g anylock.Grant
	acquire := func() { g = mustAcquire(t, b, request(name, newID())) }
	renew := func() { b.Renew(t.Context(), []anylock.Grant{g}) }
	release := func() { mustRelease(t, b, g) }
	acquire()
	renew()
	release()
	for what, do := range map[string]func(){"acquire and release": func() { acquire(); release() }} {
		if n := cost(do); n != 2 {
			t.Errorf("%s: %d round trips", what, n)
		}
	}
	acquire()
	if n := cost(renew); n != 1 {
		t.Errorf("renew: %d round trips", n)
	}
	if n := cost(func() { _, _ = b.Acquire(t.Context(), request(name, newID())) }); n != 1 {
		t.Errorf("held: %d round trips", n)
	}
}

func TestAfterClose(t *testing.T) {
	server := shared(t)
	raw := rawClient(t, server)
	for _, b := range []*Backend{open(t, server.URL()), over(t, raw)} {
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := b.Watch(ctx, "x"); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(b.Close(), b.Close()); err != nil {
			t.Fatal(err)
		}
		cancel()
		_, err := b.Acquire(t.Context(), request("x", newID()))
		wantClass(t, err, anylock.ErrClosed)
		wantClass(t, b.Renew(t.Context(), make([]anylock.Grant, 1))[0].Err, anylock.ErrClosed)
		wantClass(t, b.Release(t.Context(), make([]anylock.Grant, 1))[0], anylock.ErrClosed)
		_, err = b.Watch(t.Context(), "x")
		wantClass(t, err, anylock.ErrClosed)
	}
	if err := raw.Ping(t.Context()).Err(); err != nil {
		t.Fatalf("the caller's client was closed: %v", err)
	}
}

func TestCloseUnblocksCallsToAPausedServer(t *testing.T) {
	server := containers.Redis(t)
	b := open(t, server.URL())
	if err := server.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	calls := make(chan error, 2)
	go func() {
		_, err := b.Acquire(context.Background(), request("x", newID()))
		calls <- err
	}()
	go func() {
		_, err := b.Watch(context.Background(), "x")
		calls <- err
	}()
	time.Sleep(50 * time.Millisecond) // so that they are likely to be under way
	start := time.Now()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	for range 2 {
		wantClass(t, <-calls, anylock.ErrClosed)
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("took %v", took)
	}
}

func TestDeadlineOnAPausedServer(t *testing.T) {
	server := containers.Redis(t)
	b := open(t, server.URL())
	if err := server.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := b.Acquire(ctx, request("x", newID()))
	wantClass(t, err, anylock.ErrUnavailable)
	if took := time.Since(start); took > time.Second {
		t.Errorf("took %v", took)
	}
}
