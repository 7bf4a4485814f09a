package conformance

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anylock/anylock"
)

// sabotage is a backend that breaks one promise, and the case that must notice.
type sabotage struct {
	fault  string
	caught string // topic/case
	wake   anylock.Wake
	break_ func(e *evil)
}

// evil is a backend over an honest one, with some methods replaced. Its clients share state, as those of one store do.
type evil struct {
	*shared
	honest  anylock.Backend
	acquire func(ctx context.Context, r anylock.Request) (anylock.Grant, error)
	renew   func(ctx context.Context, grants []anylock.Grant) []anylock.Renewal
	release func(ctx context.Context, grants []anylock.Grant) []error
	watch   func(ctx context.Context, name string) (<-chan struct{}, error)
	close   func() error
}

type shared struct {
	sync.Mutex
	n      int
	byName map[string]anylock.Grant
	byID   map[string]time.Time
	tokens map[string]anylock.Token
}

func (e *evil) Acquire(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
	g, err := e.acquire(ctx, r)
	if err == nil {
		e.Lock()
		e.byName[g.Name] = g
		e.Unlock()
	}
	return g, err
}

func (e *evil) Renew(ctx context.Context, grants []anylock.Grant) []anylock.Renewal {
	return e.renew(ctx, grants)
}
func (e *evil) Release(ctx context.Context, grants []anylock.Grant) []error {
	return e.release(ctx, grants)
}
func (e *evil) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	return e.watch(ctx, name)
}
func (e *evil) Describe() anylock.Description { return e.honest.Describe() }
func (e *evil) Close() error                  { return e.close() }

// count reports true every n-th time.
func (e *evil) count(n int) bool {
	e.Lock()
	defer e.Unlock()
	e.n++
	return e.n%n == 0
}

func (e *evil) holder(name string) anylock.Grant {
	e.Lock()
	defer e.Unlock()
	return e.byName[name]
}

// numbered replaces tokens by those of a counter for each name.
func (e *evil) numbered(next func(name string, last anylock.Token) anylock.Token) {
	e.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
		g, err := e.honest.Acquire(ctx, r)
		if err == nil {
			e.Lock()
			defer e.Unlock()
			g.Token = next(r.Name, e.tokens[r.Name])
			e.tokens[r.Name] = g.Token
		}
		return g, err
	}
}

// eachRenewal changes the outcomes of renewals.
func (e *evil) eachRenewal(change func(g anylock.Grant, r anylock.Renewal) anylock.Renewal) {
	e.renew = func(ctx context.Context, grants []anylock.Grant) []anylock.Renewal {
		out := e.honest.Renew(ctx, grants)
		for i := range out {
			out[i] = change(grants[i], out[i])
		}
		return out
	}
}

// eachRequest changes requests and grants.
func (e *evil) eachRequest(change func(r anylock.Request) anylock.Request, after func(r anylock.Request, g anylock.Grant) anylock.Grant) {
	e.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
		g, err := e.honest.Acquire(ctx, change(r))
		if err == nil {
			g.Name = r.Name
			g = after(r, g)
		}
		return g, err
	}
}

// renamed lets the store see other names.
func (e *evil) renamed(change func(string) string) {
	rename := func(grants []anylock.Grant) []anylock.Grant {
		var out []anylock.Grant
		for _, g := range grants {
			g.Name = change(g.Name)
			out = append(out, g)
		}
		return out
	}
	e.eachRequest(func(r anylock.Request) anylock.Request { r.Name = change(r.Name); return r },
		func(_ anylock.Request, g anylock.Grant) anylock.Grant { return g })
	e.renew = func(ctx context.Context, grants []anylock.Grant) []anylock.Renewal {
		return e.honest.Renew(ctx, rename(grants))
	}
	e.release = func(ctx context.Context, grants []anylock.Grant) []error {
		return e.honest.Release(ctx, rename(grants))
	}
}

// eachError changes the errors of acquires.
func (e *evil) eachError(change func(r anylock.Request, err error) error) {
	e.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
		g, err := e.honest.Acquire(ctx, r)
		if err != nil {
			err = change(r, err)
		}
		return g, err
	}
}

