package anylock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/backend/memory"
)

// A waiter's context may come from a lease, so asking it may end that lease, which changes the local queue.
func TestWaitInsideALeaseThatEnds(t *testing.T) {
	l := newLocker(t, memory.NewStore(anylock.WakeQueue).Client(), anylock.WithoutRenewal())
	held := acquire(t, l, "b")
	for range 50 { // in real time: virtual time would not let both end at once
		outer := acquire(t, l, "a", anylock.WithTTL(20*time.Millisecond), anylock.WithMargin(2*time.Millisecond))
		parent, cancel := context.WithDeadline(bg, outer.Deadline())
		inside, stop := outer.Context(parent)
		returned := make(chan error, 1)
		go func() {
			_, err := l.Acquire(inside, "b")
			returned <- err
		}()
		select {
		case err := <-returned:
			wantErr(t, err, anylock.ErrHeld)
		case <-time.After(10 * time.Second):
			t.Fatal("the waiter hangs, and with it the locker")
		}
		stop()
		cancel()
		_ = outer.Release(bg)
	}
	if err := held.Release(bg); err != nil {
		t.Error(err)
	}
}

func TestCloseAtAnyMoment(t *testing.T) {
	for _, deadlines := range []bool{true, false} {
		for ms := range 60 {
			virtual(t, func(t *testing.T, store *memory.Store, f *faulty) {
				f.deadlines = deadlines
				f.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
					time.Sleep(10 * time.Millisecond)
					g, err := f.Backend.Acquire(context.WithoutCancel(ctx), r)
					time.Sleep(10 * time.Millisecond)
					return g, err
				}
				f.release = func(ctx context.Context, g []anylock.Grant) []error {
					time.Sleep(10 * time.Millisecond)
					errs := f.Backend.Release(ctx, g)
					time.Sleep(10 * time.Millisecond)
					return errs
				}
				l, err := anylock.New(f, anylock.WithLogger(nil))
				if err != nil {
					t.Fatal(err)
				}
				var users sync.WaitGroup
				for i := range 3 {
					users.Go(func() {
						if lease, err := l.Acquire(bg, fmt.Sprint(i%2)); err == nil {
							time.Sleep(10 * time.Millisecond)
							_ = lease.Release(bg)
						}
					})
				}
				time.Sleep(time.Duration(ms)*2*time.Millisecond + time.Microsecond)
				if err := l.Close(bg); err != nil {
					t.Error(err)
				}
				users.Wait()
				if held := store.Held(); len(held) > 0 {
					t.Errorf("deadlines %v, closed after %d ms: %v is left", deadlines, 2*ms, held)
				}
			})
		}
	}
}

func TestWideMarginIsRenewedInTime(t *testing.T) {
	virtual(t, func(t *testing.T, _ *memory.Store, f *faulty) {
		l := newLocker(t, f, anylock.WithTTL(30*time.Second))
		for _, seconds := range []int{10, 20, 21, 25, 29} {
			lease := acquire(t, l, "x", anylock.WithMargin(time.Duration(seconds)*time.Second))
			time.Sleep(2 * time.Minute)
			if err := lease.Err(); err != nil {
				t.Errorf("margin %d s: %v", seconds, err)
			}
			_ = lease.Release(bg)
		}
	})
}

// Leases that expire soon share batches with those that do not, and must not take their time from them.
func TestShortLeasesDoNotHurryLongOnes(t *testing.T) {
	virtual(t, func(t *testing.T, _ *memory.Store, f *faulty) {
		f.renew = func(ctx context.Context, g []anylock.Grant) []anylock.Renewal {
			select {
			case <-time.After(50 * time.Millisecond): // a store far away, but well
				return f.Backend.Renew(ctx, g)
			case <-ctx.Done():
				renewals := make([]anylock.Renewal, len(g))
				for i := range renewals {
					renewals[i].Err = ctx.Err()
				}
				return renewals
			}
		}
		l := newLocker(t, f)
		long := acquire(t, l, "long")
		stop := make(chan struct{})
		var short sync.WaitGroup
		for i := range 40 {
			short.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					lease, err := l.Acquire(bg, fmt.Sprint("short", i), anylock.WithTTL(140*time.Millisecond))
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(70 * time.Millisecond)
					_ = lease.Release(bg)
				}
			})
		}
		time.Sleep(2 * time.Minute)
		if err := long.Err(); err != nil {
			t.Error(err)
		}
		close(stop)
		short.Wait()
	})
}

