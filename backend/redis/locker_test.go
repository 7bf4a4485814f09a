package redis

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/conformance/containers"
)

// What the library as a whole does to a server, counted by the server and on the wire.

func newLocker(t testing.TB, client redis.UniversalClient, opts ...anylock.Option) *anylock.Locker {
	t.Helper()
	l, err := anylock.New(over(t, client), append([]anylock.Option{anylock.WithLogger(nil)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

func mustLock(t testing.TB, l *anylock.Locker, name string) *anylock.Lease {
	t.Helper()
	lease, err := l.Acquire(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func mustUnlock(t testing.TB, lease *anylock.Lease) {
	t.Helper()
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// commands is how often the server has run a command since it started.
func commands(t testing.TB, c *redis.Client, command string) int {
	t.Helper()
	info, err := c.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(info, "cmdstat_"+command+":calls=")
	if !found {
		return 0
	}
	calls, _, _ := strings.Cut(rest, ",")
	n, err := strconv.Atoi(calls)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestLockerRoundTrips(t *testing.T) {
	network := containers.NewNetwork(t)
	s := shared(t)
	client := redis.NewClient(&redis.Options{Addr: s.Addr(), Dialer: network.DialContext, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	l := newLocker(t, client)
	mustUnlock(t, mustLock(t, l, unique(t)))

	name := unique(t)
	start := network.RoundTrips()
	lease := mustLock(t, l, name)
	acquired := network.RoundTrips()
	mustUnlock(t, lease)
	released := network.RoundTrips()
	if acquired-start != 1 || released-acquired != 1 {
		t.Errorf("acquire took %d round trips and release %d", acquired-start, released-acquired)
	}
}

func TestWaiterSendsNothingBetweenWakeUps(t *testing.T) {
	s := containers.Redis(t) // its statistics are ours alone
	outside := rawClient(t, s)
	holder, waiter := newLocker(t, rawClient(t, s)), newLocker(t, rawClient(t, s))
	name := unique(t)
	lease := mustLock(t, holder, name)
	waiting := make(chan *anylock.Lease)
	go func() {
		next, err := waiter.Acquire(t.Context(), name)
		if err != nil {
			t.Error(err)
		}
		waiting <- next
	}()
	awaitSubscribers(t, outside, 1)
	// The second look comes after the subscription.
	eventually(t, "the second look", func() bool { return scripts(t, outside) >= 3 })
	before, cpuBefore := scripts(t, outside), cpu(t)
	time.Sleep(3 * time.Second)
	if sent := scripts(t, outside) - before; sent != 0 {
		t.Errorf("%d scripts in 3 s of waiting", sent)
	}
	if used := cpu(t) - cpuBefore; used > 300*time.Millisecond {
		t.Errorf("waiting used %v of CPU in 3 s", used)
	}
	mustUnlock(t, lease)
	mustUnlock(t, <-waiting)
}

func TestManyWaitersOfOneProcess(t *testing.T) {
	s := containers.Redis(t)
	outside := rawClient(t, s)
	holder, waiters := newLocker(t, rawClient(t, s)), newLocker(t, rawClient(t, s))
	name := unique(t)
	mustUnlock(t, mustLock(t, waiters, name)) // loads the scripts
	lease := mustLock(t, holder, name)
	const n = 50
	var all sync.WaitGroup
	next := make(chan *anylock.Lease)
	for range n {
		all.Go(func() {
			lease, err := waiters.Acquire(t.Context(), name)
			if err != nil {
				t.Error(err)
				return
			}
			next <- lease
		})
	}
	awaitSubscribers(t, outside, 1)
	eventually(t, "the second look", func() bool { return scripts(t, outside) >= 5 })
	clients := outside.ClientList(t.Context()).Val()
	if subscribed := strings.Count(clients, "sub=1"); subscribed != 1 {
		t.Errorf("%d subscriptions for %d waiters:\n%s", subscribed, n, clients)
	}
	before := scripts(t, outside)
	mustUnlock(t, lease)
	for range n {
		mustUnlock(t, <-next)
	}
	all.Wait()
	// A hand-over is a release and an acquire. The first may be woken twice.
	if sent := scripts(t, outside) - before; sent > 1+2*n+1 {
		t.Errorf("%d scripts for %d hand-overs", sent, n)
	}
}

func TestFailedAcquiresLeaveNothing(t *testing.T) {
	s := containers.Redis(t)
	outside := rawClient(t, s)
	l, other := newLocker(t, rawClient(t, s)), newLocker(t, rawClient(t, s))
	held := mustLock(t, other, "held")
	for i := range 300 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%30)*50*time.Microsecond)
		name := "held"
		if i%2 == 0 {
			name = "free/" + strconv.Itoa(i)
		}
		if lease, err := l.Acquire(ctx, name); err == nil {
			mustUnlock(t, lease)
		}
		cancel()
	}
	mustUnlock(t, held)
	deadline := time.Now().Add(time.Second)
	for {
		keys := locks(t, outside)
		channels := outside.PubSubChannels(t.Context(), "*").Val()
		if len(keys) == 0 && len(channels) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after a second there are still %q and subscriptions to %q", keys, channels)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// locks are the keys of locks, without counters.
func locks(t testing.TB, c *redis.Client) (keys []string) {
	t.Helper()
	for _, key := range c.Keys(t.Context(), "lock:*").Val() {
		if !strings.Contains(key, "\x00") {
			keys = append(keys, key)
		}
	}
	return keys
}

func scripts(t testing.TB, c *redis.Client) int {
	t.Helper()
	return commands(t, c, "evalsha") + commands(t, c, "eval")
}

func awaitSubscribers(t testing.TB, c *redis.Client, n int) {
	t.Helper()
	eventually(t, "the subscription", func() bool {
		return len(c.PubSubChannels(t.Context(), "*").Val()) == n
	})
}

// cpu is what this process has used.
func cpu(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestTokensOfManyClients(t *testing.T) {
	s := shared(t)
	const clients, turns = 64, 4
	name := unique(t)
	var mu sync.Mutex
	var tokens []anylock.Token
	var all sync.WaitGroup
	for range clients {
		l := newLocker(t, rawClient(t, s))
		all.Go(func() {
			for range turns {
				lease, err := l.Acquire(t.Context(), name)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock() // whoever holds the lock writes next
				tokens = append(tokens, lease.Token())
				mu.Unlock()
				if err := lease.Release(t.Context()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if len(tokens) != clients*turns {
		t.Fatalf("%d grants of %d", len(tokens), clients*turns)
	}
	for i := 1; i < len(tokens); i++ {
		if tokens[i] <= tokens[i-1] {
			t.Fatalf("token %d came after %d", tokens[i], tokens[i-1])
		}
	}
}