var sabotages = []sabotage{
	{"a cancelled wait goes on", "waiting/cancelled-waiter-is-gone", anylock.WakeQueue, func(e *evil) {
		e.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
			if !r.Wait {
				return e.honest.Acquire(ctx, r)
			}
			go func() { // and gives the lock back only a while after it was granted
				queued, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				if g, err := e.honest.Acquire(queued, r); err == nil {
					time.Sleep(50 * time.Millisecond)
					_ = e.honest.Release(context.Background(), []anylock.Grant{g})
				}
			}()
			<-ctx.Done()
			return anylock.Grant{}, ctx.Err()
		}
	}},
	{"only the last ID that ended is remembered", "cancellation/ended-ids-are-remembered", anylock.WakeQueue, func(e *evil) {
		e.release = func(ctx context.Context, grants []anylock.Grant) []error {
			e.Lock()
			e.byName["the last"] = grants[0]
			e.Unlock()
			return e.honest.Release(ctx, grants)
		}
		e.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
			e.Lock()
			over := r.ID == e.byName["the last"].ID
			e.Unlock()
			if over {
				return anylock.Grant{}, anylock.ErrLost
			}
			fresh := r
			fresh.ID = rand.Text()
			if _, err := e.honest.Acquire(ctx, r); errors.Is(err, anylock.ErrLost) {
				return e.honest.Acquire(ctx, fresh)
			}
			return e.honest.Acquire(ctx, r)
		}
	}},
	{"release by name alone", "lifetime/stale-release-frees-nothing", anylock.WakeQueue, func(e *evil) {
		e.release = func(ctx context.Context, grants []anylock.Grant) []error {
			out := make([]error, len(grants))
			for i, g := range grants {
				out[i] = e.honest.Release(ctx, []anylock.Grant{e.holder(g.Name)})[0]
			}
			return out
		}
	}},
	{"IDs compared by their first letters", "batch/whole-id", anylock.WakeQueue, func(e *evil) {
		e.release = func(ctx context.Context, grants []anylock.Grant) []error {
			out := make([]error, len(grants))
			for i, g := range grants {
				if h := e.holder(g.Name); h.ID != "" && h.ID[:8] == g.ID[:8] {
					g = h
				}
				out[i] = e.honest.Release(ctx, []anylock.Grant{g})[0]
			}
			return out
		}
	}},
	{"renewal resurrects", "lifetime/renew-never-resurrects", anylock.WakeQueue, func(e *evil) {
		e.eachRenewal(func(g anylock.Grant, r anylock.Renewal) anylock.Renewal {
			if errors.Is(r.Err, anylock.ErrLost) {
				if again, err := e.honest.Acquire(context.Background(), anylock.Request{Name: g.Name, ID: rand.Text(), TTL: g.TTL}); err == nil {
					return anylock.Renewal{From: again.From, TTL: again.TTL}
				}
			}
			return r
		})
	}},
	{"renewal revives what has expired", "lifetime/renewal-after-expiry", anylock.WakeQueue, func(e *evil) {
		e.eachRenewal(func(g anylock.Grant, r anylock.Renewal) anylock.Renewal {
			if errors.Is(r.Err, anylock.ErrLost) {
				return anylock.Renewal{From: time.Now(), TTL: g.TTL} // nobody has come in between, after all
			}
			return r
		})
	}},
	{"renewal adds to the remaining time", "lifetime/renew-sets-the-time", anylock.WakeQueue, func(e *evil) {
		e.renew = func(ctx context.Context, grants []anylock.Grant) []anylock.Renewal {
			out := make([]anylock.Renewal, len(grants))
			for i, g := range grants {
				e.Lock()
				ends := e.byID[g.ID]
				if ends.IsZero() {
					ends = time.Now().Add(g.TTL)
				}
				ends = ends.Add(g.TTL)
				e.byID[g.ID] = ends
				e.Unlock()
				asked := g.TTL
				g.TTL = time.Until(ends)
				out[i] = e.honest.Renew(ctx, []anylock.Grant{g})[0]
				out[i].TTL = asked
			}
			return out
		}
	}},
	{"late loss: a refused renewal is reported as nil", "lifetime/stale-renew-refused", anylock.WakeQueue, func(e *evil) {
		e.eachRenewal(func(g anylock.Grant, r anylock.Renewal) anylock.Renewal {
			if errors.Is(r.Err, anylock.ErrLost) {
				return anylock.Renewal{From: time.Now(), TTL: g.TTL}
			}
			return r
		})
	}},
	{"late loss: a refused renewal is reported as unknown", "lifetime/steal-is-loss", anylock.WakeNotify, func(e *evil) {
		e.eachRenewal(func(g anylock.Grant, r anylock.Renewal) anylock.Renewal {
			if errors.Is(r.Err, anylock.ErrLost) {
				r.Err = anylock.Unavailable(errors.New("no such key"))
			}
			return r
		})
	}},
	{"Lost callback dropped", "lifetime/backend-tells-loss", anylock.WakeQueue, func(e *evil) {
		e.eachRequest(func(r anylock.Request) anylock.Request { r.Lost = nil; return r },
			func(_ anylock.Request, g anylock.Grant) anylock.Grant { return g })
	}},
	{"token resets on release", "fencing/grows-over-release", anylock.WakeQueue, func(e *evil) {
		e.numbered(func(_ string, last anylock.Token) anylock.Token { return last + 1 })
		e.release = func(ctx context.Context, grants []anylock.Grant) []error {
			e.Lock()
			for _, g := range grants {
				delete(e.tokens, g.Name)
			}
			e.Unlock()
			return e.honest.Release(ctx, grants)
		}
	}},
	{"token resets on expiry", "fencing/grows-over-expiry", anylock.WakeQueue, func(e *evil) {
		e.numbered(func(name string, last anylock.Token) anylock.Token {
			if !e.byID[name].IsZero() { // it was not released
				last = 0
			}
			e.byID[name] = time.Now()
			return last + 1
		})
		e.release = func(ctx context.Context, grants []anylock.Grant) []error {
			e.Lock()
			for _, g := range grants {
				delete(e.byID, g.Name)
			}
			e.Unlock()
			return e.honest.Release(ctx, grants)
		}
	}},
	{"token is a coarse clock", "fencing/grows-in-a-race", anylock.WakeQueue, func(e *evil) {
		e.numbered(func(string, anylock.Token) anylock.Token { return anylock.Token(time.Now().UnixMilli() / 10) })
	}},
	{"MinToken ignored", "fencing/min-token", anylock.WakeQueue, func(e *evil) {
		e.eachRequest(func(r anylock.Request) anylock.Request { r.MinToken = 0; return r },
			func(_ anylock.Request, g anylock.Grant) anylock.Grant { return g })
	}},
	{"MinToken reported but not kept", "fencing/min-token", anylock.WakeQueue, func(e *evil) {
		e.eachRequest(func(r anylock.Request) anylock.Request { r.MinToken = 0; return r },
			func(r anylock.Request, g anylock.Grant) anylock.Grant { g.Token = max(g.Token, r.MinToken); return g })
	}},
	{"a repeated acquire is refused by its own lock", "fencing/repeat-keeps-token", anylock.WakeQueue, func(e *evil) {
		e.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
			if h := e.holder(r.Name); h.ID == r.ID {
				return anylock.Grant{}, &anylock.HeldError{}
			}
			return e.honest.Acquire(ctx, r)
		}
	}},
	{"deadline from the reply", "lifetime/window-from-sending", anylock.WakeQueue, func(e *evil) {
		e.eachRequest(func(r anylock.Request) anylock.Request { return r },
			func(_ anylock.Request, g anylock.Grant) anylock.Grant { g.From = time.Now(); return g })
		e.eachRenewal(func(_ anylock.Grant, r anylock.Renewal) anylock.Renewal { r.From = time.Now(); return r })
	}},
	{"deadline of a queued grant from the start of the wait", "waiting/queue-grants", anylock.WakeQueue, func(e *evil) {
		e.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
			from := time.Now()
			g, err := e.honest.Acquire(ctx, r)
			g.From = from
			return g, err
		}
	}},
	{"wall clock without the monotonic reading", "lifetime/window-within-grant", anylock.WakeQueue, func(e *evil) {
		e.eachRequest(func(r anylock.Request) anylock.Request { return r },
			func(_ anylock.Request, g anylock.Grant) anylock.Grant { g.From = g.From.Round(0); return g })
	}},
	{"the store expires early", "lifetime/store-keeps-its-word", anylock.WakeQueue, func(e *evil) {
		e.eachRequest(func(r anylock.Request) anylock.Request { r.TTL -= r.TTL / 4; return r },
			func(r anylock.Request, g anylock.Grant) anylock.Grant { g.TTL = r.TTL; return g })
	}},
	{"the TTL is rounded down", "values/odd-ttls", anylock.WakeQueue, func(e *evil) {
		e.eachRequest(func(r anylock.Request) anylock.Request {
			r.TTL = max(r.TTL.Truncate(time.Millisecond), time.Millisecond)
			return r
		}, func(_ anylock.Request, g anylock.Grant) anylock.Grant { return g })
	}},
	{"the store cuts the TTL to whole units", "lifetime/store-keeps-its-word", anylock.WakeQueue, func(e *evil) {
		e.eachRequest(func(r anylock.Request) anylock.Request {
			r.TTL = max(r.TTL.Truncate(150*time.Millisecond), time.Millisecond)
			return r
		}, func(r anylock.Request, g anylock.Grant) anylock.Grant { g.TTL = r.TTL; return g })
	}},
	{"an acquire compares IDs by their first letters", "batch/whole-id", anylock.WakeQueue, func(e *evil) {
		e.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
			if h := e.holder(r.Name); h.ID != "" && h.ID[:8] == r.ID[:8] {
				r.ID = h.ID
			}
			return e.honest.Acquire(ctx, r)
		}
	}},
	{"a huge TTL overflows", "values/extreme-ttls", anylock.WakeQueue, func(e *evil) {
		e.eachRequest(func(r anylock.Request) anylock.Request {
			if r.TTL > 1000*time.Hour {
				r.TTL = time.Millisecond
			}
			return r
		}, func(r anylock.Request, g anylock.Grant) anylock.Grant { g.TTL = r.TTL; return g })
	}},
	{"ignored context", "cancellation/queued-wait-ends", anylock.WakeQueue, func(e *evil) {
		e.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
			defer cancel()
			return e.honest.Acquire(ctx, r)
		}
	}},
	{"orphan on cancel: the queue entry stays", "cancellation/queued-wait-ends", anylock.WakeQueue, func(e *evil) {
		e.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
			type answer struct {
				g   anylock.Grant
				err error
			}
			got := make(chan answer, 1)
			go func() {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
				defer cancel()
				g, err := e.honest.Acquire(ctx, r)
				got <- answer{g, err}
			}()
			select {
			case a := <-got:
				return a.g, a.err
			case <-ctx.Done():
				return anylock.Grant{}, ctx.Err()
			}
		}
	}},
	{"orphan on refusal: granted later", "cancellation/refused-leaves-nothing", anylock.WakeQueue, func(e *evil) {
		e.eachError(func(r anylock.Request, err error) error {
			if errors.Is(err, anylock.ErrHeld) {
				r.Wait = true
				go func() {
					ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
					defer cancel()
					_, _ = e.honest.Acquire(ctx, r)
				}()
			}
			return err
		})
	}},
	{"contention reported as an error", "errors/contention-is-held", anylock.WakeNotify, func(e *evil) {
		e.eachError(func(_ anylock.Request, err error) error {
			if errors.Is(err, anylock.ErrHeld) {
				return anylock.Unavailable(errors.New("serialization failure"))
			}
			return err
		})
	}},
	{"unavailable reported as held", "errors/outage-is-not-held", anylock.WakeNotify, func(e *evil) {
		e.eachError(func(_ anylock.Request, err error) error {
			if errors.Is(err, anylock.ErrUnavailable) {
				return &anylock.HeldError{}
			}
			return err
		})
	}},
	{"an error tells the ID", "errors/no-secrets", anylock.WakeNotify, func(e *evil) {
		e.release = func(ctx context.Context, grants []anylock.Grant) []error {
			errs := e.honest.Release(ctx, grants)
			for i, err := range errs {
				if err != nil {
					errs[i] = fmt.Errorf("%w: %s", err, grants[i].ID)
				}
			}
			return errs
		}
	}},
	{"RetryAfter is wrong", "waiting/retry-after", anylock.WakeNotify, func(e *evil) {
		e.eachError(func(_ anylock.Request, err error) error {
			if held, ok := errors.AsType[*anylock.HeldError](err); ok {
				held.RetryAfter *= 3
			}
			return err
		})
	}},
	{"the holder's label belongs to another", "values/holder-label", anylock.WakeNotify, func(e *evil) {
		e.eachError(func(r anylock.Request, err error) error {
			if held, ok := errors.AsType[*anylock.HeldError](err); ok {
				held.Holder = "me"
			}
			return err
		})
	}},
	{"a second holder once in 500 attempts", "exclusion/race", anylock.WakeNotify, func(e *evil) {
		e.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
			g, err := e.honest.Acquire(ctx, r)
			if errors.Is(err, anylock.ErrHeld) && e.count(500) {
				return anylock.Grant{Name: r.Name, ID: r.ID, TTL: r.TTL, From: time.Now(), Token: e.holder(r.Name).Token + 1}, nil
			}
			return g, err
		}
		e.release = func(ctx context.Context, grants []anylock.Grant) []error {
			_ = e.honest.Release(ctx, grants)
			return make([]error, len(grants))
		}
	}},
	{"a client's second request re-enters", "exclusion/sessions-do-not-reenter", anylock.WakeQueue, func(e *evil) {
		var mine sync.Map
		e.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
			g, err := e.honest.Acquire(ctx, r)
			if old, ok := mine.Load(r.Name); ok && errors.Is(err, anylock.ErrHeld) {
				g = old.(anylock.Grant)
				g.ID = r.ID
				return g, nil
			}
			if err == nil {
				mine.Store(r.Name, g)
			}
			return g, err
		}
	}},
	{"names without case", "values/odd-names", anylock.WakeQueue, func(e *evil) { e.renamed(strings.ToLower) }},
	{"long names cut", "values/long-names", anylock.WakeQueue, func(e *evil) {
		e.renamed(func(name string) string { return name[:min(len(name), 255)] })
	}},
	{"the releaser does not stand back", "waiting/releaser-stands-back", anylock.WakeNotify, func(e *evil) {
		e.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
			return e.honest.Acquire(hasty{ctx}, r)
		}
	}},
	{"missed wake-up", "waiting/wakes-watchers", anylock.WakeNotify, func(e *evil) {
		e.watch = func(ctx context.Context, name string) (<-chan struct{}, error) {
			from, err := e.honest.Watch(ctx, name)
			to := make(chan struct{}, 1)
			go func() {
				for {
					select {
					case <-from:
						if !e.count(7) {
							select {
							case to <- struct{}{}:
							default:
							}
						}
					case <-ctx.Done():
						return
					}
				}
			}()
			return to, err
		}
	}},
	{"Watch returns before it listens", "waiting/wakes-watchers", anylock.WakeNotify, func(e *evil) {
		e.watch = func(ctx context.Context, name string) (<-chan struct{}, error) {
			to := make(chan struct{}, 1)
			go func() {
				time.Sleep(5 * time.Millisecond)
				from, err := e.honest.Watch(ctx, name)
				if err != nil {
					return
				}
				for {
					select {
					case <-from:
						select {
						case to <- struct{}{}:
						default:
						}
					case <-ctx.Done():
						return
					}
				}
			}()
			return to, nil
		}
	}},
	{"a queue that is none", "waiting/store-order", anylock.WakeQueue, func(e *evil) {
		e.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
			r.Wait = false
			return e.honest.Acquire(ctx, r)
		}
	}},
	{"release results out of order", "batch/release-in-order", anylock.WakeQueue, func(e *evil) {
		e.release = func(ctx context.Context, grants []anylock.Grant) []error {
			out := e.honest.Release(ctx, grants)
			for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
				out[i], out[j] = out[j], out[i]
			}
			return out
		}
	}},
	{"release is not a batch: only the first counts", "batch/release-in-order", anylock.WakeQueue, func(e *evil) {
		e.release = func(ctx context.Context, grants []anylock.Grant) []error {
			out := make([]error, len(grants))
			if len(grants) > 0 {
				out[0] = e.honest.Release(ctx, grants[:1])[0]
			}
			return out
		}
	}},
	{"a batch fails as a whole", "batch/renew-in-order", anylock.WakeQueue, func(e *evil) {
		e.renew = func(ctx context.Context, grants []anylock.Grant) []anylock.Renewal {
			out := e.honest.Renew(ctx, grants)
			for i := range out {
				if out[i].Err != nil {
					for j := range out {
						out[j].Err = out[i].Err
					}
				}
			}
			return out
		}
	}},
	{"releasing needs the state of the grant", "batch/release-by-name-and-id", anylock.WakeQueue, func(e *evil) {
		e.release = func(ctx context.Context, grants []anylock.Grant) []error {
			out := e.honest.Release(ctx, nil)
			for _, g := range grants {
				if g.Token == 0 {
					out = append(out, anylock.ErrLost)
				} else {
					out = append(out, e.honest.Release(ctx, []anylock.Grant{g})[0])
				}
			}
			return out
		}
	}},
	{"Close does not close", "values/closed-backend", anylock.WakeQueue, func(e *evil) {
		e.close = func() error { return nil }
	}},
	{"each acquire leaks a goroutine", "exclusion/held-by-one", anylock.WakeQueue, func(e *evil) {
		e.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
			go func() { time.Sleep(7 * time.Second) }()
			return e.honest.Acquire(ctx, r)
		}
	}},
}