// All who wait while the store is down learn it when they have waited for long enough, not one after the other.
func TestOutageIsToldToAllWhoWait(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		virtual(t, func(t *testing.T, _ *memory.Store, f *faulty) {
			f.acquire = func(ctx context.Context, _ anylock.Request) (anylock.Grant, error) {
				if hangs {
					<-ctx.Done()
				}
				return anylock.Grant{}, errCut
			}
			l := newLocker(t, f)
			start := time.Now()
			var waiters sync.WaitGroup
			for range 50 {
				waiters.Go(func() {
					_, err := l.Acquire(bg, "x")
					if !errors.Is(err, anylock.ErrUnavailable) {
						t.Error(err)
					}
				})
			}
			synctest.Wait()
			_, err := l.TryAcquire(bg, "x")
			wantErr(t, err, anylock.ErrUnavailable)
			waiters.Wait()
			if took := time.Since(start); took > 7*time.Second {
				t.Errorf("hangs: %v; the last was told after %v", hangs, took)
			}
		})
	}
}

// One waiter's cancel is nothing to the others.
func TestOutageAndACancel(t *testing.T) {
	virtual(t, func(t *testing.T, _ *memory.Store, f *faulty) {
		f.acquire = func(context.Context, anylock.Request) (anylock.Grant, error) { return anylock.Grant{}, errCut }
		l := newLocker(t, f)
		ctx, cancel := context.WithTimeout(bg, 2900*time.Millisecond)
		defer cancel()
		front := make(chan error)
		go func() {
			_, err := l.Acquire(ctx, "x")
			front <- err
		}()
		synctest.Wait()
		other := make(chan error)
		go func() {
			_, err := l.Acquire(bg, "x")
			other <- err
		}()
		wantErr(t, <-front, context.DeadlineExceeded)
		err := <-other
		wantErr(t, err, anylock.ErrUnavailable)
		if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("told of somebody else's deadline: %v", err)
		}
	})
}

func TestOldNewsAboutTheHolder(t *testing.T) {
	virtual(t, func(t *testing.T, store *memory.Store, f *faulty) {
		acquire(t, newLocker(t, store.Client()), "x")
		var down atomic.Bool
		f.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
			if down.Load() {
				return anylock.Grant{}, errCut
			}
			return f.Backend.Acquire(ctx, r)
		}
		l := newLocker(t, f, anylock.WithRequestTimeout(time.Minute))
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		go func() { _, _ = l.Acquire(ctx, "x") }()
		time.Sleep(2 * time.Second)
		_, err := l.TryAcquire(bg, "x")
		held, ok := errors.AsType[*anylock.HeldError](err)
		if !ok || held.RetryAfter > 28*time.Second {
			t.Errorf("2 s after the answer: %v", err)
		}
		down.Store(true)
		time.Sleep(10 * time.Second)
		short, stop := context.WithTimeout(bg, time.Second)
		defer stop()
		_, err = l.TryAcquire(short, "x")
		if errors.Is(err, anylock.ErrHeld) {
			t.Errorf("the store does not answer, and yet: %v", err)
		}
	})
}

