package conformance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/anylock/anylock"
)

var errorCases = []testCase{
	{
		name:    "contention-is-held", // B59 B130
		promise: "A lock that somebody else has gives ErrHeld and no other class, from backend and Locker alike.",
		check: func(t *tester) {
			a, b, name := t.peer(), t.peer(), t.name("n")
			l := a.try(name, anylock.WithHolder("the holder"))
			others := []error{anylock.ErrLost, anylock.ErrUnavailable, anylock.ErrInvalid, anylock.ErrClosed, anylock.ErrReleased,
				context.Canceled, context.DeadlineExceeded}
			for range 10 {
				_, err := b.Backend.Acquire(t.bounded(), t.request(name, t.TTL))
				_ = t.heldError(err)
				t.not(err, others...)
				_, err = b.TryAcquire(t.ctx, name)
				_ = t.heldError(err)
				t.not(err, others...)
				var e *anylock.Error
				if !errors.As(err, &e) || e.Op != "acquire" || e.Name != name || e.Backend != t.desc.Name {
					t.Errorf("error %v does not tell operation, lock and backend", err)
				}
			}
			a.release(l)
		},
	},
	{
		name:    "outage-is-not-held", // B100 B112 B130
		promise: "A store that does not answer gives ErrUnavailable, and never ErrHeld or ErrLost.",
		needs:   []need{needCut},
		check: func(t *tester) {
			c, other, name := t.client(), t.client(), t.name("n")
			g := t.grant(c, t.request(t.name("own"), t.long))
			theirs := t.grant(other, t.request(name, t.long))
			c.Cut()
			ctx, cancel := context.WithTimeout(t.ctx, 300*time.Millisecond)
			defer cancel()
			check := func(what string, call func() error) {
				answer := make(chan error, 1)
				go func() { answer <- call() }()
				select {
				case err := <-answer:
					if err == nil {
						t.Errorf("%s on a cut network: no error", what)
					}
					t.not(err, anylock.ErrHeld, anylock.ErrLost, anylock.ErrInvalid)
				case <-time.After(500 * time.Millisecond): // it may block: the core leaves it behind
				}
			}
			check("Acquire", func() error { _, err := c.Backend.Acquire(ctx, t.request(name, t.TTL)); return err })
			check("Renew", func() error { return c.Backend.Renew(ctx, []anylock.Grant{g})[0].Err })
			check("Release", func() error { return c.Backend.Release(ctx, []anylock.Grant{g})[0] })
			c.Heal()
			t.must(t.end(other, theirs), "Release")
		},
	},
	{
		name:    "driver-error-reachable", // B130 B132
		promise: "The cause of an error is reachable by errors.As and errors.Is through every wrapper.",
		check: func(t *tester) {
			c, _ := t.probe(t.client(), func(p *probe) {
				p.acquire = func(context.Context, anylock.Request) (anylock.Grant, error) {
					return anylock.Grant{}, fmt.Errorf("driver: %w", errStaged)
				}
			})
			a := t.peerOn(c)
			_, err := a.TryAcquire(t.ctx, t.name("n"))
			t.wants(err, errStaged, anylock.ErrUnavailable)
			t.not(err, anylock.ErrHeld)
		},
	},
	{
		name:    "refusal-is-final", // B94 B110
		promise: "A store that refuses for good gives ErrInvalid at once, also to an Acquire that could wait.",
		check: func(t *tester) {
			c, p := t.probe(t.client(), func(p *probe) {
				p.acquire = func(context.Context, anylock.Request) (anylock.Grant, error) {
					return anylock.Grant{}, anylock.Invalid(errStaged, "grant the right")
				}
			})
			a := t.peerOn(c)
			start := time.Now()
			_, err := a.Acquire(t.ctx, t.name("n"))
			t.within(start, time.Second, "Acquire")
			t.wants(err, anylock.ErrInvalid, errStaged)
			t.not(err, anylock.ErrUnavailable)
			if n := p.calls(); n != 1 {
				t.Errorf("%d requests to the store, want 1", n)
			}
		},
	},
	{
		name:    "lost-is-not-unavailable", // B132
		promise: "A lost lease and a store that does not answer are told apart in Renew.",
		check: func(t *tester) {
			var lost atomic.Bool
			c, _ := t.probe(t.client(), func(p *probe) {
				p.renew = func(_ context.Context, grants []anylock.Grant) []anylock.Renewal {
					err := anylock.Unavailable(errStaged)
					if lost.Load() {
						err = anylock.ErrLost
					}
					out := make([]anylock.Renewal, len(grants))
					for i := range out {
						out[i].Err = err
					}
					return out
				}
			})
			a := t.peerOn(c, anylock.WithTTL(t.long))
			l := a.try(t.name("n"))
			err := l.Renew(t.ctx)
			t.wants(err, anylock.ErrUnavailable, errStaged)
			t.not(err, anylock.ErrLost)
			t.must(l.Err(), "the lease after a renewal without an answer")
			lost.Store(true)
			err = l.Renew(t.ctx)
			t.wants(err, anylock.ErrLost)
			t.not(err, anylock.ErrUnavailable)
			t.wants(l.Err(), anylock.ErrLost)
		},
	},
	{
		name:    "no-secrets", // B134
		promise: "No error and no log record contains an ID or a password.",
		check: func(t *tester) {
			c, p := t.probe(t.client(), nil)
			a, b, name := t.peerOn(c, anylock.WithoutRenewal(), anylock.WithRequestTimeout(300*time.Millisecond)), t.peer(), t.name("n")
			var texts []string
			note := func(err error) {
				if err != nil {
					texts = append(texts, err.Error(), fmt.Sprintf("%+v", err))
				}
			}
			l := a.try(name)
			_, err := b.TryAcquire(t.ctx, name)
			note(err)
			ctx, cancel := context.WithTimeout(t.ctx, 20*time.Millisecond)
			_, err = b.Acquire(ctx, name)
			cancel()
			note(err)
			<-l.Done()
			note(l.Err())
			note(l.Renew(t.ctx))
			note(l.Release(t.ctx))
			g := anylock.Grant{Name: name, ID: p.allIDs()[0]}
			note(t.end(c, g))
			note(t.renewal(c, g).Err)
			if c.Cut != nil {
				c.Cut()
				_, err = a.TryAcquire(t.ctx, t.name("other"))
				note(err)
				c.Heal()
			}
			note(a.Locker.Close(t.ctx))
			_, err = a.TryAcquire(t.ctx, name)
			note(err)
			texts = append(texts, t.log.String())
			secrets := p.allIDs()
			if t.Secret != "" {
				secrets = append(secrets, t.Secret)
			}
			for _, text := range texts {
				for _, s := range secrets {
					if strings.Contains(text, s) {
						t.Errorf("an ID or a password is in: %s", strings.ReplaceAll(text, s, "[here]"))
					}
				}
			}
		},
	},
	{
		name:    "quiet-contention", // B134
		promise: "Contention and cancelled waits are not logged above Debug.",
		check: func(t *tester) {
			var log syncBuffer
			logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo}))
			a, b, name := t.peer(anylock.WithLogger(logger)), t.peer(anylock.WithLogger(logger)), t.name("n")
			l := a.try(name)
			for range 50 {
				b.refused(name, "a try")
				ctx, cancel := cancelSoon(t.ctx)
				if _, err := b.Acquire(ctx, name); err == nil {
					t.Errorf("the lock was granted twice")
				}
				cancel()
				free := t.name("free")
				ctx, cancel = cancelSoon(t.ctx)
				if m, err := b.Acquire(ctx, free); err == nil {
					b.release(m)
				}
				cancel()
			}
			a.release(l)
			if s := log.String(); s != "" {
				t.Errorf("logged:\n%.2000s", s)
			}
		},
	},
	{
		name:    "quiet-outage", // B134
		promise: "An outage is logged at Warn, in a few lines however many locks are held.",
		check: func(t *tester) {
			var log syncBuffer
			var down atomic.Bool
			c, _ := t.probe(t.client(), func(p *probe) {
				inner := p.renew
				p.renew = func(ctx context.Context, grants []anylock.Grant) []anylock.Renewal {
					if !down.Load() {
						return inner(ctx, grants)
					}
					out := make([]anylock.Renewal, len(grants))
					for i := range out {
						out[i].Err = anylock.Unavailable(errStaged)
					}
					return out
				}
			})
			a := t.peerOn(c, anylock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			n := min(50, t.MaxHolds-1)
			for i := range n {
				a.try(t.name(fmt.Sprint(i)))
			}
			down.Store(true)
			time.Sleep(2 * t.TTL)
			lines := strings.Count(log.String(), "\n")
			if lines < 1 || lines > 10 {
				t.Errorf("%d lines for %d locks:\n%.2000s", lines, n, log.String())
			}
		},
	},
}
