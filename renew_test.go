package anylock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/backend/memory"
)

// The window of a renewal counts from when it was sent, as that of a grant does: the store's TTL began soon after that, and
// not when its answer came.
func TestRenewedWindowCountsFromItsSending(t *testing.T) {
	virtual(t, func(t *testing.T, _ *memory.Store, f *faulty) {
		f.renew = func(ctx context.Context, g []anylock.Grant) []anylock.Renewal {
			r := f.Backend.Renew(ctx, g)
			time.Sleep(2 * time.Second) // the answer's way
			return r
		}
		l := newLocker(t, f)
		lease := acquire(t, l, "x")
		sent := time.Now()
		if err := lease.Renew(bg); err != nil {
			t.Fatal(err)
		}
		if window := lease.Deadline().Sub(sent); window != 27*time.Second { // the TTL of 30 s less a tenth
			t.Errorf("trusted for %v from the sending of the renewal", window)
		}
	})
}

// A release waits for a renewal under way: one that arrived after it would find nothing, or worse.
func TestReleaseWaitsForTheRenewalUnderWay(t *testing.T) {
	virtual(t, func(t *testing.T, _ *memory.Store, f *faulty) {
		answer := make(chan struct{})
		renewing, released := false, false
		f.renew = func(ctx context.Context, g []anylock.Grant) []anylock.Renewal {
			renewing = true
			<-answer
			renewing = false
			return f.Backend.Renew(context.WithoutCancel(ctx), g)
		}
		f.release = func(ctx context.Context, g []anylock.Grant) []error {
			if released = true; renewing {
				t.Error("released while a renewal is under way")
			}
			return f.Backend.Release(ctx, g)
		}
		l := newLocker(t, f)
		lease := acquire(t, l, "x")
		go func() { _ = lease.Renew(bg) }()
		synctest.Wait()
		done := make(chan error)
		go func() { done <- lease.Release(bg) }()
		synctest.Wait()
		if released || !renewing {
			t.Errorf("renewing %v, released %v", renewing, released)
		}
		close(answer)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Answers of renewals can come in another order than they were asked for: an old one moves no window back.
func TestRenewalsAnsweredInAnotherOrder(t *testing.T) {
	virtual(t, func(t *testing.T, _ *memory.Store, f *faulty) {
		slow := make(chan struct{})
		first := true
		f.renew = func(ctx context.Context, g []anylock.Grant) []anylock.Renewal {
			wait := first
			first = false
			r := f.Backend.Renew(ctx, g)
			if wait {
				<-slow
			}
			return r
		}
		l := newLocker(t, f, anylock.WithoutRenewal())
		lease := acquire(t, l, "x")
		done := make(chan error)
		go func() { done <- lease.Renew(bg) }()
		synctest.Wait()
		time.Sleep(time.Second)
		if err := lease.Renew(bg); err != nil {
			t.Fatal(err)
		}
		later := lease.Deadline()
		close(slow)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if d := lease.Deadline(); !d.Equal(later) {
			t.Errorf("the window moved by %v with an old answer", d.Sub(later))
		}
	})
}
