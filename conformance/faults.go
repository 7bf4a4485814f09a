package conformance

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/anylock/anylock"
)

var faultCases = []testCase{
	{
		name:    "reply-lost-on-acquire", // B02 B08 B19
		promise: "An acquire whose reply got lost is never taken for contention: it ends held or undone.",
		needs:   []need{needDropReply},
		check: func(t *tester) {
			for _, try := range []bool{true, false} {
				a, b, name := t.peer(anylock.WithTTL(t.long)), t.peer(), t.name("n")
				a.release(a.try(t.name("warm-up")))
				acquire := a.Acquire
				if try {
					acquire = a.TryAcquire
				}
				a.DropReply()
				l, err := acquire(t.ctx, name)
				if err != nil {
					t.wants(err, anylock.ErrUnavailable)
					t.not(err, anylock.ErrHeld)
				} else {
					b.refused(name, "after a lost reply")
					a.release(l)
				}
				b.free(name, time.Second, "after a lost reply")
				a.recovers(name, "after a lost reply")
			}
		},
	},
	{
		name:    "reply-lost-on-renew", // B33
		promise: "A renewal whose reply got lost does not lose the lease.",
		needs:   []need{needDropReply},
		check: func(t *tester) {
			if t.desc.Guarantees.HoldCost == anylock.CostConnection {
				t.Skipf("the lock goes with its connection")
			}
			a, b, name := t.peer(), t.peer(), t.name("n")
			l := a.try(name, anylock.WithTTL(t.wide))
			a.DropReply()
			if err := l.Renew(t.ctx); err != nil {
				t.wants(err, anylock.ErrUnavailable)
			}
			for end := time.Now().Add(l.TTL() * 5 / 4); time.Now().Before(end); time.Sleep(l.TTL() / 50) {
				t.must(l.Err(), "the lease after a renewal without a reply")
				b.refused(name, "after a renewal without a reply")
			}
			a.release(l)
		},
	},
	{
		name:    "reply-lost-on-release", // B04 B06
		promise: "A release whose reply got lost has ended the lease, and doing it again harms no later holder.",
		needs:   []need{needDropReply},
		check: func(t *tester) {
			a, b, name := t.peer(anylock.WithTTL(t.long)), t.peer(), t.name("n")
			l := a.try(name)
			a.DropReply()
			if err := l.Release(t.ctx); err != nil {
				t.wants(err, anylock.ErrUnavailable)
			}
			second := a.acquire(name)
			if err := l.Release(t.ctx); err != nil {
				t.wants(err, anylock.ErrLost)
			}
			time.Sleep(300 * time.Millisecond) // what is tried again in the background has come through
			b.refused(name, "after the first lease was released again")
			t.must(t.renewalOf(second), "the second lease's renewal")
			a.release(second)
			b.free(name, 0, "after both releases")
		},
	},
	{
		name:    "returns-after-a-cut", // B06 B63 B67 B120
		promise: "A client that was cut off for longer than a TTL works again as soon as its network does.",
		needs:   []need{needCut},
		check: func(t *tester) {
			a, b, name := t.peer(), t.peer(), t.name("n")
			l := a.try(name)
			a.Cut()
			t.ends(l.Done(), l.TTL()+time.Second, "the loss of a lease that was cut off")
			t.eventually(2*l.TTL()+6*time.Second, "the lock of a holder that was cut off is not free", func() error {
				m, err := b.TryAcquire(t.ctx, name)
				if err != nil {
					return err
				}
				return m.Release(t.ctx)
			})
			a.Heal()
			start := time.Now()
			a.recovers(name, "after the network healed")
			t.within(start, 5*time.Second, "the first acquire after the network healed")
			t.wants(l.Release(t.ctx), anylock.ErrLost)
		},
	},
	{
		name:    "waiter-survives-a-cut", // B63 B71
		promise: "A waiter that was cut off for a moment gets the lock when its network is back, though it missed the wake-up.",
		needs:   []need{needCut},
		check: func(t *tester) {
			a, b, name := t.peer(anylock.WithTTL(t.long)), t.peer(anylock.WithRequestTimeout(10*time.Second)), t.name("n")
			l := a.try(name)
			got := make(chan error, 1)
			go func() {
				next, err := b.Acquire(t.ctx, name)
				if err == nil {
					err = next.Release(t.ctx)
				}
				got <- err
			}()
			time.Sleep(100 * time.Millisecond)
			b.Cut()
			a.release(l)
			time.Sleep(200 * time.Millisecond)
			b.Heal()
			start := time.Now()
			if err := <-got; err != nil && !errors.Is(err, anylock.ErrLost) { // it may be granted while cut off
				t.Errorf("the waiter: %v", err)
			}
			t.within(start, 7*time.Second+t.TTL, "waiting after the network healed")
		},
	},
	{
		name:    "slow-store", // B51
		promise: "A grant that arrives when its window is over is not returned but undone: there are no dead leases.",
		needs:   []need{needSlow},
		check: func(t *tester) {
			a, b, name := t.peer(anylock.WithRequestTimeout(3*t.TTL)), t.peer(), t.name("n")
			a.Slow(t.TTL)
			l, err := a.TryAcquire(t.ctx, name)
			if err == nil {
				t.Errorf("a lease although the answer took its whole TTL: Err %v, %v left", l.Err(), time.Until(l.Deadline()))
			} else {
				t.wants(err, anylock.ErrUnavailable)
			}
			a.Slow(0)
			b.free(name, 2*t.TTL+time.Second, "after an answer that came too late")
		},
	},
	{
		name:    "slow-but-alive",
		promise: "A store that answers slowly, but in time, is as good as a quick one: nothing is lost and nothing fails.",
		needs:   []need{needSlow},
		check: func(t *tester) {
			delay := 150 * time.Millisecond
			var lost atomic.Int32
			hooks := anylock.WithHooks(anylock.Hooks{Lost: func(anylock.Event) { lost.Add(1) }})
			b, name := t.peer(), t.name("n")
			for _, first := range []string{"acquire", "renew", "release"} { // the first that is slow
				a := t.peer(anylock.WithTTL(t.long), hooks)
				a.release(a.try(t.name("warm-up")))
				slow := func(what string) {
					if what == first {
						a.Slow(delay)
					}
				}
				slow("acquire")
				l := a.try(name)
				slow("renew")
				t.must(t.renewalOf(l), "Renew")
				b.refused(name, "held through a slow network")
				slow("release")
				a.release(l)
				b.free(name, 0, "after the release")
				a.release(a.acquire(name))
				a.Slow(0)
				b.free(name, time.Second, "at the end")
			}
			time.Sleep(20 * time.Millisecond)
			if n := lost.Load(); n > 0 {
				t.Errorf("the Lost hook was called %d times", n)
			}
		},
	},
	{
		name:    "steal", // B31
		promise: "After a lock was removed by hand the old holder is told, its calls are refused, and the next has a greater token.",
		needs:   []need{needSteal},
		check: func(t *tester) {
			a, b, name := t.client(), t.client(), t.name("n")
			old := t.grant(a, t.request(name, t.TTL))
			t.must(t.Steal(t.ctx, name), "Steal")
			next := t.grant(b, t.request(name, t.long))
			if next.Token <= old.Token {
				t.Errorf("token %d after token %d", next.Token, old.Token)
			}
			t.renewRefused(a, old, "of a stolen grant")
			t.wants(t.end(a, old), anylock.ErrLost)
			t.must(t.renewal(b, next).Err, "the next holder's renewal")
			t.must(t.end(b, next), "the next holder's release")
		},
	},
	{
		name:    "foreign-tool",
		promise: "Another tool that shares the name excludes us, and we exclude it.",
		needs:   []need{needForeign},
		check: func(t *tester) {
			a, name := t.peer(anylock.WithTTL(t.long)), t.name("n")
			free, err := t.Foreign(t.ctx, name)
			t.must(err, "the other tool's acquire of a free lock")
			a.refused(name, "while the other tool has it")
			time.AfterFunc(100*time.Millisecond, func() {
				if err := free(t.ctx); err != nil {
					t.Errorf("the other tool's release: %v", err)
				}
			})
			l := a.acquire(name)
			if free, err := t.Foreign(t.ctx, name); err == nil {
				t.Errorf("the other tool got a lock that we hold")
				_ = free(t.ctx)
			} else {
				t.wants(err, anylock.ErrHeld)
			}
			t.must(t.renewalOf(l), "the lease after the other tool's attempt")
			a.release(l)
			free, err = t.Foreign(t.ctx, name)
			t.must(err, "the other tool's acquire after our release")
			t.must(free(t.ctx), "the other tool's release")
		},
	},
	{
		name:    "paused-store", // B118
		promise: "While the store stands still leases end with their window and calls end in time; afterwards all works again.",
		needs:   []need{needPause},
		check: func(t *tester) {
			const timeout = 500 * time.Millisecond
			a, b, name := t.peer(anylock.WithRequestTimeout(timeout)), t.peer(anylock.WithRequestTimeout(timeout)), t.name("n")
			l := a.try(name)
			end := l.Deadline()
			t.must(t.Pause(t.ctx), "Pause")
			resumed := false
			resume := func() {
				if !resumed {
					resumed = true
					ctx, cancel := background(30 * time.Second)
					defer cancel()
					t.must(t.Resume(ctx), "Resume")
				}
			}
			defer resume()
			start := time.Now()
			_, err := b.TryAcquire(t.ctx, t.name("other"))
			t.within(start, 2*timeout+time.Second, "TryAcquire")
			t.wants(err, anylock.ErrUnavailable)
			t.not(err, anylock.ErrHeld)
			end = laterOf(end, l.Deadline())
			t.ends(l.Done(), time.Until(end)+l.TTL()+soon, "the loss of a lease")
			t.wants(l.Err(), anylock.ErrLost)
			resume()
			a.recovers(name, "after the pause")
			b.recovers(name, "after the pause")
		},
	},
	{
		name:    "restart", // B63 B67 B90
		promise: "When the store is killed and comes back there is one holder at a time, if the backend says so, and all works.",
		needs:   []need{needRestart},
		check: func(t *tester) {
			a, b, name := t.peer(), t.peer(), t.name("n")
			b.release(b.try(t.name("warm-up")))
			l := a.try(name)
			t.restart()
			t.watch(l, b, name, anylock.StoreRestart)
			_ = l.Release(t.ctx)
			a.recovers(name, "after the restart")
			b.recovers(name, "after the restart")
		},
	},
	{
		name:    "waiter-survives-a-restart", // B63 B71
		promise: "A waiter gets the lock although the store was restarted while it waited.",
		needs:   []need{needRestart},
		check: func(t *tester) {
			a, b, name := t.peer(anylock.WithRequestTimeout(30*time.Second)), t.peer(anylock.WithRequestTimeout(30*time.Second)), t.name("n")
			l := a.try(name)
			got := make(chan error, 1)
			go func() {
				next, err := b.Acquire(t.ctx, name)
				if err == nil {
					_ = next.Release(t.ctx)
				}
				got <- err
			}()
			time.Sleep(100 * time.Millisecond)
			t.restart()
			_ = l.Release(t.ctx)
			select {
			case err := <-got:
				t.must(err, "the waiter")
			case <-time.After(2*l.TTL() + 40*time.Second):
				t.Errorf("the waiter still waits")
			}
		},
	},
	{
		name:    "promotion", // B112
		promise: "When a replica takes over there is one holder at a time, if the backend says so.",
		needs:   []need{needPromote},
		check: func(t *tester) {
			a, b, name := t.peer(anylock.WithTTL(t.long)), t.peer(), t.name("n")
			l := a.try(name)
			t.must(t.Promote(t.ctx), "Promote")
			t.watch(l, b, name, anylock.ReplicaPromotion)
			_ = l.Release(t.ctx)
			b.recovers(name, "after the promotion")
		},
	},
	{
		name:    "store-clock-step", // B136
		promise: "When the store's clock jumps there is one holder at a time, if the backend says so.",
		needs:   []need{needStepClock},
		check: func(t *tester) {
			a, b := t.peer(anylock.WithTTL(t.long)), t.peer()
			for _, step := range []time.Duration{time.Hour, -time.Hour} {
				name := t.name(step.String())
				l := a.try(name)
				t.must(t.StepClock(t.ctx, step), "StepClock")
				func() {
					defer func() {
						ctx, cancel := background(30 * time.Second)
						defer cancel()
						t.must(t.StepClock(ctx, -step), "StepClock back")
					}()
					t.watch(l, b, name, anylock.StoreClockStep)
					_ = l.Release(t.ctx)
				}()
				fresh := t.name("after " + step.String())
				b.recovers(fresh, "after the clock was set right")
			}
		},
	},
	{
		name:    "storm", // B29 B126
		promise: "Acquires, cancels, renewals, losses, releases and Close at once: no panic, no race, nothing left, one holder.",
		check: func(t *tester) {
			name := t.name("n")
			var inside atomic.Int32
			clean := t.leftovers()
			for range 3 {
				peers := []*peer{t.peer(), t.peer(), t.peer()}
				closing := time.Now().Add(300 * time.Millisecond)
				time.AfterFunc(time.Until(closing), func() { _ = peers[0].Locker.Close(t.ctx) })
				t.parallel(12, func(i int) {
					p := peers[i%len(peers)]
					for time.Now().Before(closing.Add(100 * time.Millisecond)) {
						ctx, cancel := context.WithTimeout(t.ctx, rand.N(20*time.Millisecond))
						l, err := p.Acquire(ctx, name)
						if err == nil {
							n := inside.Add(1)
							if n > 1 && l.Err() == nil {
								t.Errorf("%d holders", n)
							}
							if i%4 == 0 {
								go func() { _ = l.Renew(ctx) }()
							}
							inside.Add(-1)
							go func() { _ = l.Release(ctx) }()
							_ = l.Release(t.ctx)
						}
						cancel()
					}
				})
			}
			t.peer().free(name, time.Second, "after the storm")
			clean(time.Second)
		},
	},
}

// watch tries to get in for a while after a fault, and reports if that works while the lease is still trusted.
func (t *tester) watch(l *anylock.Lease, b *peer, name string, f anylock.Fault) {
	for end := time.Now().Add(2 * t.TTL); time.Now().Before(end) && l.Err() == nil; time.Sleep(t.TTL / 50) {
		next, err := b.TryAcquire(t.ctx, name)
		if err != nil {
			t.not(err, anylock.ErrInvalid, anylock.ErrLost)
			continue
		}
		if l.Err() == nil {
			t.broken(f, "two holders after %v: tokens %d and %d", f, l.Token(), next.Token())
		}
		b.release(next)
		return
	}
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