// What a careless backend does must end in an error, not in a panic or a wrong belief.
func TestCarelessBackends(t *testing.T) {
	const n = 5
	for _, deadlines := range []bool{true, false} {
		for count := range n {
			virtual(t, func(t *testing.T, _ *memory.Store, f *faulty) {
				f.deadlines = deadlines
				f.release = func(context.Context, []anylock.Grant) []error { return make([]error, count) }
				l, err := anylock.New(f, anylock.WithLogger(nil))
				if err != nil {
					t.Fatal(err)
				}
				lease := acquire(t, l, "x")
				for range 2 {
					if err := lease.Release(bg); count != 1 {
						wantErr(t, err, anylock.ErrUnavailable)
					}
				}
				acquire(t, l, "y")
				_ = l.Close(bg)
			})
		}
	}
	virtual(t, func(t *testing.T, _ *memory.Store, f *faulty) {
		f.renew = func(_ context.Context, g []anylock.Grant) []anylock.Renewal { return make([]anylock.Renewal, len(g)) }
		l := newLocker(t, f)
		lease := acquire(t, l, "x")
		if err := lease.Renew(bg); err == nil {
			t.Error("a renewal from no time was believed")
		}
		f.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
			g, err := f.Backend.Acquire(ctx, r)
			g.From = g.From.Add(time.Minute)
			return g, err
		}
		if left := time.Until(acquire(t, l, "y").Deadline()); left > 30*time.Second {
			t.Errorf("a grant from the future is trusted for %v", left)
		}
	})
	virtual(t, func(t *testing.T, store *memory.Store, f *faulty) {
		acquire(t, newLocker(t, store.Client()), "x")
		var asked atomic.Int32
		f.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
			asked.Add(1)
			return f.Backend.Acquire(ctx, r)
		}
		f.watch = func(context.Context, string) (<-chan struct{}, error) {
			closed := make(chan struct{})
			close(closed)
			return closed, nil
		}
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		_, err := newLocker(t, f).Acquire(ctx, "x")
		wantErr(t, err, context.DeadlineExceeded)
		if n := asked.Load(); n > 400 {
			t.Errorf("asked %d times in a minute", n)
		}
	})
	virtual(t, func(t *testing.T, _ *memory.Store, f *faulty) {
		f.acquire = func(context.Context, anylock.Request) (anylock.Grant, error) { panic("a bug") }
		f.deadlines = true
		l := newLocker(t, f)
		func() {
			defer func() { _ = recover() }()
			_, _ = l.TryAcquire(bg, "x")
		}()
		f.acquire = nil
		if _, err := l.TryAcquire(bg, "x"); err != nil {
			t.Errorf("after a panic in the backend: %v", err)
		}
	})
}

func TestHooksThatCloseOrBlockClose(t *testing.T) {
	virtual(t, func(t *testing.T, _ *memory.Store, f *faulty) {
		blocked := make(chan struct{})
		l, err := anylock.New(f, anylock.WithLogger(nil), anylock.WithHooks(anylock.Hooks{Released: func(anylock.Event) { <-blocked }}))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			acquire(t, l, fmt.Sprint(i))
		}
		start := time.Now()
		if err := l.Close(bg); err != nil || time.Since(start) > time.Second {
			t.Errorf("Close took %v: %v", time.Since(start), err)
		}
		close(blocked)
	})
}

func TestMaxHoldAfterFailedRenewals(t *testing.T) {
	virtual(t, func(t *testing.T, _ *memory.Store, f *faulty) {
		start := time.Now()
		f.renew = func(ctx context.Context, g []anylock.Grant) []anylock.Renewal {
			if time.Since(start) > 18*time.Second {
				return []anylock.Renewal{{Err: errCut}}
			}
			return f.Backend.Renew(ctx, g)
		}
		lease := acquire(t, newLocker(t, f), "x", anylock.WithMaxHold(20*time.Second))
		<-lease.Done()
		wantErr(t, lease.Err(), anylock.ErrMaxHold)
		wantErr(t, lease.Err(), anylock.ErrLost)
	})
}