// hasty is a context with which nobody waits for anything, but that has not ended.
type hasty struct{ context.Context }

func (hasty) Done() <-chan struct{} {
	now := make(chan struct{})
	close(now)
	return now
}
func (hasty) Err() error { return nil }

func TestSabotageIsCaught(t *testing.T) {
	honest := map[string]bool{}
	for _, s := range sabotages {
		t.Run(strings.ReplaceAll(s.fault, " ", "-"), func(t *testing.T) {
			c := caseNamed(t, s.caught)
			if key := s.caught + s.wake.String(); !honest[key] {
				if r := suiteOf(t, s.wake, nil).run(c); len(r.failures) > 0 || r.skipped != "" {
					t.Fatalf("%s fails or is skipped for an honest backend: %s%s", s.caught, r.skipped, strings.Join(r.failures, "\n"))
				}
				honest[key] = true
			}
			state := &shared{byName: map[string]anylock.Grant{}, byID: map[string]time.Time{}, tokens: map[string]anylock.Token{}}
			r, _ := suiteOf(t, s.wake, func(b anylock.Backend) anylock.Backend {
				e := &evil{shared: state, honest: b, acquire: b.Acquire, renew: b.Renew, release: b.Release, watch: b.Watch, close: b.Close}
				s.break_(e)
				return e
			}).runOnce(c)
			if len(r.failures) == 0 {
				t.Errorf("%s does not notice", s.caught)
			} else {
				t.Logf("%s: %.300s", s.caught, r.failures[0])
			}
		})
	}
}

func suiteOf(t *testing.T, wake anylock.Wake, wrap func(anylock.Backend) anylock.Backend) *suite {
	t.Helper()
	s, err := newSuite(t.Context(), memoryHarness(wake, false, wrap))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func caseNamed(t *testing.T, name string) testCase {
	t.Helper()
	for _, topic := range topics {
		for _, c := range topic.cases {
			if topic.name+"/"+c.name == name {
				return c
			}
		}
	}
	t.Fatalf("there is no case %s", name)
	return testCase{}
}
