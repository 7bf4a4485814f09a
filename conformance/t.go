package conformance

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anylock/anylock"
)

// tester is what a case works with: it collects failures, and opens clients that are closed when the case ends.
type tester struct {
	*suite
	testCase
	ctx   context.Context // ends with the case
	ended chan struct{}
	long  time.Duration // a TTL that no case waits for
	wide  time.Duration // a TTL whose parts can be told apart on a busy machine

	cancel   context.CancelFunc
	stallMax atomic.Int64
	load     load
	log      syncBuffer
	prefix   string

	mu       sync.Mutex
	failures []string
	logs     []string
	skipped  string
	cleanups []func()
}

func newT(s *suite, c testCase, limit time.Duration) *tester {
	t := &tester{suite: s, testCase: c, ended: make(chan struct{}), prefix: "conf-" + rand.Text()[:8] + "-"}
	t.ctx, t.cancel = context.WithTimeout(context.Background(), limit)
	t.long = min(max(30*time.Second, 10*s.TTL), s.desc.MaxTTL)
	t.wide = min(max(3*time.Second, t.TTL), s.desc.MaxTTL)
	go t.watchStalls()
	return t
}

// watchStalls measures how long this machine stands still at a time, for the bounds that are about real time.
func (t *tester) watchStalls() {
	const tick = 2 * time.Millisecond
	for i := 0; t.ctx.Err() == nil; i++ {
		if i%25 == 0 {
			t.load.sample()
		}
		start := time.Now()
		time.Sleep(tick)
		if late := time.Since(start) - tick; int64(late) > t.stallMax.Load() {
			t.stallMax.Store(int64(late))
		}
	}
}

func (t *tester) stalled() time.Duration { return time.Duration(t.stallMax.Load()) }

// soon is what "soon" and "at once" may take on a busy machine with a busy store. What a fault would take is far longer: the
// core's request timeout is twice this, a poll in place of a wake-up takes seconds, and the rest does not end at all. How
// quick it is on a quiet machine is a matter of benchmarks.
const soon = 1500 * time.Millisecond

// excuse says why a failure may be the machine's, or "".
func (t *tester) excuse() string {
	switch stalled := t.stalled(); {
	case stalled >= t.TTL/10:
		return fmt.Sprintf("this machine stood still for %v", stalled)
	case t.load.high():
		return "this machine was overloaded"
	}
	return ""
}

// within fails the case if the time since start is over limit, not counting what the machine itself was late.
func (t *tester) within(start time.Time, limit time.Duration, format string, args ...any) {
	if took := time.Since(start); took > limit+2*t.stalled() {
		t.Errorf("%s took %v, allowed are %v", fmt.Sprintf(format, args...), took.Round(time.Millisecond), limit)
	}
}

// Errorf notes a failure. It may be called from any goroutine.
func (t *tester) Errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.failures) < 20 {
		t.failures = append(t.failures, where()+": "+fmt.Sprintf(format, args...))
	}
}

// Fatalf notes a failure and ends the goroutine that it is called from.
func (t *tester) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

// Logf notes something that is shown with -v or a failure.
func (t *tester) Logf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.logs = append(t.logs, fmt.Sprintf(format, args...))
}

// Skipf ends the case: there is nothing to check on this backend.
func (t *tester) Skipf(format string, args ...any) {
	t.mu.Lock()
	t.skipped = fmt.Sprintf(format, args...)
	t.mu.Unlock()
	runtime.Goexit()
}

// must fails the case at once if err is not nil.
func (t *tester) must(err error, what string) {
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// where is the line of the case that failed.
func where() string {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		if !strings.HasSuffix(f.File, "/t.go") {
			return fmt.Sprintf("%s:%d", f.File[strings.LastIndexByte(f.File, '/')+1:], f.Line)
		}
		if !more {
			return "?"
		}
	}
}

func (t *tester) failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.failures) > 0
}

func (t *tester) result() result {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := result{failures: slices.Clone(t.failures), logs: slices.Clone(t.logs), skipped: t.skipped}
	if s := t.log.String(); len(r.failures) > 0 && s != "" {
		r.logs = append(r.logs, "log of the lockers:\n"+s)
	}
	return r
}

