package anylock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/backend/memory"
)

func TestDrainLetsHoldersFinish(t *testing.T) {
	everyWake(t, func(t *testing.T, store *memory.Store) {
		l := newLocker(t, store.Client())
		lease := acquire(t, l, "x", anylock.WithTTL(3*time.Second))
		other := newLocker(t, store.Client())
		waiting := make(chan error)
		go func() {
			_, err := l.Acquire(bg, "x")
			waiting <- err
		}()
		synctest.Wait()

		drained := make(chan error)
		go func() { drained <- l.Drain(bg) }()
		wantErr(t, <-waiting, anylock.ErrClosed)
		_, err := l.Acquire(bg, "y")
		wantErr(t, err, anylock.ErrClosed)

		time.Sleep(time.Minute) // many TTLs: it is renewed all the while
		if err := lease.Err(); err != nil {
			t.Fatalf("the lease of one who has not finished: %v", err)
		}
		_, err = other.TryAcquire(bg, "x")
		wantErr(t, err, anylock.ErrHeld)
		select {
		case err := <-drained:
			t.Fatalf("drained while a lock is held: %v", err)
		default:
		}
		if err := lease.Release(bg); err != nil {
			t.Error(err)
		}
		if err := <-drained; err != nil {
			t.Error(err)
		}
	})
}

func TestDrainEndsWithItsContext(t *testing.T) {
	virtual(t, func(t *testing.T, store *memory.Store, f *faulty) {
		l := newLocker(t, f)
		lease := acquire(t, l, "slow")
		ctx, cancel := context.WithTimeout(bg, 20*time.Second)
		defer cancel()
		start := time.Now()
		err := l.Drain(ctx)
		wantErr(t, err, context.DeadlineExceeded)
		if !strings.Contains(err.Error(), `1 holders had not finished: "slow"`) {
			t.Errorf("who has not finished is not said: %v", err)
		}
		if d := time.Since(start); d != 20*time.Second {
			t.Errorf("took %v", d)
		}
		wantErr(t, lease.Err(), anylock.ErrClosed)
		if held := store.Held(); len(held) > 0 {
			t.Errorf("left in the store: %v", held)
		}
	})
}

func TestDrainWithoutHolders(t *testing.T) {
	virtual(t, func(t *testing.T, _ *memory.Store, f *faulty) {
		l := newLocker(t, f)
		_ = acquire(t, l, "x").Release(bg)
		for range 2 {
			if err := l.Drain(bg); err != nil {
				t.Error(err)
			}
		}
	})
}

// Close says which locks it leaves, be it by a release or by an attempt that had no answer.
func TestCloseNamesWhatItLeaves(t *testing.T) {
	for _, how := range []string{"release", "acquire", "close"} {
		t.Run(how, func(t *testing.T) {
			virtual(t, func(t *testing.T, _ *memory.Store, f *faulty) {
				var down atomic.Bool
				f.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
					g, err := f.Backend.Acquire(ctx, r)
					if down.Load() {
						return anylock.Grant{}, errCut
					}
					return g, err
				}
				f.release = func(ctx context.Context, g []anylock.Grant) []error {
					if down.Load() {
						return make([]error, 0)
					}
					return f.Backend.Release(ctx, g)
				}
				l, err := anylock.New(f, anylock.WithLogger(nil))
				if err != nil {
					t.Fatal(err)
				}
				switch how {
				case "release":
					lease := acquire(t, l, "left")
					down.Store(true)
					wantErr(t, lease.Release(bg), anylock.ErrUnavailable)
				case "acquire":
					down.Store(true)
					_, err := l.TryAcquire(bg, "left")
					wantErr(t, err, anylock.ErrUnavailable)
				case "close":
					acquire(t, l, "left")
					down.Store(true)
				}
				err = l.Close(bg)
				wantErr(t, err, anylock.ErrUnavailable)
				if !strings.Contains(err.Error(), `1 locks could not be released and may stay until they expire: "left"`) {
					t.Errorf("what is left is not named: %v", err)
				}
			})
		})
	}
}

