package conformance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/anylock/anylock"
)

var exclusionCases = []testCase{
	{
		name:    "held-by-one", // B87 B89
		promise: "While a lease is held, every other acquire is refused with ErrHeld: from other clients and from the same.",
		check: func(t *tester) {
			a, b, name := t.peer(), t.peer(), t.name("n")
			lease := a.try(name)
			for range 20 {
				a.refused(name, "the same Locker")
				b.refused(name, "another client")
			}
			ctx, cancel := background(t.TTL / 4)
			defer cancel()
			_, err := a.Acquire(ctx, name)
			t.wants(err, anylock.ErrHeld)
			t.must(lease.Err(), "the lease after others failed")
			a.release(lease)
			b.release(b.try(name))
		},
	},
	{
		name:    "sessions-do-not-reenter", // B87 B89
		promise: "A client refuses a second request for a name that it holds itself: no session, connection or process re-enters.",
		check: func(t *tester) {
			c, name := t.client(), t.name("n")
			g := t.grant(c, t.request(name, t.long))
			for range 20 {
				t.heldByOther(c, name, "the same client")
			}
			t.must(t.end(c, g), "Release")
		},
	},
	{
		name:    "one-winner",
		promise: "Of many who try a free lock at once one gets it, and all others are told ErrHeld and nothing else.",
		check: func(t *tester) {
			peers := []*peer{t.peer(), t.peer(), t.peer(), t.peer()}
			for round := range 5 {
				name := t.name(fmt.Sprint(round))
				var winners atomic.Int32
				t.parallel(32, func(i int) {
					_, err := peers[i%len(peers)].TryAcquire(t.ctx, name, anylock.WithTTL(t.long))
					switch {
					case err == nil:
						winners.Add(1)
					case !errors.Is(err, anylock.ErrHeld):
						t.Errorf("a loser was told %v, want ErrHeld", err)
					}
				})
				if n := winners.Load(); n != 1 {
					t.Errorf("%d winners, want 1", n)
				}
			}
		},
	},
	{
		name:    "race", // B24 B53
		promise: "However many clients race for a name, no two of them ever trust it at the same time.",
		check: func(t *tester) {
			h := t.race(8, 8, 1500)
			if err := h.Overlaps(); err != nil {
				t.Errorf("%v", err)
			}
		},
	},
	{
		name:    "race-of-overstayers", // B20
		promise: "Holders that overstay, release late or never do not let two others in.",
		needs:   []need{needLapse},
		check: func(t *tester) {
			if err := t.overstay().Overlaps(); err != nil {
				t.Errorf("%v", err)
			}
		},
	},
}

// race lets processes with several goroutines each take and give back one lock, grants times in all or for some seconds.
func (t *tester) race(processes, each, grants int) *History {
	name := t.name("n")
	h := new(History)
	var left atomic.Int64
	left.Store(int64(grants))
	end := time.Now().Add(10 * time.Second)
	peers := make([]*peer, processes)
	for i := range peers {
		peers[i] = t.peer(anylock.WithTTL(t.long))
	}
	t.parallel(processes*each, func(i int) {
		p := peers[i%processes]
		who := fmt.Sprintf("p%d-g%d", i%processes, i/processes)
		for left.Add(-1) >= 0 && time.Now().Before(end) && t.ctx.Err() == nil {
			call := time.Now()
			l, err := p.Acquire(t.ctx, name)
			from := time.Now()
			if err != nil {
				t.Errorf("%s: Acquire: %v", who, err)
				return
			}
			time.Sleep(rand.N(200 * time.Microsecond))
			h.Add(Span{Name: name, Who: who, Token: l.Token(), Call: call, From: from, Until: earlier(time.Now(), l.Deadline())})
			if err := l.Release(t.ctx); err != nil {
				t.Errorf("%s: Release: %v", who, err)
				return
			}
		}
	})
	t.Logf("%d grants", h.Len())
	return h
}

// overstay is a race of holders that often let their lease expire, and then release it all the same.
func (t *tester) overstay() *History {
	name := t.name("n")
	h := new(History)
	end := time.Now().Add(8 * t.TTL)
	t.parallel(4, func(i int) {
		p := t.peer(anylock.WithoutRenewal())
		who := fmt.Sprintf("p%d", i)
		for time.Now().Before(end) && t.ctx.Err() == nil {
			call := time.Now()
			l, err := p.Acquire(t.ctx, name)
			from := time.Now()
			if err != nil {
				t.Errorf("%s: Acquire: %v", who, err)
				return
			}
			stay := rand.N(t.TTL / 4)
			late := rand.IntN(3) == 0
			if late {
				stay = t.TTL + rand.N(t.TTL/4)
			}
			time.Sleep(stay)
			h.Add(Span{Name: name, Who: who, Token: l.Token(), Call: call, From: from, Until: earlier(time.Now(), l.Deadline())})
			if err := l.Release(t.ctx); err != nil && !errors.Is(err, anylock.ErrLost) {
				t.Errorf("%s: Release: %v", who, err)
			}
		}
	})
	t.Logf("%d grants", h.Len())
	return h
}
