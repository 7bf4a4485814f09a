package conformance

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anylock/anylock"
)

var waitingCases = []testCase{
	{
		name:    "hand-over",
		promise: "A waiter has the lock soon after its holder has released it.",
		check: func(t *tester) {
			a, b, name := t.peer(anylock.WithTTL(t.long)), t.peer(anylock.WithTTL(t.long)), t.name("n")
			for range 5 {
				l := a.acquire(name)
				got := make(chan time.Time, 1)
				go func() {
					defer t.contain("the waiter")
					next, err := b.Acquire(t.ctx, name)
					if err != nil {
						t.Errorf("Acquire: %v", err)
						close(got)
						return
					}
					got <- time.Now()
					_ = next.Release(t.ctx)
				}()
				time.Sleep(60 * time.Millisecond)
				start := time.Now()
				a.release(l)
				if at, ok := <-got; ok && at.Sub(start) > soon+2*t.stalled() {
					t.Errorf("the waiter had it %v after the release, want %v at most", at.Sub(start), soon)
				}
			}
		},
	},
	{
		name:    "releaser-stands-back",
		promise: "Who releases a lock and wants it back at once does not keep it from those who wait.",
		needs:   []need{needWoken},
		check: func(t *tester) {
			name := t.name("n")
			const grants, least = 80, 20 // to take turns would be 80 changes of the holder
			var left, last, changes atomic.Int64
			left.Store(grants)
			t.parallel(2, func(i int) {
				p := t.peer()
				for left.Add(-1) >= 0 {
					l := p.acquire(name)
					if last.Swap(int64(i)) != int64(i) {
						changes.Add(1)
					}
					time.Sleep(2 * time.Millisecond)
					p.release(l)
				}
			})
			if n := changes.Load(); n < least {
				t.Errorf("the lock has changed hands %d times in %d grants to two clients, want %d at least", n, grants, least)
			}
		},
	},
	{
		name:    "wakes-watchers", // B71
		promise: "A release wakes everybody who watches the name, every time, also those who came just before it.",
		needs:   []need{needWatch},
		check: func(t *tester) {
			a, b, name := t.client(), t.client(), t.name("n")
			ctx, cancel := context.WithCancel(t.ctx)
			defer cancel()
			wake, err := b.Backend.Watch(ctx, name)
			t.must(err, "Watch")
			if wake == nil {
				t.Fatalf("Watch returned no channel, and the backend says that it notifies")
			}
			for i := range 20 {
				g := t.grant(a, t.request(name, t.long))
				late, stop := context.WithCancel(t.ctx)
				second, err := b.Backend.Watch(late, name)
				t.must(err, "a second Watch")
				drain(wake)
				drain(second)
				t.must(t.end(a, g), "Release")
				t.ends(wake, soon, fmt.Sprintf("wake-up %d", i))
				t.ends(second, soon, fmt.Sprintf("wake-up %d of one who came late", i))
				stop()
			}
		},
	},
	{
		name:    "queue-grants",
		promise: "A request that waits in the store's queue is granted when the holder releases, with a fresh window.",
		needs:   []need{needQueue},
		check: func(t *tester) {
			a, b, name := t.client(), t.client(), t.name("n")
			for range 5 {
				g := t.grant(a, t.request(name, t.long))
				r := t.request(name, t.long)
				r.Wait = true
				granted := make(chan struct{})
				var released atomic.Int64
				go func() {
					defer close(granted)
					next, err := b.Backend.Acquire(t.ctx, r)
					if err != nil {
						t.Errorf("Acquire with Wait: %v", err)
						return
					}
					if early := time.Unix(0, released.Load()).Sub(next.From); early > time.Millisecond {
						t.Errorf("the window of a grant from the queue began %v before the holder released", early)
					}
					if next.Token <= g.Token {
						t.Errorf("token %d after token %d", next.Token, g.Token)
					}
					t.must(t.end(b, next), "Release")
				}()
				time.Sleep(50 * time.Millisecond)
				released.Store(time.Now().UnixNano())
				t.must(t.end(a, g), "Release")
				t.ends(granted, soon, "the grant from the queue")
			}
		},
	},
	{
		name:    "missed-wake-up", // B71
		promise: "A wake-up that gets lost costs a waiter a few seconds at most, not the TTL of the holder.",
		needs:   []need{needWatch},
		check: func(t *tester) {
			c, _ := t.probe(t.client(), func(p *probe) {
				p.watch = func(context.Context, string) (<-chan struct{}, error) { return make(chan struct{}), nil }
			})
			a, b, name := t.peer(anylock.WithTTL(t.long)), t.peerOn(c), t.name("n")
			l := a.try(name)
			time.AfterFunc(100*time.Millisecond, func() { _ = l.Release(t.ctx) })
			start := time.Now()
			next := b.acquire(name)
			t.within(start, 7*time.Second, "waiting without wake-ups")
			b.release(next)
		},
	},
	{
		name:    "looks-after-listening", // B71
		promise: "A waiter looks again once it listens: a release just before that is not missed.",
		needs:   []need{needWatch},
		check: func(t *tester) {
			a, name := t.peer(anylock.WithTTL(t.long)), t.name("n")
			l := a.try(name)
			c, _ := t.probe(t.client(), func(p *probe) {
				inner := p.watch
				p.watch = func(ctx context.Context, name string) (<-chan struct{}, error) {
					_ = l.Release(t.ctx)
					return inner(ctx, name)
				}
			})
			b := t.peerOn(c)
			start := time.Now()
			next := b.acquire(name)
			t.within(start, 2*time.Second, "waiting for a lock that was released before the waiter listened")
			b.release(next)
		},
	},
	{
		name:    "failed-watch", // B71
		promise: "A waiter that cannot listen for wake-ups polls.",
		needs:   []need{needWatch},
		check: func(t *tester) {
			c, _ := t.probe(t.client(), func(p *probe) {
				p.watch = func(context.Context, string) (<-chan struct{}, error) { return nil, anylock.Unavailable(errStaged) }
			})
			a, b, name := t.peer(anylock.WithTTL(t.long)), t.peerOn(c), t.name("n")
			l := a.try(name)
			time.AfterFunc(100*time.Millisecond, func() { _ = l.Release(t.ctx) })
			start := time.Now()
			next := b.acquire(name)
			t.within(start, 2*time.Second, "waiting without listening")
			b.release(next)
		},
	},
	{
		name:    "wait-ends-with-context", // B11 B84
		promise: "A wait ends when its context does, and the error matches that of the context and ErrHeld.",
		check: func(t *tester) {
			waits := make(chan struct{}, 1)
			hooks := anylock.WithHooks(anylock.Hooks{Waiting: func(anylock.Event) { waits <- struct{}{} }})
			a, b, name := t.peer(anylock.WithHolder("the holder"), hooks), t.peer(hooks), t.name("n")
			l := a.try(name)
			for _, waiter := range []*peer{a, b} {
				ctx, cancel := context.WithTimeout(t.ctx, 400*time.Millisecond)
				end, _ := ctx.Deadline()
				got, err := waiter.Acquire(ctx, name)
				t.within(end, soon, "the return after the context's deadline")
				cancel()
				t.wants(err, context.DeadlineExceeded, anylock.ErrHeld)
				t.not(err, anylock.ErrUnavailable, anylock.ErrLost)
				if got != nil {
					t.Errorf("a lease comes with error %v", err)
				}
				drain(waits)

				ctx, cancel = context.WithCancel(t.ctx)
				var cancelled time.Time
				go func() {
					select {
					case <-waits: // it knows that the lock is held
						time.Sleep(50 * time.Millisecond)
					case <-t.ctx.Done():
					}
					cancelled = time.Now()
					cancel()
				}()
				_, err = waiter.Acquire(ctx, name)
				t.within(cancelled, soon, "the return after the cancel")
				t.wants(err, context.Canceled, anylock.ErrHeld)
			}
			t.must(l.Err(), "the lease that they waited for")
			a.release(l)
			b.free(name, soon, "after waiters gave up")
		},
	},
	{
		name:    "cancelled-waiter-is-gone",
		promise: "Once a cancelled Acquire has returned from a store's queue, nobody is told that the lock is held because of it.",
		needs:   []need{needQueue},
		check: func(t *tester) {
			waits := make(chan struct{}, 1)
			a, c, name := t.peer(anylock.WithTTL(t.long)), t.peer(), t.name("n")
			b := t.peer(anylock.WithHooks(anylock.Hooks{Waiting: func(anylock.Event) { waits <- struct{}{} }}))
			judged := 0
			for range 30 {
				l := a.try(name)
				ctx, cancel := context.WithCancel(t.ctx)
				returned := make(chan struct{})
				go func() {
					defer close(returned)
					_, err := b.Acquire(ctx, name)
					t.wants(err, context.Canceled, anylock.ErrHeld)
				}()
				t.ends(waits, 10*time.Second, "the hook Waiting")
				time.Sleep(5 * time.Millisecond) // so that it mostly stands in the store's queue
				start := time.Now()
				cancel()
				t.ends(returned, 10*time.Second, "the return of the cancelled Acquire")
				// One that had to leave its request behind, since the store was slow, cannot promise it.
				inTime := time.Since(start) < 50*time.Millisecond
				a.release(l)
				got, err := c.TryAcquire(t.ctx, name)
				if err == nil {
					c.release(got)
				}
				if inTime {
					judged++
					t.must(err, "TryAcquire after a waiter was cancelled, and the holder has released")
				} else {
					c.free(name, time.Second, "after a waiter was cancelled")
				}
			}
			if judged == 0 {
				t.Skipf("no cancelled Acquire returned within 50 ms here")
			}
		},
	},
	{
		name:    "try-does-not-wait",
		promise: "TryAcquire on a held lock answers without waiting for it.",
		check: func(t *tester) {
			a, b, name := t.peer(anylock.WithTTL(t.long)), t.peer(), t.name("n")
			l := a.try(name)
			for _, p := range []*peer{a, b} {
				start := time.Now()
				p.refused(name, "a try")
				t.within(start, time.Second, "TryAcquire")
			}
			a.release(l)
		},
	},
	{
		name:    "outlives-a-crash",
		promise: "A waiter gets the lock of a holder that died, when its TTL is over and not much later.",
		needs:   []need{needExpiry},
		check: func(t *tester) {
			a, b, name := t.client(), t.peer(), t.name("n")
			g := t.grant(a, t.request(name, t.TTL))
			if t.KeepsAlive {
				a.Cut()
			}
			_, err := b.TryAcquire(t.ctx, name)
			known := t.heldError(err).RetryAfter > 0
			start := time.Now()
			l := b.acquire(name)
			limit := g.TTL + 6*time.Second
			if known {
				limit = g.TTL + time.Second
			}
			if t.KeepsAlive {
				limit += g.TTL
			}
			t.within(start, limit, "waiting for the lock of a dead holder")
			b.release(l)
		},
	},
	{
		name:    "retry-after",
		promise: "HeldError.RetryAfter, if it is given, is the time until the holder's grant expires.",
		check: func(t *tester) {
			a, b, name := t.client(), t.client(), t.name("n")
			g := t.grant(a, t.request(name, t.TTL))
			returned := time.Now()
			for range 3 {
				asked := time.Now()
				held, err := t.asks(b, name)
				if err != nil {
					break // it has expired
				}
				answered := time.Now()
				rounding := max(20*time.Millisecond, t.TTL/4)
				switch left := held.RetryAfter; {
				case left == 0: // not known
				case left < 0 || left > g.TTL-asked.Sub(returned)+rounding:
					t.Errorf("RetryAfter %v, although the grant of %v is %v old", left, g.TTL, asked.Sub(returned))
				case left < g.TTL-answered.Sub(g.From)-rounding:
					t.Errorf("RetryAfter %v, although the grant of %v is only %v old", left, g.TTL, answered.Sub(g.From))
				}
				time.Sleep(t.TTL / 5)
			}
			_ = t.end(a, g)
		},
	},
	{
		name:    "no-herd", // B82
		promise: "Fifty waiters in one process cost the store no more than one.",
		check: func(t *tester) {
			c, p := t.probe(t.client(), nil)
			a, b, name := t.peer(anylock.WithTTL(t.long)), t.peerOn(c), t.name("n")
			l := a.try(name)
			ctx, cancel := context.WithCancel(t.ctx)
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					_, err := b.Acquire(ctx, name)
					t.wants(err, context.Canceled)
				})
			}
			time.Sleep(time.Second)
			if n := p.calls(); n > 30 {
				t.Errorf("%d requests in a second for 50 waiters", n)
			}
			cancel()
			wg.Wait()
			a.release(l)
		},
	},
	{
		name:    "local-order",
		promise: "Waiters of one Locker are served in the order they came, and one that gives up does not disturb the rest.",
		check: func(t *tester) {
			joined := make(chan struct{}, 10)
			a := t.peer(anylock.WithTTL(t.long))
			b := t.peer(anylock.WithTTL(t.long), anylock.WithHooks(anylock.Hooks{Waiting: func(anylock.Event) { joined <- struct{}{} }}))
			t.inOrder(a, func(int) *peer { return b }, joined)
		},
	},
	{
		name:    "store-order",
		promise: "Waiters of different clients are served in the order they came, where the backend promises FIFO.",
		needs:   []need{needFIFO},
		check: func(t *tester) {
			joined := make(chan struct{}, 10)
			a := t.peer(anylock.WithTTL(t.long))
			t.inOrder(a, func(int) *peer {
				return t.peer(anylock.WithTTL(t.long), anylock.WithHooks(anylock.Hooks{Waiting: func(anylock.Event) { joined <- struct{}{} }}))
			}, joined)
		},
	},
	{
		name:    "lock-of-a-closed-process", // B122
		promise: "A waiter gets the lock when the process of its holder is closed.",
		check: func(t *tester) {
			a, b, name := t.peer(anylock.WithTTL(t.long)), t.peer(), t.name("n")
			a.try(name)
			time.AfterFunc(50*time.Millisecond, func() { _ = a.Locker.Close(t.ctx) })
			start := time.Now()
			b.release(b.acquire(name))
			t.within(start, 2*time.Second, "waiting for a process that closes")
		},
	},
}