// However many locks Close leaves, its error is short and it does not take longer.
func TestCloseOfManyInAnOutage(t *testing.T) {
	const leases = 20000
	virtual(t, func(t *testing.T, _ *memory.Store, f *faulty) {
		var down atomic.Bool
		f.release = func(ctx context.Context, g []anylock.Grant) []error {
			if down.Load() {
				<-ctx.Done()
				return make([]error, 0)
			}
			return f.Backend.Release(ctx, g)
		}
		l, err := anylock.New(f, anylock.WithLogger(nil), anylock.WithoutRenewal())
		if err != nil {
			t.Fatal(err)
		}
		for i := range leases {
			acquire(t, l, fmt.Sprint(i))
		}
		down.Store(true)
		start := time.Now()
		err = l.Close(bg)
		if d := time.Since(start); d > 2*anylock.DefaultRequestTimeout {
			t.Errorf("took %v", d)
		}
		wantErr(t, err, anylock.ErrUnavailable)
		if text := err.Error(); len(text) > 500 || !strings.Contains(text, "20000 locks") || !strings.Contains(text, "and 19995 more") {
			t.Errorf("%d bytes: %.600s", len(text), text)
		}
	})
}

// A batch that hangs holds up no other one.
func TestCloseReleasesWhatAnswers(t *testing.T) {
	virtual(t, func(t *testing.T, store *memory.Store, f *faulty) {
		const leases = 20000
		var releases atomic.Int32
		f.release = func(ctx context.Context, g []anylock.Grant) []error {
			if releases.Add(1) == 1 {
				<-ctx.Done()
				return make([]error, 0)
			}
			return f.Backend.Release(ctx, g)
		}
		l, err := anylock.New(f, anylock.WithLogger(nil), anylock.WithoutRenewal())
		if err != nil {
			t.Fatal(err)
		}
		for i := range leases {
			acquire(t, l, fmt.Sprint(i))
		}
		closed := make(chan error)
		go func() { closed <- l.Close(bg) }()
		synctest.Wait()
		if held := len(store.Held()); held != f.Describe().MaxBatch {
			t.Errorf("%d of %d are still held while the first batch hangs", held, leases)
		}
		wantErr(t, <-closed, anylock.ErrUnavailable)
	})
}

func TestReleaseIsTriedAgainAfterAnyError(t *testing.T) {
	virtual(t, func(t *testing.T, store *memory.Store, f *faulty) {
		var refusals atomic.Int32
		f.release = func(ctx context.Context, g []anylock.Grant) []error {
			if refusals.Add(1) <= 2 {
				return []error{anylock.Invalid(errCut, "the right to release is missing")}
			}
			return f.Backend.Release(ctx, g)
		}
		l := newLocker(t, f)
		err := acquire(t, l, "x").Release(bg)
		wantErr(t, err, anylock.ErrInvalid)
		if errors.Is(err, anylock.ErrUnavailable) {
			t.Errorf("%v has two classes", err)
		}
		time.Sleep(5 * time.Second)
		if held := store.Held(); len(held) > 0 {
			t.Errorf("left in the store: %v", held)
		}
	})
}

// In an outage only the caller's own context counts as the caller's.
func TestDoInAnOutage(t *testing.T) {
	virtual(t, func(t *testing.T, _ *memory.Store, f *faulty) {
		heal := f.swallowReleases()
		l := newLocker(t, f)
		err := l.Do(bg, "x", func(context.Context, *anylock.Lease) error { return nil })
		wantErr(t, err, anylock.ErrUnavailable)
		if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v looks as if the caller's context had ended", err)
		}
		heal()
	})
}

func TestDriversDeadlineIsNotTheCallers(t *testing.T) {
	virtual(t, func(t *testing.T, _ *memory.Store, f *faulty) {
		f.acquire = func(context.Context, anylock.Request) (anylock.Grant, error) {
			return anylock.Grant{}, fmt.Errorf("read tcp: %w", context.DeadlineExceeded)
		}
		l := newLocker(t, f)
		_, err := l.TryAcquire(bg, "x")
		wantErr(t, err, anylock.ErrUnavailable)
		if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v looks as if the caller's context had ended", err)
		}
	})
}

// Release is told what the store says even by a context that has ended: the lease's own, another lease's, a request's.
func TestReleaseWithContextsThatHaveEnded(t *testing.T) {
	for _, deadlines := range []bool{true, false} {
		virtual(t, func(t *testing.T, store *memory.Store, f *faulty) {
			f.deadlines = deadlines
			l := newLocker(t, f)
			request, cancel := context.WithCancel(bg)
			outer := acquire(t, l, "outer")
			outside, stop := outer.Context(request)
			defer stop()
			inner, gone := acquire(t, l, "inner"), acquire(t, l, "gone")
			third := acquire(t, l, "third")
			if err := outer.Release(bg); err != nil {
				t.Error(err)
			}
			if err := inner.Release(outside); err != nil {
				t.Errorf("with the context of another lease: %v", err)
			}
			cancel()
			if err := third.Release(request); err != nil {
				t.Errorf("with a cancelled context: %v", err)
			}
			store.Steal("gone")
			wantErr(t, gone.Release(request), anylock.ErrLost)
			if held := store.Held(); len(held) > 0 {
				t.Errorf("left in the store: %v", held)
			}
		})
	}
}

