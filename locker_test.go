package anylock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/backend/memory"
)

var bg = context.Background()

// everyWake runs a test in virtual time on a memory store of each kind.
func everyWake(t *testing.T, test func(*testing.T, *memory.Store)) {
	for _, wake := range []anylock.Wake{anylock.WakeQueue, anylock.WakeNotify, anylock.WakePoll} {
		t.Run(wake.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, memory.NewStore(wake)) })
		})
	}
}

func newLocker(t *testing.T, b anylock.Backend, opts ...anylock.Option) *anylock.Locker {
	t.Helper()
	l, err := anylock.New(b, append([]anylock.Option{anylock.WithLogger(nil)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(bg); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return l
}

func acquire(t *testing.T, l *anylock.Locker, name string, opts ...anylock.AcquireOption) *anylock.Lease {
	t.Helper()
	lease, err := l.Acquire(bg, name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want one that matches %q", err, want)
	}
}

func TestExclusionAndHandOver(t *testing.T) {
	everyWake(t, func(t *testing.T, store *memory.Store) {
		a, b := newLocker(t, store.Client()), newLocker(t, store.Client())
		lease := acquire(t, a, "x")
		_, err := b.TryAcquire(bg, "x")
		wantErr(t, err, anylock.ErrHeld)
		_, err = a.TryAcquire(bg, "x")
		wantErr(t, err, anylock.ErrHeld)

		got := make(chan *anylock.Lease)
		go func() {
			next, err := b.Acquire(bg, "x")
			if err != nil {
				t.Error(err)
			}
			got <- next
		}()
		time.Sleep(time.Minute) // several renewals
		if err := lease.Err(); err != nil {
			t.Fatal(err)
		}
		released := time.Now()
		if err := lease.Release(bg); err != nil {
			t.Fatal(err)
		}
		next := <-got
		if waited := time.Since(released); waited > time.Second {
			t.Errorf("the hand-over took %v", waited)
		}
		if next.Token() <= lease.Token() {
			t.Errorf("token %d follows %d", next.Token(), lease.Token())
		}
		wantErr(t, lease.Err(), anylock.ErrReleased)
		if err := lease.Release(bg); err != nil {
			t.Errorf("second release: %v", err)
		}
		if err := next.Release(bg); err != nil {
			t.Error(err)
		}
		if held := store.Held(); len(held) > 0 {
			t.Errorf("left in the store: %v", held)
		}
	})
}

func TestManyWaitersOfManyClients(t *testing.T) {
	everyWake(t, func(t *testing.T, store *memory.Store) {
		var inside, count int
		var all sync.WaitGroup
		for range 4 {
			l := newLocker(t, store.Client())
			for range 16 {
				all.Go(func() {
					for range 5 {
						err := l.Do(bg, "x", func(context.Context, *anylock.Lease) error {
							inside++
							if inside != 1 {
								t.Error("two holders")
							}
							time.Sleep(time.Millisecond)
							inside--
							count++
							return nil
						})
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		all.Wait()
		if count != 4*16*5 {
			t.Errorf("%d of %d", count, 4*16*5)
		}
	})
}

func TestLostWhenNotRenewed(t *testing.T) {
	everyWake(t, func(t *testing.T, store *memory.Store) {
		l := newLocker(t, store.Client(), anylock.WithTTL(10*time.Second), anylock.WithoutRenewal())
		lease := acquire(t, l, "x")
		if left := time.Until(lease.Deadline()); left != 9*time.Second {
			t.Errorf("the window is %v", left)
		}
		ctx, cancel := lease.Context(bg)
		defer cancel()
		time.Sleep(5 * time.Second)
		if err := lease.Renew(bg); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		<-lease.Done()
		if lasted := time.Since(start); lasted != 9*time.Second {
			t.Errorf("lost after %v", lasted)
		}
		wantErr(t, lease.Err(), anylock.ErrLost)
		<-ctx.Done()
		wantErr(t, context.Cause(ctx), anylock.ErrLost)
		wantErr(t, lease.Release(bg), anylock.ErrLost)
	})
}

func TestStolenLockIsLost(t *testing.T) {
	everyWake(t, func(t *testing.T, store *memory.Store) {
		l := newLocker(t, store.Client(), anylock.WithTTL(30*time.Second))
		lease := acquire(t, l, "x")
		store.Steal("x")
		start := time.Now()
		<-lease.Done()
		if d := time.Since(start); d > 11*time.Second {
			t.Errorf("noticed after %v", d)
		}
		wantErr(t, lease.Err(), anylock.ErrLost)
	})
}

func TestCancelledWait(t *testing.T) {
	everyWake(t, func(t *testing.T, store *memory.Store) {
		a, b := newLocker(t, store.Client(), anylock.WithHolder("a")), newLocker(t, store.Client())
		lease := acquire(t, a, "x")
		for _, l := range []*anylock.Locker{a, b} {
			ctx, cancel := context.WithTimeout(bg, time.Second)
			start := time.Now()
			_, err := l.Acquire(ctx, "x")
			cancel()
			wantErr(t, err, context.DeadlineExceeded)
			wantErr(t, err, anylock.ErrHeld)
			var held *anylock.HeldError
			if !errors.As(err, &held) || held.Holder != "a" {
				t.Errorf("%v does not say that a holds it", err)
			}
			if d := time.Since(start); d != time.Second {
				t.Errorf("took %v", d)
			}
		}
		ctx, cancel := context.WithCancel(bg)
		cancel()
		_, err := b.Acquire(ctx, "free")
		wantErr(t, err, context.Canceled)
		if err := lease.Release(ctx); !errors.Is(err, context.Canceled) && err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if held := store.Held(); len(held) > 0 {
			t.Errorf("left in the store: %v", held)
		}
	})
}

func TestClose(t *testing.T) {
	everyWake(t, func(t *testing.T, store *memory.Store) {
		l, err := anylock.New(store.Client())
		if err != nil {
			t.Fatal(err)
		}
		var leases []*anylock.Lease
		for _, name := range []string{"a", "b", "c"} {
			leases = append(leases, acquire(t, l, name))
		}
		waiting := make(chan error)
		for range 2 {
			go func() {
				_, err := l.Acquire(bg, "a")
				waiting <- err
			}()
		}
		other := newLocker(t, store.Client())
		held := acquire(t, other, "d")
		go func() {
			_, err := l.Acquire(bg, "d")
			waiting <- err
		}()
		synctest.Wait()
		if err := l.Close(bg); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			wantErr(t, <-waiting, anylock.ErrClosed)
		}
		for _, lease := range leases {
			<-lease.Done()
			wantErr(t, lease.Err(), anylock.ErrClosed)
			wantErr(t, lease.Release(bg), anylock.ErrClosed)
		}
		if err := held.Release(bg); err != nil {
			t.Error(err)
		}
		if held := store.Held(); len(held) > 0 {
			t.Errorf("left in the store: %v", held)
		}
		_, err = l.Acquire(bg, "a")
		wantErr(t, err, anylock.ErrClosed)
		wantErr(t, err, anylock.ErrInvalid)
	})
}

func TestMaxHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLocker(t, memory.NewStore(anylock.WakeQueue).Client(), anylock.WithTTL(3*time.Second))
		start := time.Now()
		lease := acquire(t, l, "x", anylock.WithMaxHold(time.Minute))
		<-lease.Done()
		wantErr(t, lease.Err(), anylock.ErrLost)
		wantErr(t, lease.Err(), anylock.ErrMaxHold)
		if held := time.Since(start); held < time.Minute || held > time.Minute+3*time.Second {
			t.Errorf("held for %v", held)
		}
	})
}

func TestWaitersWithoutRivalsAreNotSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore(anylock.WakeNotify)
		clients := [3]*anylock.Locker{}
		for i := range clients {
			clients[i] = newLocker(t, store.Client())
		}
		// handOver returns how long the given waiters had to wait from a release to the next grant.
		handOver := func(waiters ...*anylock.Locker) time.Duration {
			lease := acquire(t, clients[0], "x")
			got := make(chan time.Time, len(waiters))
			for _, l := range waiters {
				go func() {
					lease := acquire(t, l, "x")
					got <- time.Now()
					time.Sleep(5 * time.Millisecond)
					_ = lease.Release(bg)
				}()
			}
			synctest.Wait()
			start := time.Now()
			_ = lease.Release(bg)
			took := (<-got).Sub(start)
			for range len(waiters) - 1 {
				<-got
			}
			time.Sleep(10 * time.Millisecond) // the releases
			return took
		}
		atOnce := func(rounds int, waiters ...*anylock.Locker) (n int) {
			for range rounds {
				if handOver(waiters...) == 0 {
					n++
				}
			}
			return n
		}
		if n := atOnce(8, clients[1]); n > 0 {
			t.Errorf("%d of the first 8 hand-overs came at once: nothing was known of rivals yet", n)
		}
		if n := atOnce(100, clients[1]); n < 50 || n == 100 {
			t.Errorf("%d of 100 hand-overs without a rival came at once, want most but not all", n)
		}
		atOnce(20, clients[1], clients[2])
		if n := atOnce(1000, clients[1], clients[2]); n > 450 { // some 90, but now and then one wins for long
			t.Errorf("%d of 1000 hand-overs with rivals came at once", n)
		}
	})
}
