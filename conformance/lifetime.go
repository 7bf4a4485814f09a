package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anylock/anylock"
)

var lifetimeCases = []testCase{
	{
		name:    "renewed-while-held",
		promise: "A lease outlives its TTL by renewal: it is never lost while the store answers, and nobody else gets in.",
		check: func(t *tester) {
			a, b, name := t.peer(), t.peer(), t.name("n")
			l := a.try(name, anylock.WithTTL(t.wide))
			first := l.Deadline()
			for end := time.Now().Add(l.TTL() * 5 / 4); time.Now().Before(end); time.Sleep(l.TTL() / 50) {
				t.must(l.Err(), "the lease")
				b.refused(name, "while the lease is renewed")
			}
			if !l.Deadline().After(first) {
				t.Errorf("the deadline has not moved")
			}
			a.release(l)
		},
	},
	{
		name:    "renewal-rate", // B45
		promise: "A lease is renewed two to six times in its TTL.",
		check: func(t *tester) {
			c, p := t.probe(t.client(), nil)
			a := t.peerOn(c)
			l := a.try(t.name("n"), anylock.WithTTL(t.TTL))
			time.Sleep(2 * l.TTL())
			if n := p.renewals(); n < 4 || n > 12 {
				t.Errorf("%d renewals in twice the TTL of %v, want 4 to 12", n, l.TTL())
			}
			a.release(l)
		},
	},
	{
		name:    "long-ttl-few-renewals", // B45
		promise: "A lease with a long TTL is not renewed long before it needs to be.",
		check: func(t *tester) {
			c, p := t.probe(t.client(), nil)
			a := t.peerOn(c)
			l := a.try(t.name("n"), anylock.WithTTL(t.long))
			time.Sleep(l.TTL() / 20)
			if n := p.renewals(); n > 1 {
				t.Errorf("%d renewals in a twentieth of the TTL of %v", n, l.TTL())
			}
			a.release(l)
		},
	},
	{
		name:    "window-within-grant", // B49
		promise: "A grant lasts at least as long as asked for, and its window starts inside the call that got it.",
		check: func(t *tester) {
			c := t.client()
			before := time.Now()
			g := t.grant(c, t.request(t.name("n"), t.TTL))
			t.windowIn(g.From, g.TTL, before, "the grant")
			before = time.Now()
			r := t.renewal(c, g)
			t.must(r.Err, "Renew")
			t.windowIn(r.From, r.TTL, before, "the renewal")
			t.must(t.end(c, g), "Release")
		},
	},
	{
		name:    "window-from-sending",
		promise: "The trust window is counted from when the request left, not from when the reply came.",
		needs:   []need{needSlow},
		check: func(t *tester) {
			delay := min(t.TTL/3, 500*time.Millisecond)
			c := t.client()
			g := t.grant(c, t.request(t.name("warm-up"), t.TTL))
			c.Slow(delay)
			defer c.Slow(0)
			before := time.Now()
			r := t.renewal(c, g)
			t.must(r.Err, "Renew")
			t.sentEarly(r.From, before, delay, "the renewal")
			before = time.Now()
			g = t.grant(c, t.request(t.name("n"), t.long))
			t.sentEarly(g.From, before, delay, "the grant")
			c.Slow(0)
			t.must(t.end(c, g), "Release")
		},
	},
	{
		name:    "window-after-waiting", // B51
		promise: "A lock that was won after a long wait comes with a full window: never a dead lease, never more than its TTL.",
		check: func(t *tester) {
			a, b, name := t.peer(), t.peer(), t.name("n")
			l := a.try(name)
			time.AfterFunc(2*t.TTL, func() { _ = l.Release(t.ctx) })
			next := b.acquire(name, anylock.WithoutRenewal())
			if left := time.Until(next.Deadline()); left < next.TTL()/2-t.stalled() || left > next.TTL() {
				t.Errorf("the window has %v left of a TTL of %v", left, next.TTL())
			}
			t.must(next.Err(), "a lease that was just granted")
			b.release(next)
		},
	},
	{
		name:    "store-keeps-its-word",
		promise: "The store frees an unrenewed lock no earlier than its TTL after the request left, and not much later.",
		needs:   []need{needLapse},
		check: func(t *tester) {
			a, b := t.client(), t.client()
			t.expires(a, b, t.grant(a, t.request(t.name("granted"), t.TTL)), "granted")
			for _, what := range []string{"granted for no whole number of TTLs", "granted so again"} {
				t.expires(a, b, t.grant(a, t.request(t.name("odd"), t.TTL*19/10)), what)
			}
			g := t.grant(a, t.request(t.name("renewed"), t.TTL))
			time.Sleep(t.TTL / 2)
			r := t.renewal(a, g)
			t.must(r.Err, "Renew")
			g.From, g.TTL = r.From, r.TTL
			t.expires(a, b, g, "renewed")
		},
	},
	{
		name:    "renew-sets-the-time", // B37
		promise: "Renewing sets the remaining time and never adds to it.",
		needs:   []need{needLapse},
		check: func(t *tester) {
			a, b := t.client(), t.client()
			g := t.grant(a, t.request(t.name("n"), t.TTL))
			for range 10 {
				r := t.renewal(a, g)
				t.must(r.Err, "Renew")
				if r.TTL > 2*g.TTL {
					t.Errorf("a renewal granted %v, the TTL is %v", r.TTL, g.TTL)
				}
				g.From = r.From
			}
			t.expires(a, b, g, "renewed ten times in a row")
		},
	},
	{
		name:    "window-ends-by-itself",
		promise: "A lease that is not renewed ends with its window, without asking the store: Done, Err and Context say so.",
		check: func(t *tester) {
			a, name := t.peer(), t.name("n")
			l := a.try(name, anylock.WithoutRenewal())
			ctx, cancel := l.Context(t.ctx)
			defer cancel()
			end := l.Deadline()
			t.ends(l.Done(), time.Until(end)+soon, "the end of an unrenewed lease")
			if early := time.Until(end); early > 0 {
				t.Errorf("the lease ended %v before its window", early)
			}
			t.wants(l.Err(), anylock.ErrLost)
			t.not(l.Err(), anylock.ErrReleased, anylock.ErrClosed)
			t.ends(ctx.Done(), time.Second, "the end of the lease's context")
			t.wants(context.Cause(ctx), anylock.ErrLost)
			t.wants(l.Release(t.ctx), anylock.ErrLost)
			t.wants(l.Renew(t.ctx), anylock.ErrLost)
		},
	},
	{
		name:    "err-looks-at-the-clock", // B35
		promise: "After the end of the window Err is not nil, whether or not anything else has noticed.",
		check: func(t *tester) {
			a := t.peer()
			for i := range 3 {
				l := a.try(t.name(fmt.Sprint(i)), anylock.WithoutRenewal(), anylock.WithMargin(t.TTL/2))
				end := l.Deadline()
				for time.Now().Before(end) {
					runtime.Gosched()
				}
				t.wants(l.Err(), anylock.ErrLost)
			}
		},
	},
	{
		name:    "lost-before-the-next-grant", // B65 B75
		promise: "A holder that is cut off is told of the loss before anybody else is granted the name, every time.",
		needs:   []need{needCut},
		check: func(t *tester) {
			name := t.name("n")
			for round := range 3 {
				a, b := t.peer(), t.peer()
				l := a.acquire(name)
				time.Sleep(rand.N(t.TTL / 2))
				a.Cut()
				var told atomic.Int64
				go func() {
					<-l.Done()
					told.Store(time.Now().UnixNano())
				}()
				next := b.acquire(name)
				granted := time.Now()
				if l.Err() == nil {
					t.Fatalf("round %d: two holders: the one that was cut off still trusts its lease", round)
				}
				t.eventually(time.Second, "Done is not closed", func() error {
					if told.Load() == 0 {
						return errors.New("open")
					}
					return nil
				})
				if at := told.Load(); at > granted.UnixNano() {
					t.Errorf("round %d: told %v after the next grant", round, time.Duration(at-granted.UnixNano()))
				}
				t.wants(l.Err(), anylock.ErrLost)
				b.release(next)
			}
		},
	},
	{
		name:    "steal-is-loss", // B31 B65 B78
		promise: "A holder whose lock was removed by hand is told within a renewal, once, with ErrLost; its release says so.",
		needs:   []need{needSteal},
		check: func(t *tester) {
			var lost atomic.Int32
			a := t.peer(anylock.WithHooks(anylock.Hooks{Lost: func(anylock.Event) { lost.Add(1) }}))
			b, name := t.peer(), t.name("n")
			l := a.try(name, anylock.WithTTL(t.wide))
			t.must(t.Steal(t.ctx, name), "Steal")
			t.ends(l.Done(), l.TTL()*6/10, "the loss of a stolen lease")
			t.wants(l.Err(), anylock.ErrLost)
			next := b.acquire(name)
			t.wants(l.Release(t.ctx), anylock.ErrLost)
			t.must(t.renewalOf(next), "the new holder's renewal")
			t.peer().refused(name, "after the old holder's release")
			b.release(next)
			t.eventually(time.Second, "the Lost hook", func() error {
				if n := lost.Load(); n != 1 {
					return fmt.Errorf("called %d times, want once", n)
				}
				return nil
			})
		},
	},
	{
		name:    "backend-tells-loss", // B65
		promise: "A backend that says so calls Request.Lost by itself when the grant has ended in the store.",
		needs:   []need{needTold, needSteal},
		check: func(t *tester) {
			c, told := t.client(), make(chan struct{})
			var calls atomic.Int32
			r := t.request(t.name("n"), t.long)
			r.Lost = func(error) {
				if calls.Add(1) == 1 {
					close(told)
				}
			}
			t.grant(c, r)
			t.must(t.Steal(t.ctx, r.Name), "Steal")
			t.ends(told, 5*time.Second, "the call of Request.Lost")
			time.Sleep(20 * time.Millisecond)
			if n := calls.Load(); n != 1 {
				t.Errorf("Request.Lost was called %d times", n)
			}
		},
	},
	{
		name:    "told-loss-ends-lease", // B65
		promise: "A lease ends at once when the backend says that the grant is gone, with its cause.",
		check: func(t *tester) {
			var lost func(error)
			c, _ := t.probe(t.client(), func(p *probe) {
				inner := p.acquire
				p.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
					lost = r.Lost
					return inner(ctx, r)
				}
			})
			a := t.peerOn(c, anylock.WithTTL(t.long))
			l := a.try(t.name("n"))
			if lost == nil {
				t.Fatalf("the core gave no Request.Lost")
			}
			lost(errStaged)
			t.ends(l.Done(), time.Second, "the end of a lease that the backend declared lost")
			t.wants(l.Err(), anylock.ErrLost, errStaged)
		},
	},
	{
		name:    "stale-renew-refused", // B42 B132
		promise: "Renewing what has expired is refused with ErrLost, and never extends the next holder's lock.",
		needs:   []need{needExpiry},
		check: func(t *tester) {
			a, b, name := t.client(), t.client(), t.name("n")
			old := t.grant(a, t.request(name, t.TTL))
			next := t.expire(a, b, old)
			t.renewRefused(a, old, "of an expired grant, with a successor")
			t.must(t.renewal(b, next).Err, "the successor's renewal")
			t.must(t.end(b, next), "the successor's release")
			t.renewRefused(a, old, "of an expired grant, without a successor")
			t.freed(b, name, time.Second, "after stale renewals")
		},
	},
	{
		name:    "renew-never-resurrects", // B26 B42
		promise: "Renewing what was released is refused with ErrLost and does not re-create it.",
		check: func(t *tester) {
			a, b, name := t.client(), t.client(), t.name("n")
			g := t.grant(a, t.request(name, t.long))
			t.must(t.end(a, g), "Release")
			t.renewRefused(a, g, "of a released grant")
			t.freed(b, name, 0, "after a stale renewal")
		},
	},
	{
		name:    "renewal-after-expiry",
		promise: "Renewing what has expired is refused with ErrLost, also when nobody else has come in between.",
		needs:   []need{needLapse},
		check: func(t *tester) {
			a, name := t.client(), t.name("n")
			g := t.grant(a, t.request(name, t.TTL))
			time.Sleep(time.Until(g.From.Add(g.TTL + g.TTL/2)))
			t.renewRefused(a, g, "of a grant that has expired unseen")
		},
	},
	{
		name:    "stale-release-frees-nothing", // B20 B42
		promise: "Releasing what has expired says ErrLost and leaves the next holder's lock alone.",
		needs:   []need{needExpiry},
		check: func(t *tester) {
			a, b, c, name := t.client(), t.client(), t.client(), t.name("n")
			old := t.grant(a, t.request(name, t.TTL))
			next := t.expire(a, b, old)
			t.wants(t.end(a, old), anylock.ErrLost)
			t.heldByOther(c, name, "after a stale release")
			t.must(t.renewal(b, next).Err, "the successor's renewal")
			t.must(t.end(b, next), "the successor's release")
		},
	},
	{
		name:    "stale-lease", // B20 B22
		promise: "A holder that overslept gets ErrLost from Renew and Release in no time, and its successor notices nothing.",
		needs:   []need{needLapse},
		check: func(t *tester) {
			a, b, c, name := t.peer(), t.peer(), t.peer(), t.name("n")
			old := a.try(name, anylock.WithoutRenewal())
			next := b.acquire(name)
			start := time.Now()
			t.wants(old.Renew(t.ctx), anylock.ErrLost)
			t.wants(old.Release(t.ctx), anylock.ErrLost)
			t.wants(old.Release(t.ctx), anylock.ErrLost)
			t.within(start, time.Second, "renewing and releasing a lost lease")
			c.refused(name, "after the old holder's release")
			t.must(t.renewalOf(next), "the successor's renewal")
			b.release(next)
		},
	},
	{
		name:    "second-release-harmless",
		promise: "Releasing twice is harmless, even when somebody else has the lock by then.",
		check: func(t *tester) {
			a, b, name := t.peer(), t.peer(), t.name("n")
			l := a.try(name)
			a.release(l)
			t.wants(l.Err(), anylock.ErrReleased)
			t.ends(l.Done(), 0, "Done after Release")
			next := b.try(name)
			t.must(l.Release(t.ctx), "the second Release")
			again, cancel := context.WithCancel(t.ctx)
			cancel()
			_ = l.Release(again)
			t.wants(l.Renew(t.ctx), anylock.ErrReleased)
			a.refused(name, "after a second Release")
			t.must(t.renewalOf(next), "the next holder's renewal")
			b.release(next)
		},
	},
	{
		name:    "release-by-many", // B29
		promise: "Eight goroutines may release one lease at once: it is freed, and each is told that or that it was lost.",
		check: func(t *tester) {
			a, b, name := t.peer(), t.peer(), t.name("n")
			for round := range 5 {
				l := a.acquire(name, anylock.WithTTL(t.long))
				if round > 0 && t.Steal != nil {
					t.must(t.Steal(t.ctx, name), "Steal")
				}
				t.parallel(8, func(int) {
					if err := l.Release(t.ctx); err != nil && !errors.Is(err, anylock.ErrLost) {
						t.Errorf("Release: %v", err)
					}
				})
				b.free(name, 0, "after a release by many")
			}
		},
	},
	{
		name:    "release-with-dead-context",
		promise: "Release with a context that has ended still tells the store.",
		check: func(t *tester) {
			a, b, name := t.peer(anylock.WithTTL(t.long)), t.peer(), t.name("n")
			dead, cancel := context.WithCancel(t.ctx)
			cancel()
			l := a.try(name)
			if err := l.Release(dead); err != nil {
				t.wants(err, context.Canceled)
			}
			if l.Err() == nil {
				t.Errorf("the lease is still trusted after Release")
			}
			b.free(name, time.Second, "after Release with a dead context")
		},
	},
	{
		name:    "one-failed-renewal", // B33 B41
		promise: "A renewal that got no answer is not a loss: it is tried again until the window ends.",
		check: func(t *tester) {
			var failures, failed atomic.Int32
			failures.Store(1)
			c, _ := t.probe(t.client(), func(p *probe) {
				inner := p.renew
				p.renew = func(ctx context.Context, grants []anylock.Grant) []anylock.Renewal {
					if failures.Add(-1) < 0 {
						return inner(ctx, grants)
					}
					out := make([]anylock.Renewal, len(grants))
					for i := range out {
						out[i].Err = anylock.Unavailable(errStaged)
					}
					return out
				}
			})
			a := t.peerOn(c, anylock.WithHooks(anylock.Hooks{RenewFailed: func(anylock.Event) { failed.Add(1) }}))
			l := a.try(t.name("n"), anylock.WithTTL(t.wide))
			for end := time.Now().Add(l.TTL() * 5 / 4); time.Now().Before(end); time.Sleep(l.TTL() / 50) {
				t.must(l.Err(), "the lease after one failed renewal")
			}
			if failed.Load() != 1 {
				t.Errorf("the RenewFailed hook was called %d times, want once", failed.Load())
			}
			a.release(l)
		},
	},
	{
		name:    "refused-renewal-is-loss", // B31
		promise: "A renewal that the store refused ends the lease at once, and renewals for it cease.",
		check: func(t *tester) {
			c, p := t.probe(t.client(), func(p *probe) {
				p.renew = func(_ context.Context, grants []anylock.Grant) []anylock.Renewal {
					out := make([]anylock.Renewal, len(grants))
					for i := range out {
						out[i].Err = anylock.ErrLost
					}
					return out
				}
			})
			a := t.peerOn(c)
			l := a.try(t.name("n"), anylock.WithTTL(t.wide))
			end := l.Deadline()
			t.ends(l.Done(), l.TTL()*6/10, "the loss after a refused renewal")
			if !time.Now().Before(end) {
				t.Errorf("the loss was told only at the end of the window")
			}
			t.wants(l.Err(), anylock.ErrLost)
			n := p.renewals()
			time.Sleep(l.TTL() / 2)
			if more := p.renewals() - n; more > 0 {
				t.Errorf("%d renewals of a lease that was lost", more)
			}
		},
	},
	{
		name:    "renewals-cease", // B27 B139
		promise: "After a release nothing renews the lock again, however short it was held.",
		check: func(t *tester) {
			c, p := t.probe(t.client(), nil)
			a, b, name := t.peerOn(c), t.peer(), t.name("n")
			clean := t.leftovers()
			for i := range 300 {
				ctx, cancel := context.WithCancel(t.ctx)
				if i%3 == 0 {
					time.AfterFunc(rand.N(time.Millisecond), cancel)
				}
				if l, err := a.Acquire(ctx, name); err == nil {
					time.Sleep(rand.N(300 * time.Microsecond))
					a.release(l)
				} else {
					t.wants(err, context.Canceled)
				}
				cancel()
			}
			b.free(name, time.Second, "after many short leases")
			time.Sleep(50 * time.Millisecond)
			n := p.renewals()
			time.Sleep(t.TTL)
			if more := p.renewals() - n; more > 0 {
				t.Errorf("%d renewals although nothing is held", more)
			}
			clean(time.Second)
		},
	},
	{
		name:    "max-hold", // B124
		promise: "WithMaxHold ends a lease at most one TTL after the hold time, with ErrMaxHold, and the lock becomes free.",
		check: func(t *tester) {
			a, b, name := t.peer(), t.peer(), t.name("n")
			l := a.try(name, anylock.WithMaxHold(t.TTL*3/2))
			start := time.Now()
			next := b.acquire(name)
			t.within(start, t.TTL*3/2+2*l.TTL()+time.Second, "waiting for a holder with a maximum hold time")
			if took := time.Since(start); took < t.TTL*3/2-t.TTL/10 {
				t.Errorf("the lease ended after %v, before its hold time of %v", took, t.TTL*3/2)
			}
			t.wants(l.Err(), anylock.ErrLost, anylock.ErrMaxHold)
			b.release(next)
		},
	},
	{
		name:    "context-of-lease",
		promise: "The context of a lease ends with the lease or with its parent, whichever is first.",
		check: func(t *tester) {
			a := t.peer()
			parent, cancelParent := context.WithCancel(t.ctx)
			l := a.try(t.name("n"))
			one, cancelOne := l.Context(parent)
			two, cancelTwo := l.Context(t.ctx)
			defer cancelTwo()
			three, cancelThree := l.Context(t.ctx)
			cancelThree()
			t.wants(three.Err(), context.Canceled)
			t.must(two.Err(), "a sibling's context")
			cancelParent()
			t.ends(one.Done(), time.Second, "the end of a context with its parent")
			cancelOne()
			t.must(l.Err(), "the lease after its contexts ended")
			a.release(l)
			t.ends(two.Done(), time.Second, "the end of a context with its lease")
			t.wants(context.Cause(two), anylock.ErrReleased)
			late, cancelLate := l.Context(t.ctx)
			defer cancelLate()
			t.wants(context.Cause(late), anylock.ErrReleased)
		},
	},
	{
		name:    "acquire-context-is-not-the-lease's",
		promise: "The context of Acquire bounds the wait and never the lease.",
		check: func(t *tester) {
			a, b, name := t.peer(), t.peer(), t.name("n")
			ctx, cancel := context.WithCancel(t.ctx)
			l, err := a.Acquire(ctx, name)
			t.must(err, "Acquire")
			cancel()
			time.Sleep(2 * t.TTL)
			t.must(l.Err(), "the lease after the end of Acquire's context")
			b.refused(name, "after the end of Acquire's context")
			a.release(l)
		},
	},
	{
		name:    "do-releases",
		promise: "Do gives the lock back when its function returns, fails, panics or exits its goroutine, and hides no error.",
		check: func(t *tester) {
			a, b, name := t.peer(anylock.WithTTL(t.long)), t.peer(), t.name("n")
			run := func(f func() error) (err error) {
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { _ = recover() }()
					err = a.Do(t.ctx, name, func(context.Context, *anylock.Lease) error {
						b.refused(name, "inside Do")
						return f()
					})
				}()
				<-done
				b.free(name, 0, "after Do")
				return err
			}
			t.must(run(func() error { return nil }), "Do")
			t.wants(run(func() error { return errStaged }), errStaged)
			_ = run(func() error { panic(errStaged) })
			_ = run(func() error { runtime.Goexit(); return nil })
		},
	},
	{
		name:    "do-tells-loss",
		promise: "Do ends its function's context when the lease is lost, with the cause, and returns ErrLost.",
		check: func(t *tester) {
			a := t.peer(anylock.WithoutRenewal())
			err := a.Do(t.ctx, t.name("n"), func(ctx context.Context, l *anylock.Lease) error {
				t.ends(ctx.Done(), 2*l.TTL(), "the end of the context inside Do")
				t.wants(context.Cause(ctx), anylock.ErrLost)
				return nil
			})
			t.wants(err, anylock.ErrLost)
		},
	},
	{
		name:    "close-releases-all", // B122
		promise: "Close releases every lease in the store at once, ends it with ErrClosed, and turns away who waits.",
		check: func(t *tester) {
			a, b := t.peer(anylock.WithTTL(t.long)), t.peer()
			n := min(20, t.MaxHolds-1)
			leases := make([]*anylock.Lease, n)
			for i := range leases {
				leases[i] = a.try(t.name(fmt.Sprint(i)))
			}
			waiter := make(chan error, 1)
			go func() {
				_, err := a.Acquire(t.ctx, leases[0].Name())
				waiter <- err
			}()
			time.Sleep(20 * time.Millisecond)
			start := time.Now()
			t.must(a.Locker.Close(t.ctx), "Close")
			t.within(start, 5*time.Second, "Close")
			for _, l := range leases {
				t.ends(l.Done(), 0, "Done after Close")
				t.wants(l.Err(), anylock.ErrClosed)
				b.free(l.Name(), 0, "after Close")
			}
			t.wants(<-waiter, anylock.ErrClosed)
			t.must(a.Locker.Close(t.ctx), "the second Close")
			if err := leases[0].Release(t.ctx); err != nil {
				t.wants(err, anylock.ErrClosed)
			}
		},
	},
	{
		name:    "hooks-hold-up-nothing", // B41
		promise: "A Lost hook that blocks or panics is called once and does not hold up the renewal of other leases.",
		check: func(t *tester) {
			block := make(chan struct{})
			unblock := sync.OnceFunc(func() { close(block) })
			defer unblock() // also when the case fails, and is run again
			var calls atomic.Int32
			a := t.peer(anylock.WithHooks(anylock.Hooks{Lost: func(anylock.Event) {
				if calls.Add(1) == 1 {
					<-block
				}
				panic("staged by the conformance suite")
			}}))
			one, two := a.try(t.name("one")), a.try(t.name("two"))
			for _, s := range []string{"lost-one", "lost-two"} {
				t.ends(a.try(t.name(s), anylock.WithoutRenewal()).Done(), 2*one.TTL(), "the loss of an unrenewed lease")
			}
			time.Sleep(2 * t.TTL)
			t.must(one.Err(), "another lease")
			t.must(two.Err(), "another lease")
			unblock()
			if n := calls.Load(); n != 2 {
				t.Errorf("the Lost hook was called %d times for two losses", n)
			}
			a.release(one)
			a.release(two)
		},
	},
}