func TestReleaseWithAnEndedContextInABlackHole(t *testing.T) {
	virtual(t, func(t *testing.T, store *memory.Store, f *faulty) {
		heal := f.swallowReleases()
		l := newLocker(t, f)
		lease := acquire(t, l, "x")
		ctx, cancel := context.WithCancel(bg)
		cancel()
		start := time.Now()
		wantErr(t, lease.Release(ctx), context.Canceled)
		if d := time.Since(start); d > 100*time.Millisecond {
			t.Errorf("returned after %v", d)
		}
		heal()
		time.Sleep(time.Second)
		if held := store.Held(); len(held) > 0 {
			t.Errorf("left in the store: %v", held)
		}
	})
}

func TestNilPointerAsBackend(t *testing.T) {
	var b *memory.Backend
	_, err := anylock.New(b)
	wantErr(t, err, anylock.ErrInvalid)
}

// A lease that is lost and released in the same moment is told to one hook, and to the right one.
func TestLossAndReleaseAtOnce(t *testing.T) {
	slow := slog.New(slowHandler{slog.DiscardHandler})
	virtual(t, func(t *testing.T, _ *memory.Store, f *faulty) {
		var lost, released atomic.Int32
		l := newLocker(t, f, anylock.WithTTL(time.Second), anylock.WithoutRenewal(), anylock.WithLogger(slow), anylock.WithHooks(anylock.Hooks{
			Lost:     func(anylock.Event) { lost.Add(1) },
			Released: func(anylock.Event) { released.Add(1) },
		}))
		const rounds = 50
		for range rounds {
			lease := acquire(t, l, "x")
			time.Sleep(900 * time.Millisecond) // the window ends now
			if err := lease.Release(bg); !errors.Is(err, anylock.ErrLost) {
				t.Fatalf("released after its window: %v", err)
			}
		}
		synctest.Wait()
		if lost.Load() != rounds || released.Load() != 0 {
			t.Errorf("%d were told as lost and %d as released, of %d that were lost", lost.Load(), released.Load(), rounds)
		}
	})
}

type slowHandler struct{ slog.Handler }

func (slowHandler) Enabled(context.Context, slog.Level) bool { return true }

func (slowHandler) Handle(context.Context, slog.Record) error {
	time.Sleep(time.Minute)
	return nil
}

// What a hook does, Close among it, holds up nobody and leaves nothing.
func TestWhatHooksMayDo(t *testing.T) {
	do := map[string]func(*anylock.Locker, string){
		"close": func(l *anylock.Locker, _ string) { _ = l.Close(bg) },
		"drain": func(l *anylock.Locker, _ string) {
			ctx, cancel := context.WithTimeout(bg, time.Second)
			defer cancel()
			_ = l.Drain(ctx)
		},
		"panic":  func(*anylock.Locker, string) { panic("hook") },
		"goexit": func(*anylock.Locker, string) { runtime.Goexit() },
		"calls": func(l *anylock.Locker, name string) {
			_, _ = l.TryAcquire(bg, name)
			_ = l.Do(bg, "hook", func(context.Context, *anylock.Lease) error { return nil })
			_, _ = l.Description(), l.Guarantees()
		},
	}
	for what, do := range do {
		for _, when := range []string{"waiting", "acquired", "renew-failed", "lost", "released"} {
			t.Run(what+" in "+when, func(t *testing.T) {
				virtual(t, func(t *testing.T, store *memory.Store, f *faulty) {
					other := newLocker(t, store.Client())
					var failing atomic.Bool
					f.renew = func(ctx context.Context, g []anylock.Grant) []anylock.Renewal {
						if failing.Load() {
							return []anylock.Renewal{{Err: errCut}}
						}
						return f.Backend.Renew(ctx, g)
					}
					var l *anylock.Locker
					var took atomic.Int64
					called := make(chan struct{}, 100)
					hook := func(e anylock.Event) {
						start := time.Now()
						defer func() {
							for d := int64(time.Since(start)); ; {
								if longest := took.Load(); d <= longest || took.CompareAndSwap(longest, d) {
									break
								}
							}
							called <- struct{}{}
						}()
						if e.Name == "x" {
							do(l, e.Name)
						}
					}
					hooks := map[string]anylock.Hooks{
						"waiting": {Waiting: hook}, "acquired": {Acquired: hook}, "renew-failed": {RenewFailed: hook}, "lost": {Lost: hook}, "released": {Released: hook},
					}
					var err error
					if l, err = anylock.New(f, anylock.WithLogger(nil), anylock.WithHooks(hooks[when])); err != nil {
						t.Fatal(err)
					}
					var blocker *anylock.Lease
					if when == "waiting" {
						blocker = acquire(t, other, "x")
					}
					got := make(chan struct{})
					go func() {
						defer close(got)
						ctx, cancel := context.WithTimeout(bg, 10*time.Second)
						defer cancel()
						lease, err := l.Acquire(ctx, "x")
						if err != nil {
							return
						}
						switch when {
						case "renew-failed":
							failing.Store(true)
							time.Sleep(12 * time.Second)
							failing.Store(false)
						case "lost":
							store.Steal("x")
							<-lease.Done()
						}
						_ = lease.Release(bg)
					}()
					<-called
					if blocker != nil {
						_ = blocker.Release(bg)
					}
					<-got
					if err := l.Close(bg); err != nil {
						t.Errorf("Close: %v", err)
					}
					synctest.Wait()
					if longest := time.Duration(took.Load()); longest > 2*time.Second {
						t.Errorf("the hook took %v", longest)
					}
					if held := store.Held(); len(held) > 0 {
						t.Errorf("left in the store: %v", held)
					}
				})
			})
		}
	}
}