// inOrder lets six wait one after the other, takes out the third, and checks in which order the rest is served.
func (t *tester) inOrder(a *peer, waiterOf func(i int) *peer, joined <-chan struct{}) {
	const n, quits = 6, 2
	name := t.name("n")
	l := a.try(name)
	var mu sync.Mutex
	var served []int
	var wg sync.WaitGroup
	quit, cancel := context.WithCancel(t.ctx)
	defer cancel()
	for i := range n {
		p := waiterOf(i)
		wg.Go(func() {
			ctx := t.ctx
			if i == quits {
				ctx = quit
			}
			l, err := p.Acquire(ctx, name)
			if i == quits {
				t.wants(err, context.Canceled)
				return
			}
			if err != nil {
				t.Errorf("waiter %d: %v", i, err)
				return
			}
			mu.Lock()
			served = append(served, i)
			mu.Unlock()
			if err := l.Release(t.ctx); err != nil {
				t.Errorf("waiter %d: Release: %v", i, err)
			}
		})
		t.ends(joined, 5*time.Second, "the Waiting hook")
		time.Sleep(50 * time.Millisecond) // it is called just before the place in the queue is taken
	}
	cancel()
	time.Sleep(20 * time.Millisecond)
	a.release(l)
	wg.Wait()
	if !slices.Equal(served, []int{0, 1, 3, 4, 5}) {
		t.Errorf("served in the order %v", served)
	}
}

// asks tries to acquire and returns the store's word on the holder; it takes nothing.
func (t *tester) asks(c Client, name string) (*anylock.HeldError, error) {
	g, err := c.Backend.Acquire(t.bounded(), t.request(name, t.TTL))
	if err == nil {
		t.must(t.end(c, g), "Release")
		return nil, fmt.Errorf("free")
	}
	return t.heldError(err), nil
}

func drain(c <-chan struct{}) {
	for {
		select {
		case <-c:
		default:
			return
		}
	}
}
