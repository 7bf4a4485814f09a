package conformance

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/anylock/anylock"
)

var cancellationCases = []testCase{
	{
		name:    "dead-context-takes-nothing", // B15
		promise: "An acquire whose context has ended before the call does not ask the store and takes nothing.",
		check: func(t *tester) {
			c, p := t.probe(t.client(), nil)
			a, b, name := t.peerOn(c), t.peer(), t.name("n")
			dead, cancel := context.WithCancel(t.ctx)
			cancel()
			for range 20 {
				_, err := a.Acquire(dead, name, anylock.WithTTL(t.long))
				t.wants(err, context.Canceled)
				_, err = a.TryAcquire(dead, name, anylock.WithTTL(t.long))
				t.wants(err, context.Canceled)
				t.not(err, anylock.ErrHeld, anylock.ErrUnavailable)
			}
			if n := p.calls(); n > 0 {
				t.Errorf("%d requests to the store", n)
			}
			b.free(name, 0, "after acquires with a dead context")
		},
	},
	{
		name:    "storm-on-a-free-lock", // B10 B13 B19
		promise: "Acquires cancelled at any moment leave nothing in the store for longer than a second.",
		check: func(t *tester) {
			a, b, name := t.peer(anylock.WithTTL(t.long)), t.peer(), t.name("n")
			clean := t.leftovers()
			got := 0
			for range 300 {
				ctx, cancel := cancelSoon(t.ctx)
				if l, err := a.Acquire(ctx, name); err == nil {
					got++
					a.release(l)
				} else {
					t.wants(err, ctx.Err())
				}
				cancel()
			}
			t.Logf("%d of 300 were granted", got)
			b.free(name, time.Second, "after 300 cancelled acquires")
			clean(time.Second)
		},
	},
	{
		name:    "storm-on-a-slow-store", // B13 B19
		promise: "Acquires cancelled while the answer is on its way return and leave nothing.",
		needs:   []need{needSlow},
		check: func(t *tester) {
			c, p := t.probe(t.client(), nil)
			a, b, name := t.peerOn(c, anylock.WithTTL(t.long)), t.peer(), t.name("n")
			a.release(a.try(name))
			clean := t.leftovers()
			a.Slow(120 * time.Millisecond)
			for range 20 {
				ctx, cancel := context.WithTimeout(t.ctx, rand.N(150*time.Millisecond))
				end, _ := ctx.Deadline()
				l, err := a.Acquire(ctx, name)
				t.within(end, soon, "the return after the context's deadline")
				if err == nil {
					a.release(l)
				} else {
					t.wants(err, context.DeadlineExceeded)
				}
				cancel()
			}
			a.Slow(0)
			b.free(name, time.Second, "after acquires that were cancelled under way")
			clean(time.Second)
			n := p.renewals()
			time.Sleep(t.TTL)
			if more := p.renewals() - n; more > 0 {
				t.Errorf("%d renewals although nothing is held", more)
			}
		},
	},
	{
		name:    "storm-on-a-held-lock", // B17 B84
		promise: "Waits cancelled at any moment leave nothing queued, subscribed or taken.",
		check: func(t *tester) {
			a, b, c, name := t.peer(anylock.WithTTL(t.long)), t.peer(anylock.WithTTL(t.long)), t.peer(), t.name("n")
			clean := t.leftovers()
			l := a.try(name)
			t.parallel(3, func(int) {
				for range 100 {
					ctx, cancel := cancelSoon(t.ctx)
					_, err := b.Acquire(ctx, name)
					t.wants(err, ctx.Err())
					cancel()
				}
			})
			t.must(l.Err(), "the lease that they waited for")
			a.release(l)
			c.free(name, time.Second, "after 300 cancelled waits")
			clean(time.Second)
		},
	},
	{
		name:    "unknown-is-undone", // B02 B08 B10
		promise: "An acquire that was granted without the caller learning it is undone within a second.",
		check: func(t *tester) {
			c, _ := t.probe(t.client(), func(p *probe) {
				inner := p.acquire
				p.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
					if _, err := inner(ctx, r); err != nil {
						return anylock.Grant{}, err
					}
					return anylock.Grant{}, anylock.Unavailable(errStaged)
				}
			})
			a, b, name := t.peerOn(c, anylock.WithTTL(t.long), anylock.WithRequestTimeout(200*time.Millisecond)), t.peer(), t.name("n")
			_, err := a.TryAcquire(t.ctx, name)
			t.wants(err, anylock.ErrUnavailable, errStaged)
			t.not(err, anylock.ErrHeld)
			b.free(name, time.Second, "after a try without an answer")
			_, err = a.Acquire(t.ctx, name)
			t.wants(err, anylock.ErrUnavailable, errStaged)
			b.free(name, time.Second, "after an acquire without an answer")
		},
	},
	{
		name:    "repeat-finds-its-own", // B02
		promise: "An Acquire that is repeated because the answer was lost finds its own lock and is not held up by it.",
		check: func(t *tester) {
			var first atomic.Bool
			c, p := t.probe(t.client(), func(p *probe) {
				inner := p.acquire
				p.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
					g, err := inner(ctx, r)
					if err == nil && first.CompareAndSwap(false, true) {
						return anylock.Grant{}, anylock.Unavailable(errStaged)
					}
					return g, err
				}
			})
			a, b, name := t.peerOn(c, anylock.WithTTL(t.long)), t.peer(), t.name("n")
			start := time.Now()
			l := a.acquire(name)
			t.within(start, 2*time.Second, "an acquire with one lost answer")
			if ids := p.allIDs(); len(ids) != 2 || ids[0] != ids[1] {
				t.Errorf("%d attempts, want 2 with the same ID", len(ids))
			}
			b.refused(name, "after a repeated acquire")
			a.release(l)
			b.free(name, 0, "after a repeated acquire and a release")
		},
	},
	{
		name:    "late-request-is-refused", // B13 B19
		promise: "A request that the network delivers after its caller has gone, and after the undo, leaves no lock.",
		needs:   []need{needStall},
		check: func(t *tester) {
			undone := make(chan struct{}, 1)
			name := t.name("n")
			c, _ := t.probe(t.client(), func(p *probe) {
				inner := p.release
				p.release = func(ctx context.Context, grants []anylock.Grant) []error {
					errs := inner(ctx, grants)
					if grants[0].Name == name && !errors.Is(errs[0], anylock.ErrUnavailable) {
						select {
						case undone <- struct{}{}:
						default:
						}
					}
					return errs
				}
			})
			a, b := t.peerOn(c, anylock.WithTTL(t.long)), t.peer()
			a.release(a.try(t.name("another"))) // so that a connection is there
			for staged, tries := 0, 0; staged < 2; tries++ {
				drain(undone)
				a.Stall()
				ctx, cancel := context.WithTimeout(t.ctx, 50*time.Millisecond)
				l, err := a.Acquire(ctx, name)
				cancel()
				if err == nil { // on a connection that was opened since
					a.Heal()
					a.release(l)
					if tries > 20 {
						t.Fatalf("no request could be stalled")
					}
					continue
				}
				t.wants(err, context.DeadlineExceeded)
				t.ends(undone, 10*time.Second, "the undo")
				a.Heal()
				time.Sleep(300 * time.Millisecond) // it arrives
				b.free(name, 0, "after a late request")
				staged++
			}
		},
	},
	{
		name:    "ended-ids-are-remembered",
		promise: "A store that remembers the ID which ended last remembers the four that did: their late requests are refused.",
		check: func(t *tester) {
			a, b, name := t.client(), t.client(), t.name("n")
			var ended []anylock.Grant
			for i := range 4 {
				c := a
				if i%2 == 1 {
					c = b
				}
				g := t.grant(c, t.request(name, t.long))
				t.must(t.end(c, g), "Release")
				ended = append(ended, g)
			}
			for i, old := range slices.Backward(ended) {
				r := t.request(name, t.long)
				r.ID = old.ID
				g, err := a.Backend.Acquire(t.bounded(), r)
				if err == nil {
					t.must(t.end(a, g), "Release")
					if i == len(ended)-1 {
						t.Skipf("the store remembers no ID")
					}
					t.Fatalf("granted to an ID that ended %d releases ago", len(ended)-i)
				}
				t.wants(err, anylock.ErrLost)
			}
		},
	},
	{
		name:    "late-answer-is-undone", // B13 B19
		promise: "A cancelled acquire returns at once, and what the store grants later is undone.",
		check: func(t *tester) {
			for _, late := range []string{"the answer is late", "the request is late"} {
				answer := make(chan struct{})
				c, p := t.probe(t.client(), func(p *probe) {
					inner := p.acquire
					p.blocks = true
					p.acquire = func(_ context.Context, r anylock.Request) (anylock.Grant, error) {
						if late == "the request is late" {
							<-answer
						}
						ctx, cancel := background(10 * time.Second) // a driver that takes no notice of contexts
						defer cancel()
						g, err := inner(ctx, r)
						<-answer
						return g, err
					}
				})
				a, b, name := t.peerOn(c, anylock.WithTTL(t.long)), t.peer(), t.name(late)
				ctx, cancel := context.WithCancel(t.ctx)
				var at time.Time
				time.AfterFunc(50*time.Millisecond, func() { at = time.Now(); cancel() })
				_, err := a.Acquire(ctx, name)
				t.within(at, soon, "the return after the cancel")
				t.wants(err, context.Canceled)
				if late == "the answer is late" {
					b.free(name, time.Second, "before the late answer")
				}
				time.AfterFunc(300*time.Millisecond, func() { close(answer) })
				t.ends(answer, 5*time.Second, "the late answer")
				time.Sleep(50 * time.Millisecond)
				b.free(name, time.Second, late)
				if n := p.renewals(); n > 0 {
					t.Errorf("%s: %d renewals of a lease that nobody has", late, n)
				}
			}
		},
	},
	{
		name:    "refused-leaves-nothing", // B73 B108
		promise: "An attempt that was refused is not granted later: nothing of it is left in the store.",
		check: func(t *tester) {
			a, b, c, name := t.client(), t.client(), t.client(), t.name("n")
			clean := t.leftovers()
			for range 5 {
				g := t.grant(a, t.request(name, t.long))
				for range 3 {
					t.heldByOther(b, name, "while it is held")
				}
				time.Sleep(20 * time.Millisecond) // an orphan may take its time to queue up
				t.must(t.end(a, g), "Release")
				for range 3 {
					t.freed(c, name, 0, "after refused attempts")
					time.Sleep(5 * time.Millisecond) // or to be granted
				}
			}
			clean(time.Second)
		},
	},
	{
		name:    "queued-wait-ends", // B73 B84
		promise: "A request in the store's queue returns when its context ends, and leaves nothing queued.",
		needs:   []need{needQueue},
		check: func(t *tester) {
			a, b, c, name := t.client(), t.client(), t.client(), t.name("n")
			clean := t.leftovers()
			for range 5 {
				g := t.grant(a, t.request(name, t.long))
				ctx, cancel := context.WithTimeout(t.ctx, 30*time.Millisecond)
				r := t.request(name, t.long)
				r.Wait = true
				returned := make(chan struct{})
				go func() {
					defer close(returned)
					if _, err := b.Backend.Acquire(ctx, r); err == nil {
						t.Errorf("granted while somebody holds it")
					} else {
						t.not(err, anylock.ErrInvalid, anylock.ErrLost)
					}
				}()
				t.ends(returned, time.Second, "the return of a queued request whose context has ended")
				cancel()
				t.must(t.end(a, g), "Release")
				t.freed(c, name, time.Second, "after a queued request gave up")
			}
			clean(time.Second)
		},
	},
	{
		name:    "black-hole", // B11 B100 B118
		promise: "With the store silent, a cancelled Acquire returns at once, and nothing is left once the store is back.",
		needs:   []need{needCut},
		check: func(t *tester) {
			a, b, name := t.peer(anylock.WithTTL(t.long)), t.peer(), t.name("n")
			a.release(a.try(name))
			clean := t.leftovers()
			for i := range 6 {
				ctx, cancel := context.WithCancel(t.ctx)
				wait := time.Duration(i) * 10 * time.Millisecond
				if i%2 == 0 {
					a.Cut()
				} else {
					time.AfterFunc(wait/2, a.Cut)
				}
				var at time.Time
				time.AfterFunc(wait, func() { at = time.Now(); cancel() })
				l, err := a.Acquire(ctx, name)
				if err == nil { // it was granted before the network was cut
					<-ctx.Done()
					go func() { _ = l.Release(t.ctx) }()
				} else {
					t.within(at, soon, "the return after the cancel")
					t.wants(err, context.Canceled)
				}
				a.Heal()
				b.free(name, 5*time.Second, "after the network healed")
			}
			clean(5 * time.Second)
		},
	},
	{
		name:    "black-hole-with-holder",
		promise: "A waiter whose network is cut while it waits still returns when its context ends.",
		needs:   []need{needCut},
		check: func(t *tester) {
			waits := make(chan struct{})
			hooks := anylock.WithHooks(anylock.Hooks{Waiting: func(anylock.Event) { close(waits) }})
			a, b, name := t.peer(anylock.WithTTL(t.long)), t.peer(anylock.WithTTL(t.long), hooks), t.name("n")
			l := a.try(name)
			ctx, cancel := context.WithCancel(t.ctx)
			defer cancel()
			var at time.Time
			go func() {
				select {
				case <-waits:
				case <-ctx.Done():
					return
				}
				time.Sleep(50 * time.Millisecond)
				b.Cut()
				time.Sleep(100 * time.Millisecond)
				at = time.Now()
				cancel()
			}()
			_, err := b.Acquire(ctx, name)
			t.within(at, soon, "the return after the cancel")
			t.wants(err, context.Canceled, anylock.ErrHeld)
			a.release(l)
			b.Heal()
			t.peer().free(name, 5*time.Second, "after a waiter that was cut off gave up")
		},
	},
	{
		name:    "silent-store-is-bounded", // B92 B100 B118
		promise: "With the store silent, every call ends by its request timeout with ErrUnavailable, also without a deadline.",
		needs:   []need{needCut},
		check: func(t *tester) {
			const timeout = 300 * time.Millisecond
			a, name := t.peer(anylock.WithRequestTimeout(timeout)), t.name("n")
			l := a.patient(t.name("held"), anylock.WithTTL(t.long))
			a.Cut()
			check := func(what string, call func() error) {
				start := time.Now()
				err := call()
				t.within(start, timeout+soon, "%s", what)
				t.wants(err, anylock.ErrUnavailable)
				t.not(err, anylock.ErrHeld, anylock.ErrLost, anylock.ErrInvalid)
			}
			check("TryAcquire", func() error { _, err := a.TryAcquire(t.ctx, name); return err })
			check("Acquire", func() error { _, err := a.Acquire(context.Background(), name); return err })
			check("Renew", func() error { return l.Renew(context.Background()) })
			check("Release", func() error { return l.Release(context.Background()) })
			if l.Err() == nil {
				t.Errorf("a lease is still trusted after a release that failed")
			}
			a.Heal()
			t.peer().free(l.Name(), 5*time.Second, "after the network healed")
		},
	},
	{
		name:    "keeps-deadlines", // B11 B100
		promise: "Where the backend says so, its methods return with their context's deadline, on a silent network too.",
		needs:   []need{needCut, needDeadlines},
		check: func(t *tester) {
			c, name := t.client(), t.name("n")
			g := t.grant(c, t.request(name, t.long))
			for what, call := range map[string]func(ctx context.Context) error{
				"Acquire": func(ctx context.Context) error {
					_, err := c.Backend.Acquire(ctx, t.request(t.name("other"), t.TTL))
					return err
				},
				"Release": func(ctx context.Context) error { return c.Backend.Release(ctx, []anylock.Grant{g})[0] },
				"Watch": func(ctx context.Context) error {
					wake, err := c.Backend.Watch(ctx, name)
					if err == nil && wake == nil {
						return errStaged // it never listens
					}
					return err
				},
			} {
				c.Cut()
				ctx, cancel := context.WithTimeout(t.ctx, 60*time.Millisecond)
				end, _ := ctx.Deadline()
				err := call(ctx)
				t.within(end, soon, "the return of %s after its deadline", what)
				if err == nil && what != "Watch" {
					t.Errorf("%s on a cut network: no error", what)
				}
				cancel()
				c.Heal()
			}
		},
	},
	{
		name:    "close-in-a-black-hole",
		promise: "Close is bounded when the store is silent.",
		needs:   []need{needCut},
		check: func(t *tester) {
			const timeout = 200 * time.Millisecond
			a := t.peer(anylock.WithRequestTimeout(timeout))
			l := a.patient(t.name("n"))
			a.Cut()
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.ctx, 100*time.Millisecond)
			defer cancel()
			err := a.Locker.Close(ctx)
			t.within(start, soon, "Close with a short context")
			t.wants(err, context.DeadlineExceeded)
			t.wants(l.Err(), anylock.ErrClosed)
			if err := a.Locker.Close(t.ctx); err == nil {
				t.Errorf("Close says that all is released, and the store was silent")
			}
			t.within(start, 10*timeout+2*time.Second, "Close")
		},
	},
}

// cancelSoon returns a context that is cancelled at a random moment.
func cancelSoon(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	scale := []time.Duration{50 * time.Microsecond, 500 * time.Microsecond, 5 * time.Millisecond}[rand.IntN(3)]
	time.AfterFunc(rand.N(scale), cancel)
	return ctx, cancel
}

// heldError is the store's word on who has the lock.
func (t *tester) heldError(err error) *anylock.HeldError {
	held, ok := errors.AsType[*anylock.HeldError](err)
	if !ok {
		t.Fatalf("error %v, want a *HeldError", err)
	}
	return held
}
