package redis

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/conformance/containers"
)

const patience = 5 * time.Second

func mustWatch(t *testing.T, ctx context.Context, b *Backend, name string) <-chan struct{} { //nolint:revive // t first
	t.Helper()
	woken, err := b.Watch(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	return woken
}

func wantWoken(t *testing.T, woken <-chan struct{}) {
	t.Helper()
	select {
	case <-woken:
	case <-time.After(patience):
		t.Fatal("not woken")
	}
}

// publishers of a name: how many connections listen.
func subscribers(t *testing.T, raw *redis.Client, channel string) int64 {
	t.Helper()
	n, err := raw.PubSubNumSub(t.Context(), channel).Result()
	if err != nil {
		t.Fatal(err)
	}
	return n[channel]
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(4 * patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never came: " + what)
		}
	}
}

func subscriberConnections(t *testing.T, raw *redis.Client) int {
	t.Helper()
	list, err := raw.Do(t.Context(), "client", "list", "type", "pubsub").Text()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(list, "id=")
}

func TestReleaseWakesAllWatchers(t *testing.T) {
	server := shared(t)
	a, b, name := open(t, server.URL()), open(t, server.URL()), unique(t)
	watches := []<-chan struct{}{
		mustWatch(t, t.Context(), a, name), mustWatch(t, t.Context(), a, name), mustWatch(t, t.Context(), b, name),
	}
	other := mustWatch(t, t.Context(), b, name+"2")
	for range 3 {
		mustRelease(t, a, mustAcquire(t, a, request(name, newID())))
		for _, w := range watches {
			wantWoken(t, w)
		}
	}
	select {
	case <-other:
		t.Fatal("a release of another name woke")
	default:
	}
}

// A release right after Watch has returned must be heard: the subscription is up by then.
func TestWatchListensWhenItReturns(t *testing.T) {
	server := shared(t)
	b := open(t, server.URL())
	raw := rawClient(t, server)
	for i := range 200 {
		name := fmt.Sprint(unique(t), i)
		ctx, cancel := context.WithCancel(t.Context())
		woken := mustWatch(t, ctx, b, name)
		if n := raw.Publish(t.Context(), keysFor("lock:", name).channel, "").Val(); n != 1 {
			t.Fatalf("%d listen", n)
		}
		wantWoken(t, woken)
		cancel()
	}
}

func TestWatchesComeAndGo(t *testing.T) {
	server := containers.Redis(t)
	b, raw := open(t, server.URL()), rawClient(t, server)
	// Names leave and come again around the time that they are unsubscribed.
	var all sync.WaitGroup
	end := time.Now().Add(3 * time.Second)
	for i := range 20 {
		all.Go(func() {
			name := fmt.Sprint("n", i%5)
			for time.Now().Before(end) {
				ctx, cancel := context.WithCancel(t.Context())
				woken, err := b.Watch(ctx, name)
				if err != nil {
					t.Error(err)
				} else {
					raw.Publish(t.Context(), keysFor("lock:", name).channel, "")
					select {
					case <-woken:
					case <-time.After(patience):
						t.Error("not woken")
					}
				}
				cancel()
				if i < 10 {
					time.Sleep(lingerTime + time.Duration(i)*time.Millisecond)
				}
			}
		})
	}
	all.Wait()
	eventually(t, "no subscription is left", func() bool {
		return len(raw.PubSubChannels(t.Context(), "*").Val()) == 0
	})
	if n := subscriberConnections(t, raw); n > 1 {
		t.Fatalf("%d connections", n)
	}
	eventually(t, "the connection is closed", func() bool { return subscriberConnections(t, raw) == 0 })
	mustWatch(t, t.Context(), b, "again")
}