// An outage in which many attempts fail is not remembered one by one, and what is remembered is undone.
func TestManyAttemptsInAnOutage(t *testing.T) {
	virtual(t, func(t *testing.T, store *memory.Store, f *faulty) {
		var down atomic.Bool
		f.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
			if down.Load() {
				return anylock.Grant{}, errCut
			}
			return f.Backend.Acquire(ctx, r)
		}
		var asked atomic.Int64
		f.release = func(ctx context.Context, g []anylock.Grant) []error {
			if down.Load() {
				asked.Add(int64(len(g)))
				return make([]error, 0)
			}
			return f.Backend.Release(ctx, g)
		}
		l := newLocker(t, f, anylock.WithTTL(time.Hour))
		down.Store(true)
		for range 20000 {
			_, err := l.TryAcquire(bg, "x")
			wantErr(t, err, anylock.ErrUnavailable)
		}
		time.Sleep(10 * time.Second)
		asked.Store(0)
		time.Sleep(10 * time.Second)
		if n := asked.Load(); n > 10*5000 {
			t.Errorf("%d undoings were tried in 10 s", n)
		}
		down.Store(false)
		time.Sleep(5 * time.Second)
		if held := store.Held(); len(held) > 0 {
			t.Errorf("left in the store: %v", held)
		}
	})
}

// A backend whose own client was closed says so at once, in acquires and in Close.
func TestBackendThatWasClosed(t *testing.T) {
	virtual(t, func(t *testing.T, _ *memory.Store, f *faulty) {
		var closed atomic.Bool
		f.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
			if closed.Load() {
				return anylock.Grant{}, anylock.ErrClosed
			}
			return f.Backend.Acquire(ctx, r)
		}
		f.release = func(ctx context.Context, g []anylock.Grant) []error {
			if closed.Load() {
				return repeat[error](anylock.ErrClosed, len(g))
			}
			return f.Backend.Release(ctx, g)
		}
		f.renew = func(ctx context.Context, g []anylock.Grant) []anylock.Renewal {
			if closed.Load() {
				return repeat(anylock.Renewal{Err: anylock.ErrClosed}, len(g))
			}
			return f.Backend.Renew(ctx, g)
		}
		l, err := anylock.New(f, anylock.WithLogger(nil))
		if err != nil {
			t.Fatal(err)
		}
		acquire(t, l, "held")
		released := acquire(t, l, "released")
		closed.Store(true)
		start := time.Now()
		_, err = l.Acquire(bg, "x")
		wantErr(t, err, anylock.ErrClosed)
		wantErr(t, released.Release(bg), anylock.ErrClosed)
		err = l.Close(bg)
		if err == nil || !strings.Contains(err.Error(), `"held"`) || !strings.Contains(err.Error(), `"released"`) {
			t.Errorf("Close: %v", err)
		}
		if d := time.Since(start); d > 0 {
			t.Errorf("took %v", d)
		}
	})
}