func (t *tester) onEnd(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

func (t *tester) cleanup() {
	for {
		t.mu.Lock()
		n := len(t.cleanups)
		if n == 0 {
			t.mu.Unlock()
			t.cancel()
			return
		}
		f := t.cleanups[n-1]
		t.cleanups = t.cleanups[:n-1]
		t.mu.Unlock()
		func() {
			defer t.contain("clean-up")
			f()
		}()
	}
}

// name makes a lock's name that no other case uses.
func (t *tester) name(suffix string) string { return t.prefix + suffix }

// client opens a client, as another process would.
func (t *tester) client() Client {
	c, err := t.Open(t.ctx)
	t.must(err, "open a client")
	t.onEnd(func() { closeClient(c) })
	return c
}

// peer is a process of its own: a client with a Locker on it.
type peer struct {
	*anylock.Locker
	Client
	t *tester
}

// peer opens a client and a Locker on it, whose leases have the suite's TTL.
func (t *tester) peer(opts ...anylock.Option) *peer { return t.peerOn(t.client(), opts...) }

func (t *tester) peerOn(c Client, opts ...anylock.Option) *peer {
	all := append([]anylock.Option{
		anylock.WithTTL(t.TTL),
		anylock.WithLogger(slog.New(slog.NewTextHandler(&t.log, &slog.HandlerOptions{Level: slog.LevelDebug}))),
	}, opts...)
	l, err := anylock.New(c.Backend, all...)
	t.must(err, "New")
	p := &peer{Locker: l, Client: c, t: t}
	t.onEnd(func() {
		if c.Heal != nil {
			c.Heal()
		}
		ctx, cancel := background(10 * time.Second)
		defer cancel()
		_ = l.Close(ctx)
	})
	return p
}

// try takes a lock that must be free.
func (p *peer) try(name string, opts ...anylock.AcquireOption) *anylock.Lease {
	l, err := p.TryAcquire(p.t.ctx, name, opts...)
	p.t.must(err, "TryAcquire of a free lock")
	return l
}

// patient takes a lock that must be free, of a store that may need longer than a short request timeout at times.
func (p *peer) patient(name string, opts ...anylock.AcquireOption) (l *anylock.Lease) {
	p.t.eventually(10*time.Second, "a free lock cannot be had", func() (err error) {
		l, err = p.TryAcquire(p.t.ctx, name, opts...)
		return err
	})
	return l
}

// acquire waits for a lock.
func (p *peer) acquire(name string, opts ...anylock.AcquireOption) *anylock.Lease {
	l, err := p.Acquire(p.t.ctx, name, opts...)
	p.t.must(err, "Acquire")
	return l
}

// refused checks that somebody else has the lock, and that this is said as it should be.
func (p *peer) refused(name, when string) {
	l, err := p.TryAcquire(p.t.ctx, name)
	if err == nil {
		p.t.Fatalf("%s: TryAcquire got the lock (token %d), want ErrHeld", when, l.Token())
	}
	if !errors.Is(err, anylock.ErrHeld) {
		p.t.Fatalf("%s: TryAcquire: %v, want ErrHeld", when, err)
	}
	if l != nil {
		p.t.Errorf("%s: TryAcquire returned an error and a lease", when)
	}
}

// free checks that the lock can be had within limit, and frees it again.
func (p *peer) free(name string, limit time.Duration, when string) anylock.Token {
	end := time.Now().Add(limit)
	p.t.eventually(limit, when+": the lock is still held", func() error {
		l, err := p.TryAcquire(p.t.ctx, name)
		if err != nil {
			return err
		}
		return l.Release(p.t.ctx)
	})
	var l *anylock.Lease
	p.t.eventually(max(time.Until(end), 0), when+": the lock was free and is held again", func() (err error) {
		l, err = p.TryAcquire(p.t.ctx, name)
		return err
	})
	defer p.release(l)
	return l.Token()
}

func (p *peer) release(l *anylock.Lease) { p.t.must(l.Release(p.t.ctx), "Release") }

// eventually polls until check returns nil, for at most limit.
func (t *tester) eventually(limit time.Duration, what string, check func() error) {
	end := time.Now().Add(limit)
	pause := time.Millisecond
	for {
		err := check()
		if err == nil {
			return
		}
		if t.ctx.Err() != nil || time.Now().After(end.Add(2*t.stalled())) {
			t.Fatalf("%s after %v: %v", what, limit, err)
		}
		time.Sleep(pause)
		pause = min(2*pause, 50*time.Millisecond)
	}
}

// ends waits until the channel is closed or receives, for at most limit.
func (t *tester) ends(c <-chan struct{}, limit time.Duration, what string) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for start := time.Now(); ; {
		select {
		case <-c:
			return
		case <-timer.C:
			select {
			case <-c:
				return
			default:
			}
			if late := 2*t.stalled() - (time.Since(start) - limit); late > 0 {
				timer.Reset(late)
				continue
			}
			t.Fatalf("%s has not happened within %v", what, limit)
		}
	}
}

