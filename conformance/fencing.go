package conformance

import (
	"errors"
	"slices"
	"time"

	"github.com/anylock/anylock"
)

var fencingCases = []testCase{
	{
		name:    "grows-over-release",
		promise: "Each grant's token is positive and greater than that of every earlier grant of the name, whoever gets it.",
		check: func(t *tester) {
			a, b, name := t.peer(), t.peer(), t.name("n")
			grows := t.growing()
			for range 20 {
				for _, p := range []*peer{a, b} {
					l := p.try(name)
					grows(l.Token(), "after a release")
					p.release(l)
				}
			}
		},
	},
	{
		name:    "grows-in-a-race",
		promise: "Of two grants the later has the greater token, also when many clients race.",
		check: func(t *tester) {
			h := t.race(8, 8, 500)
			if err := h.Disorder(); err != nil {
				t.Errorf("%v", err)
			}
		},
	},
	{
		name:    "grows-over-expiry",
		promise: "Tokens keep growing when leases expire instead of being released.",
		needs:   []need{needExpiry},
		check: func(t *tester) {
			a, b, name := t.client(), t.client(), t.name("n")
			grows := t.growing()
			first := t.grant(a, t.request(name, t.TTL))
			grows(first.Token, "at first")
			next := t.expire(a, b, first)
			grows(next.Token, "after an expiry")
			t.must(t.end(b, next), "Release")
			g := t.grant(a, t.request(name, t.TTL))
			grows(g.Token, "after an expiry and a release")
			t.must(t.end(a, g), "Release")
		},
	},
	{
		name:    "grows-over-steal",
		promise: "Tokens keep growing when the lock is removed by hand.",
		needs:   []need{needSteal},
		check: func(t *tester) {
			a, b, name := t.peer(), t.peer(), t.name("n")
			grows := t.growing()
			for range 3 {
				grows(a.acquire(name).Token(), "after a steal and a release")
				t.must(t.Steal(t.ctx, name), "Steal")
				l := b.acquire(name)
				grows(l.Token(), "after a steal")
				b.release(l)
			}
		},
	},
	{
		name:    "grows-over-restart",
		promise: "Tokens keep growing when the store is killed and comes back.",
		needs:   []need{needRestart, needFence},
		check: func(t *tester) {
			a, b, name := t.peer(), t.peer(), t.name("n")
			grows := t.growing()
			l := a.try(name)
			grows(l.Token(), "at first")
			a.release(l)
			t.restart()
			grows(b.recovers(name, "after a restart"), "after a restart")
			grows(a.recovers(name, "after a restart"), "after a restart, for the client from before")
		},
	},
	{
		name:    "grows-over-promotion",
		promise: "Tokens keep growing when a replica takes over, if the backend says so.",
		needs:   []need{needPromote, needFence},
		check: func(t *tester) {
			a, name := t.peer(), t.name("n")
			first := a.free(name, t.TTL, "at first")
			t.must(t.Promote(t.ctx), "Promote")
			if next := a.recovers(name, "after a promotion"); next <= first {
				t.broken(anylock.ReplicaPromotion, "token %d after a promotion, and %d before it", next, first)
			}
		},
	},
	{
		name:    "min-token",
		promise: "A grant's token is at least Request.MinToken, and later ones grow from there.",
		check: func(t *tester) {
			a, b, name := t.peer(), t.peer(), t.name("n")
			l := a.try(name)
			floor := l.Token() + 1<<40
			a.release(l)
			l = a.try(name, anylock.WithMinToken(floor))
			if l.Token() < floor {
				t.Errorf("token %d, asked for at least %d", l.Token(), floor)
			}
			grows := t.growing()
			grows(l.Token(), "with a minimum")
			a.release(l)
			l = b.try(name)
			grows(l.Token(), "after a grant with a minimum")
			b.release(l)
			l = a.try(name, anylock.WithMinToken(1))
			grows(l.Token(), "with a minimum that is long past")
			a.release(l)

			fresh := t.name("fresh")
			l = a.try(fresh, anylock.WithMinToken(floor))
			if l.Token() < floor {
				t.Errorf("a new name has token %d, asked for at least %d", l.Token(), floor)
			}
			a.release(l)
		},
	},
	{
		name:    "repeat-keeps-token", // B02
		promise: "An Acquire repeated with the same ID finds its own lock and answers with the same token.",
		check: func(t *tester) {
			a, b, name := t.client(), t.client(), t.name("n")
			r := t.request(name, t.long)
			first := t.grant(a, r)
			again := t.grant(a, r)
			if again.Token != first.Token {
				t.Errorf("token %d, and %d when repeated", first.Token, again.Token)
			}
			t.heldByOther(b, name, "after a repeated acquire")
			t.must(t.end(a, again), "Release")
			t.freed(b, name, time.Second, "after a repeated acquire and one release")
		},
	},
}

// growing returns a check that each token is greater than those before.
func (t *tester) growing() func(token anylock.Token, when string) {
	var last anylock.Token
	return func(token anylock.Token, when string) {
		if token <= last {
			t.Errorf("token %d %s, and %d before", token, when, last)
		}
		last = max(last, token)
	}
}

// broken reports that exclusion or fencing did not survive a fault: a failure if the backend claims that it does.
func (t *tester) broken(f anylock.Fault, format string, args ...any) {
	if t.desc.Guarantees.Survives&f != 0 {
		t.Errorf(format, args...)
		return
	}
	t.Logf("not claimed, and seen: "+format, args...)
}

// recovers takes and frees the lock once the store answers again, and returns the token.
func (p *peer) recovers(name, when string) (token anylock.Token) {
	p.t.eventually(2*p.t.TTL+30*time.Second, when+": no acquire works", func() error {
		l, err := p.TryAcquire(p.t.ctx, name)
		if err != nil {
			if !slices.ContainsFunc([]error{anylock.ErrHeld, anylock.ErrUnavailable}, func(e error) bool { return errors.Is(err, e) }) {
				p.t.Errorf("%s: %v, want ErrHeld or ErrUnavailable if not a lease", when, err)
			}
			return err
		}
		token = l.Token()
		return l.Release(p.t.ctx)
	})
	return token
}

func (t *tester) restart() {
	t.must(t.Kill(t.ctx), "Kill")
	t.must(t.Start(t.ctx), "Start")
}