func TestOneConnectionForManyNames(t *testing.T) {
	server := containers.Redis(t)
	b, raw := open(t, server.URL()), rawClient(t, server)
	var all sync.WaitGroup
	for i := range 3000 {
		all.Go(func() {
			if _, err := b.Watch(t.Context(), fmt.Sprint("n", i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := subscriberConnections(t, raw); n != 1 {
		t.Fatalf("%d connections", n)
	}
	woken := mustWatch(t, t.Context(), b, "n2999")
	if err := raw.Do(t.Context(), "client", "kill", "type", "pubsub").Err(); err != nil {
		t.Fatal(err)
	}
	wantWoken(t, woken)
	if n := len(raw.PubSubChannels(t.Context(), "*").Val()); n != 3000 {
		eventually(t, "all are subscribed again", func() bool { return len(raw.PubSubChannels(t.Context(), "*").Val()) == 3000 })
	}
}

func TestLostConnectionWakes(t *testing.T) {
	server := containers.Redis(t)
	b, raw := open(t, server.URL()), rawClient(t, server)
	woken, other := mustWatch(t, t.Context(), b, "x"), mustWatch(t, t.Context(), b, "y")
	for range 3 {
		if err := raw.Do(t.Context(), "client", "kill", "type", "pubsub").Err(); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		wantWoken(t, woken)
		wantWoken(t, other)
		t.Logf("woken %v after the kill", time.Since(start).Round(time.Microsecond))
	}
	if n := subscribers(t, raw, keysFor("lock:", "x").channel); n != 1 {
		t.Fatalf("%d listen", n)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantWoken(t, woken)
	wantWoken(t, other)
}

func TestSilentConnectionIsNoticed(t *testing.T) {
	server := shared(t)
	network := containers.NewNetwork(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Dialer: network.DialContext, ContextTimeoutEnabled: true})
	defer client.Close()
	b := over(t, client)
	woken := mustWatch(t, t.Context(), b, unique(t))
	l := b.listeners.at[""]
	network.Hold() // nothing arrives, and nothing says so
	start := time.Now()
	noticed := make(chan struct{})
	go func() {
		defer close(noticed)
		for { // the new connection cannot be made either
			l.mu.Lock()
			var fresh bool
			for _, topic := range l.topics {
				fresh = topic.state != live
			}
			l.mu.Unlock()
			if fresh {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	select {
	case <-noticed:
	case <-time.After(2 * deadAfter):
		t.Fatal("a dead connection was not noticed")
	}
	t.Logf("noticed after %v", time.Since(start).Round(time.Millisecond))
	network.Heal()
	wantWoken(t, woken)
}

func TestWatchIsBoundedByItsContext(t *testing.T) {
	server := containers.Redis(t)
	b := open(t, server.URL())
	if err := server.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := b.Watch(ctx, "x")
	wantClass(t, err, anylock.ErrUnavailable)
	if took := time.Since(start); took > 500*time.Millisecond {
		t.Errorf("took %v", took)
	}
	if err := server.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustWatch(t, t.Context(), b, "x")
}

func TestWatchFailsWhileTheServerIsDown(t *testing.T) {
	server := containers.Redis(t)
	b := open(t, server.URL())
	woken := mustWatch(t, t.Context(), b, "x")
	if err := server.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := b.Watch(t.Context(), "y")
	wantClass(t, err, anylock.ErrUnavailable)
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantWoken(t, woken)
	mustWatch(t, t.Context(), b, "y")
}

func TestCloseLeavesNothing(t *testing.T) {
	server := containers.Redis(t)
	raw := rawClient(t, server)
	raw.Ping(t.Context())
	before := goleak.IgnoreCurrent()
	own := open(t, server.URL())
	given := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer given.Close()
	for _, b := range []*Backend{own, over(t, given)} {
		mustWatch(t, t.Context(), b, "x")
		mustRelease(t, b, mustAcquire(t, b, request("x", newID())))
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_ = given.Close()
	eventually(t, "no connection but one is left", func() bool {
		list := raw.Do(t.Context(), "client", "list").Val().(string)
		return strings.Count(list, "id=") == 1
	})
	goleak.VerifyNone(t, before)
}

// Whoever releases and takes again must leave the others a chance.
func TestReleaserDoesNotBarge(t *testing.T) {
	server := shared(t)
	name := unique(t)
	clients := []*Backend{open(t, server.URL()), open(t, server.URL()), open(t, server.URL()), open(t, server.URL())}
	wins := make([]int, len(clients))
	var all sync.WaitGroup
	end := time.Now().Add(time.Second)
	for i, b := range clients {
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			woken, err := b.Watch(ctx, name)
			if err != nil {
				t.Error(err)
				return
			}
			for time.Now().Before(end) {
				g, err := b.Acquire(ctx, request(name, newID()))
				if err != nil {
					select {
					case <-woken:
					case <-time.After(100 * time.Millisecond):
					}
					continue
				}
				wins[i]++
				time.Sleep(time.Millisecond)
				if err := b.Release(ctx, []anylock.Grant{g})[0]; err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	t.Logf("wins: %v", wins)
	for i, n := range wins {
		if n == 0 {
			t.Errorf("client %d starved", i)
		}
	}
}

func TestUncontendedNamesOweNothing(t *testing.T) {
	b, name := open(t, shared(t).URL()), unique(t)
	mustWatch(t, t.Context(), b, name) // our own ear does not count
	mustRelease(t, b, mustAcquire(t, b, request(name, newID())))
	if b.yielder.Pending() {
		t.Fatal("it yields to itself")
	}
}