// wants checks an error's class.
func (t *tester) wants(err error, classes ...error) {
	for _, class := range classes {
		if !errors.Is(err, class) {
			t.Errorf("error %q does not match %q", fmt.Sprint(err), class)
		}
	}
}

// not checks that an error is of none of the classes.
func (t *tester) not(err error, classes ...error) {
	for _, class := range classes {
		if errors.Is(err, class) {
			t.Errorf("error %q matches %q and must not", fmt.Sprint(err), class)
		}
	}
}

// leftovers returns a check that the store holds nothing more than it does now. Without the hook it checks nothing.
func (t *tester) leftovers() func(limit time.Duration) {
	if t.Leftovers == nil {
		return func(time.Duration) {}
	}
	before, err := t.Leftovers(t.ctx)
	t.must(err, "Leftovers")
	return func(limit time.Duration) {
		t.eventually(limit, "the store is not clean", func() error {
			now, err := t.Leftovers(t.ctx)
			if err != nil {
				return err
			}
			now = slices.DeleteFunc(now, func(s string) bool { return slices.Contains(before, s) })
			if len(now) > 0 {
				return fmt.Errorf("%d left: %s", len(now), strings.Join(now, ", "))
			}
			return nil
		})
	}
}

// request is a request of a backend as the core makes it.
func (t *tester) request(name string, ttl time.Duration) anylock.Request {
	return anylock.Request{Name: name, ID: rand.Text(), TTL: ttl}
}

// bounded is a context as the core gives it to a backend's method.
func (t *tester) bounded() context.Context {
	ctx, cancel := context.WithTimeout(t.ctx, 10*time.Second)
	t.onEnd(cancel)
	return ctx
}

// grant takes a free lock without a Locker.
func (t *tester) grant(c Client, r anylock.Request) anylock.Grant {
	g, err := c.Backend.Acquire(t.bounded(), r)
	t.must(err, "Backend.Acquire of a free lock")
	if g.Name != r.Name || g.ID != r.ID {
		t.Fatalf("Backend.Acquire returned a grant of another name or ID")
	}
	return g
}

// heldByOther checks that a backend refuses a fresh request for the name.
func (t *tester) heldByOther(c Client, name, when string) {
	_, err := c.Backend.Acquire(t.bounded(), t.request(name, t.TTL))
	if _, held := errors.AsType[*anylock.HeldError](err); !held {
		t.Fatalf("%s: Backend.Acquire: %v, want a *HeldError", when, err)
	}
}

// freed checks that a backend grants the name within limit, and releases it.
func (t *tester) freed(c Client, name string, limit time.Duration, when string) {
	t.eventually(limit, when+": the lock is still held", func() error {
		g, err := c.Backend.Acquire(t.bounded(), t.request(name, t.TTL))
		if err != nil {
			return err
		}
		return t.end(c, g)
	})
}

// end releases one grant.
func (t *tester) end(c Client, g anylock.Grant) error {
	return c.Backend.Release(t.bounded(), []anylock.Grant{g})[0]
}

// renewal renews one grant.
func (t *tester) renewal(c Client, g anylock.Grant) anylock.Renewal {
	return c.Backend.Renew(t.bounded(), []anylock.Grant{g})[0]
}

// expire lets the store take back a grant of c that nobody renews, and returns when other has got it.
func (t *tester) expire(c, other Client, g anylock.Grant) anylock.Grant {
	if t.KeepsAlive {
		c.Cut()
		defer c.Heal()
	}
	var next anylock.Grant
	t.eventually(g.TTL+t.TTL+5*time.Second, "the grant has not expired", func() error {
		var err error
		next, err = other.Backend.Acquire(t.bounded(), t.request(g.Name, t.long))
		return err
	})
	return next
}

// parallel runs f n times at once and waits for all.
func (t *tester) parallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			defer t.contain("a goroutine of the case")
			f(i)
		})
	}
	wg.Wait()
}

type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