// windowIn checks that a window was opened inside a call that began at before and has just ended.
func (t *tester) windowIn(from time.Time, ttl time.Duration, before time.Time, what string) {
	if from.Before(before) || from.After(time.Now()) {
		t.Errorf("%s is counted from %v after the call began", what, from.Sub(before))
	}
	if ttl < t.TTL {
		t.Errorf("%s lasts %v, asked for %v", what, ttl, t.TTL)
	}
	if !strings.Contains(from.String(), " m=") {
		t.Errorf("%s has no monotonic time", what)
	}
}

// sentEarly checks that a window was opened before a reply that took delay.
func (t *tester) sentEarly(from, before time.Time, delay time.Duration, what string) {
	if from.Before(before) {
		t.Errorf("%s is counted from before the call", what)
	}
	if after := from.Sub(before); after > delay/2+t.stalled() {
		t.Errorf("%s is counted from %v after the call, and the reply took %v", what, after, delay)
	}
}

// expires checks when the store gives away a lock that a has been granted and that nobody renews.
func (t *tester) expires(a, b Client, g anylock.Grant, what string) {
	next := t.expire(a, b, g)
	at := time.Now()
	if early := g.From.Add(g.TTL).Sub(at); early > 0 {
		t.Errorf("%s: the store gave the lock away %v too early", what, early)
	}
	if late := at.Sub(g.From.Add(g.TTL)); late > t.TTL/2+300*time.Millisecond+2*t.stalled() {
		t.Errorf("%s: the store gave the lock away %v after it should have expired", what, late)
	}
	t.must(t.end(b, next), "Release")
}

// renewRefused checks that a grant cannot be renewed.
func (t *tester) renewRefused(c Client, g anylock.Grant, what string) {
	r := t.renewal(c, g)
	if r.Err == nil {
		t.Errorf("renewal %s: no error, want ErrLost", what)
		return
	}
	t.wants(r.Err, anylock.ErrLost)
	t.not(r.Err, anylock.ErrUnavailable)
}

func (t *tester) renewalOf(l *anylock.Lease) error { return l.Renew(t.ctx) }
