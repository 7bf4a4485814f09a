package anylock_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/backend/memory"
)

// faulty is a backend with some methods replaced.
type faulty struct {
	anylock.Backend
	deadlines bool

	acquire func(context.Context, anylock.Request) (anylock.Grant, error)
	renew   func(context.Context, []anylock.Grant) []anylock.Renewal
	release func(context.Context, []anylock.Grant) []error
	watch   func(context.Context, string) (<-chan struct{}, error)
}

func (f *faulty) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	if f.watch != nil {
		return f.watch(ctx, name)
	}
	return f.Backend.Watch(ctx, name)
}

// Describe does not promise to keep deadlines, and those replaced do not.
func (f *faulty) Describe() anylock.Description {
	d := f.Backend.Describe()
	d.Deadlines = f.deadlines
	return d
}

func (f *faulty) Acquire(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
	if f.acquire != nil {
		return f.acquire(ctx, r)
	}
	return f.Backend.Acquire(ctx, r)
}

func (f *faulty) Renew(ctx context.Context, g []anylock.Grant) []anylock.Renewal {
	if f.renew != nil {
		return f.renew(ctx, g)
	}
	return f.Backend.Renew(ctx, g)
}

func (f *faulty) Release(ctx context.Context, g []anylock.Grant) []error {
	if f.release != nil {
		return f.release(ctx, g)
	}
	return f.Backend.Release(ctx, g)
}

// swallowReleases lets releases wait until heal is called, whatever becomes of their context.
func (f *faulty) swallowReleases() (heal func()) {
	healed := make(chan struct{})
	f.release = func(ctx context.Context, g []anylock.Grant) []error {
		<-healed
		return f.Backend.Release(context.WithoutCancel(ctx), g)
	}
	return func() { close(healed) }
}

var errCut = errors.New("connection reset by peer")

func virtual(t *testing.T, test func(*testing.T, *memory.Store, *faulty)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore(anylock.WakeNotify)
		test(t, store, &faulty{Backend: store.Client()})
	})
}

func TestLostReplyOfTryIsUndone(t *testing.T) {
	virtual(t, func(t *testing.T, store *memory.Store, f *faulty) {
		f.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
			_, _ = f.Backend.Acquire(ctx, r)
			return anylock.Grant{}, errCut
		}
		l := newLocker(t, f)
		_, err := l.TryAcquire(bg, "x")
		wantErr(t, err, anylock.ErrUnavailable)
		wantErr(t, err, errCut)
		time.Sleep(time.Second)
		if held := store.Held(); len(held) > 0 {
			t.Errorf("left in the store: %v", held)
		}
	})
}

func TestLostReplyOfAcquireIsAdopted(t *testing.T) {
	virtual(t, func(t *testing.T, store *memory.Store, f *faulty) {
		var calls atomic.Int32
		f.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
			g, err := f.Backend.Acquire(ctx, r)
			if calls.Add(1) == 1 {
				return anylock.Grant{}, errCut
			}
			return g, err
		}
		l := newLocker(t, f)
		start := time.Now()
		lease := acquire(t, l, "x")
		if d := time.Since(start); d > time.Second {
			t.Errorf("took %v", d)
		}
		time.Sleep(time.Minute)
		if err := lease.Err(); err != nil {
			t.Errorf("the adopted lease was undone: %v", err)
		}
	})
}

func TestAcquireGivesUpOnADeadStore(t *testing.T) {
	virtual(t, func(t *testing.T, _ *memory.Store, f *faulty) {
		f.acquire = func(context.Context, anylock.Request) (anylock.Grant, error) { return anylock.Grant{}, errCut }
		l := newLocker(t, f, anylock.WithRequestTimeout(2*time.Second))
		start := time.Now()
		_, err := l.Acquire(bg, "x")
		wantErr(t, err, anylock.ErrUnavailable)
		if errors.Is(err, anylock.ErrHeld) {
			t.Errorf("%v says that it is held", err)
		}
		if d := time.Since(start); d < 2*time.Second || d > 3*time.Second {
			t.Errorf("gave up after %v", d)
		}
	})
}

func TestBlackHole(t *testing.T) {
	virtual(t, func(t *testing.T, store *memory.Store, f *faulty) {
		healed := make(chan struct{})
		var sent atomic.Int32
		f.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
			sent.Add(1)
			<-healed // whatever becomes of ctx
			return f.Backend.Acquire(context.WithoutCancel(ctx), r)
		}
		l := newLocker(t, f)
		ctx, cancel := context.WithCancel(bg)
		time.AfterFunc(500*time.Millisecond, cancel)
		start := time.Now()
		_, err := l.Acquire(ctx, "x")
		wantErr(t, err, context.Canceled)
		if d := time.Since(start); d != 500*time.Millisecond {
			t.Errorf("returned after %v", d)
		}
		_, err = l.TryAcquire(bg, "x")
		wantErr(t, err, anylock.ErrUnavailable)
		if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v matches the error of a context that the caller did not pass", err)
		}
		time.Sleep(10 * time.Second)
		close(healed) // now both requests arrive
		time.Sleep(2 * time.Second)
		if held := store.Held(); sent.Load() != 2 || len(held) > 0 {
			t.Errorf("%d requests left %v in the store", sent.Load(), held)
		}
	})
}

// A store that answers slowly, through a driver that keeps deadlines: the quick way fails once, and then all is as ever.
func TestSlowStore(t *testing.T) {
	virtual(t, func(t *testing.T, store *memory.Store, f *faulty) {
		f.deadlines = true
		var calls atomic.Int32
		slowly := func(ctx context.Context) error {
			calls.Add(1)
			select {
			case <-time.After(200 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		f.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
			g, err := f.Backend.Acquire(ctx, r)
			if slow := slowly(ctx); slow != nil {
				return anylock.Grant{}, slow
			}
			return g, err
		}
		f.release = func(ctx context.Context, g []anylock.Grant) []error {
			errs := f.Backend.Release(ctx, g)
			if slow := slowly(ctx); slow != nil {
				return []error{slow}
			}
			return errs
		}
		l := newLocker(t, f)
		for range 5 {
			if err := acquire(t, l, "x").Release(bg); err != nil {
				t.Fatal(err)
			}
		}
		if n := calls.Load(); n != 11 {
			t.Errorf("%d calls for 5 acquires and 5 releases", n)
		}
		time.Sleep(time.Minute)
		ctx, cancel := context.WithCancel(bg)
		cancelAt := time.Now().Add(10 * time.Millisecond)
		time.AfterFunc(10*time.Millisecond, cancel)
		_, err := l.Acquire(ctx, "x")
		wantErr(t, err, context.Canceled)
		if late := time.Since(cancelAt); late > 100*time.Millisecond {
			t.Errorf("returned %v after the cancel", late)
		}
		time.Sleep(time.Second)
		if held := store.Held(); len(held) > 0 {
			t.Errorf("left in the store: %v", held)
		}
	})
}

// A driver that keeps deadlines drops its connection, and the answer, at one that comes while the answer is on its way.
func TestCallersDeadlineIsNotTheRequests(t *testing.T) {
	for _, deadlines := range []bool{true, false} {
		virtual(t, func(t *testing.T, store *memory.Store, f *faulty) {
			f.deadlines = deadlines
			answered := false
			f.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
				g, err := f.Backend.Acquire(context.WithoutCancel(ctx), r)
				time.Sleep(50 * time.Millisecond)
				if end, ok := ctx.Deadline(); !ok || !time.Now().Before(end) {
					return anylock.Grant{}, context.DeadlineExceeded
				}
				answered = true
				return g, err
			}
			l := newLocker(t, f)
			ctx, cancel := context.WithTimeout(bg, 20*time.Millisecond)
			defer cancel()
			if lease, err := l.Acquire(ctx, "x"); err != nil {
				wantErr(t, err, context.DeadlineExceeded)
			} else if err := lease.Release(bg); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
			if held := store.Held(); !answered || len(held) > 0 {
				t.Errorf("deadlines %v: answered %v; left in the store: %v", deadlines, answered, held)
			}
		})
	}
}

// Each request that is cut off costs its driver a connection, so there is one, and not one for each caller in a hurry.
func TestSlownessIsNoticedByCallersInAHurry(t *testing.T) {
	virtual(t, func(t *testing.T, _ *memory.Store, f *faulty) {
		f.deadlines = true
		var cut atomic.Int32
		f.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
			end, _ := ctx.Deadline()
			if time.Until(end) < 100*time.Millisecond {
				cut.Add(1)
				time.Sleep(time.Until(end))
				return anylock.Grant{}, context.DeadlineExceeded
			}
			time.Sleep(100 * time.Millisecond)
			return f.Backend.Acquire(ctx, r)
		}
		l := newLocker(t, f)
		for range 5 {
			ctx, cancel := context.WithTimeout(bg, 50*time.Millisecond)
			_, err := l.Acquire(ctx, "x")
			wantErr(t, err, context.DeadlineExceeded)
			cancel()
		}
		if n := cut.Load(); n != 1 {
			t.Errorf("%d requests were cut off", n)
		}
	})
}

func TestGrantThatCameTooLate(t *testing.T) {
	virtual(t, func(t *testing.T, store *memory.Store, f *faulty) {
		f.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
			g, err := f.Backend.Acquire(ctx, r)
			time.Sleep(2 * time.Second)
			return g, err
		}
		l := newLocker(t, f, anylock.WithTTL(2*time.Second))
		_, err := l.TryAcquire(bg, "x")
		wantErr(t, err, anylock.ErrUnavailable)
		time.Sleep(time.Second)
		if held := store.Held(); len(held) > 0 {
			t.Errorf("left in the store: %v", held)
		}
	})
}

func TestRenewalsThatFail(t *testing.T) {
	virtual(t, func(t *testing.T, _ *memory.Store, f *faulty) {
		var fail, failed atomic.Int32
		f.renew = func(ctx context.Context, g []anylock.Grant) []anylock.Renewal {
			if fail.Add(-1) >= 0 {
				return []anylock.Renewal{{Err: errCut}}
			}
			return f.Backend.Renew(ctx, g)
		}
		l := newLocker(t, f, anylock.WithHooks(anylock.Hooks{RenewFailed: func(anylock.Event) { failed.Add(1) }}))
		lease := acquire(t, l, "x")
		fail.Store(5)
		time.Sleep(time.Minute)
		if err := lease.Err(); err != nil {
			t.Fatalf("lost although the store came back in time: %v", err)
		}
		if n := failed.Load(); n != 5 {
			t.Errorf("RenewFailed was called %d times", n)
		}
		fail.Store(1 << 20)
		start := time.Now()
		<-lease.Done()
		if d := time.Since(start); d > 27*time.Second {
			t.Errorf("told after %v", d)
		}
		wantErr(t, lease.Err(), anylock.ErrLost)
		wantErr(t, lease.Err(), errCut)
	})
}

func TestRenewalsThatHang(t *testing.T) {
	virtual(t, func(t *testing.T, _ *memory.Store, f *faulty) {
		healed := make(chan struct{})
		f.renew = func(ctx context.Context, g []anylock.Grant) []anylock.Renewal {
			<-healed
			return f.Backend.Renew(context.WithoutCancel(ctx), g)
		}
		l := newLocker(t, f)
		lease := acquire(t, l, "x")
		start := time.Now()
		<-lease.Done()
		if d := time.Since(start); d != 27*time.Second {
			t.Errorf("told after %v", d)
		}
		close(healed)
	})
}

func TestReleaseThatFails(t *testing.T) {
	virtual(t, func(t *testing.T, store *memory.Store, f *faulty) {
		var fail atomic.Int32
		f.release = func(ctx context.Context, g []anylock.Grant) []error {
			if fail.Add(-1) >= 0 {
				return []error{errCut}
			}
			return f.Backend.Release(ctx, g)
		}
		l := newLocker(t, f)
		lease := acquire(t, l, "x")
		fail.Store(3)
		err := lease.Release(bg)
		wantErr(t, err, anylock.ErrUnavailable)
		time.Sleep(2 * time.Second)
		if held := store.Held(); len(held) > 0 {
			t.Errorf("left in the store: %v", held)
		}
		if err := lease.Release(bg); err != nil {
			t.Errorf("release after it went through in the background: %v", err)
		}
	})
}

// A holder learns that it lost the lock even if its release cannot be told to the store either.
func TestLossDuringAnOutage(t *testing.T) {
	virtual(t, func(t *testing.T, _ *memory.Store, f *faulty) {
		var down atomic.Bool
		f.renew = func(ctx context.Context, g []anylock.Grant) []anylock.Renewal {
			if down.Load() {
				return []anylock.Renewal{{Err: errCut}}
			}
			return f.Backend.Renew(ctx, g)
		}
		f.release = func(ctx context.Context, g []anylock.Grant) []error {
			if down.Load() {
				return []error{errCut}
			}
			return f.Backend.Release(ctx, g)
		}
		l := newLocker(t, f)
		err := l.Do(bg, "x", func(ctx context.Context, _ *anylock.Lease) error {
			down.Store(true)
			<-ctx.Done()
			return nil
		})
		wantErr(t, err, anylock.ErrLost)
		wantErr(t, err, errCut)
		if errors.Is(err, anylock.ErrUnavailable) {
			t.Errorf("%v has two classes", err)
		}
		down.Store(false)
	})
}

func TestReleaseInsideDo(t *testing.T) {
	everyWake(t, func(t *testing.T, store *memory.Store) {
		l := newLocker(t, store.Client())
		err := l.Do(bg, "x", func(ctx context.Context, lease *anylock.Lease) error {
			deeper, cancel := context.WithCancel(ctx)
			defer cancel()
			if err := lease.Release(deeper); err != nil {
				return err
			}
			if ctx.Err() == nil {
				t.Error("the context did not end with the lease")
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestEveryLeaseEndsWithOneHook(t *testing.T) {
	virtual(t, func(t *testing.T, store *memory.Store, f *faulty) {
		var down atomic.Bool
		f.release = func(ctx context.Context, g []anylock.Grant) []error {
			if down.Load() {
				return []error{errCut}
			}
			return f.Backend.Release(ctx, g)
		}
		var mu sync.Mutex
		ends := map[string][]error{}
		note := func(e anylock.Event) {
			mu.Lock()
			defer mu.Unlock()
			ends[e.Name] = append(ends[e.Name], e.Err)
		}
		l, err := anylock.New(f, anylock.WithLogger(nil), anylock.WithHooks(anylock.Hooks{Released: note, Lost: note}))
		if err != nil {
			t.Fatal(err)
		}
		released, stolen, unheard := acquire(t, l, "released"), acquire(t, l, "stolen"), acquire(t, l, "unheard")
		acquire(t, l, "closed")
		_ = released.Release(bg)
		_ = released.Release(bg)
		store.Steal("stolen")
		_ = stolen.Release(bg)
		down.Store(true)
		_ = unheard.Release(bg)
		time.Sleep(time.Minute)
		down.Store(false)
		_ = unheard.Release(bg) // the store answers now, and the hook was told that it does not
		if err := l.Close(bg); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		for name, want := range map[string]error{
			"released": nil, "stolen": anylock.ErrLost, "unheard": anylock.ErrUnavailable, "closed": anylock.ErrClosed,
		} {
			if got := ends[name]; len(got) != 1 || !errors.Is(got[0], want) {
				t.Errorf("%s: the hooks were told %v, want %v once", name, got, want)
			}
		}
	})
}

func TestReleaseWhoseReplyWasLost(t *testing.T) {
	virtual(t, func(t *testing.T, _ *memory.Store, f *faulty) {
		var calls atomic.Int32
		f.release = func(ctx context.Context, g []anylock.Grant) []error {
			errs := f.Backend.Release(ctx, g)
			if calls.Add(1) == 1 {
				return []error{errCut}
			}
			return errs
		}
		l := newLocker(t, f)
		lease := acquire(t, l, "x")
		wantErr(t, lease.Release(bg), anylock.ErrUnavailable)
		if err := lease.Release(bg); err != nil {
			t.Errorf("the first release had freed it, and nobody else can have had it: %v", err)
		}
	})
}

func TestReleaseWithADeadContext(t *testing.T) {
	virtual(t, func(t *testing.T, store *memory.Store, f *faulty) {
		l := newLocker(t, f)
		lease := acquire(t, l, "x")
		ctx, cancel := context.WithCancel(bg)
		cancel()
		_ = lease.Release(ctx)
		synctest.Wait()
		if held := store.Held(); len(held) > 0 {
			t.Errorf("left in the store: %v", held)
		}
	})
}

func TestTryBehindAnUndecidedAttempt(t *testing.T) {
	virtual(t, func(t *testing.T, _ *memory.Store, f *faulty) {
		answer := make(chan error)
		var calls atomic.Int32
		f.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
			if calls.Add(1) == 1 {
				if err := <-answer; err != nil {
					return anylock.Grant{}, err
				}
			}
			return f.Backend.Acquire(ctx, r)
		}
		l := newLocker(t, f)
		results := make(chan error, 2)
		try := func() {
			lease, err := l.TryAcquire(bg, "x")
			if err == nil {
				err = lease.Release(bg)
			}
			results <- err
		}
		go try()
		synctest.Wait()
		go try()
		synctest.Wait()
		answer <- errCut
		wantErr(t, <-results, anylock.ErrUnavailable)
		if err := <-results; err != nil {
			t.Errorf("a lock that nobody holds was refused: %v", err)
		}
	})
}

func TestHooksThatPanicOrBlock(t *testing.T) {
	virtual(t, func(t *testing.T, store *memory.Store, f *faulty) {
		var lost atomic.Int32
		l := newLocker(t, f, anylock.WithTTL(3*time.Second), anylock.WithLogger(nil), anylock.WithHooks(anylock.Hooks{
			Acquired: func(anylock.Event) { panic("acquired") },
			Released: func(anylock.Event) { panic("released") },
			Lost:     func(anylock.Event) { lost.Add(1); time.Sleep(10 * time.Second); panic("lost") },
		}))
		a, b, c := acquire(t, l, "a"), acquire(t, l, "b"), acquire(t, l, "c")
		store.Steal("b")
		<-b.Done()
		time.Sleep(20 * time.Second)
		if a.Err() != nil || c.Err() != nil {
			t.Errorf("others were lost too: %v, %v", a.Err(), c.Err())
		}
		if n := lost.Load(); n != 1 {
			t.Errorf("Lost was called %d times", n)
		}
	})
}

func TestLogs(t *testing.T) {
	virtual(t, func(t *testing.T, store *memory.Store, f *faulty) {
		var outage atomic.Bool
		f.renew = func(ctx context.Context, g []anylock.Grant) []anylock.Renewal {
			if !outage.Load() {
				return f.Backend.Renew(ctx, g)
			}
			renewals := make([]anylock.Renewal, len(g))
			for i := range renewals {
				renewals[i].Err = errCut
			}
			return renewals
		}
		var buffer lockedBuffer
		logger := slog.New(slog.NewTextHandler(&buffer, &slog.HandlerOptions{Level: slog.LevelInfo}))
		l := newLocker(t, f, anylock.WithLogger(logger), anylock.WithTTL(9*time.Second))
		other := newLocker(t, store.Client())
		held := acquire(t, other, "held")
		for range 1000 {
			_, err := l.TryAcquire(bg, "held")
			wantErr(t, err, anylock.ErrHeld)
			ctx, cancel := context.WithTimeout(bg, time.Millisecond)
			_, err = l.Acquire(ctx, "held")
			cancel()
			wantErr(t, err, context.DeadlineExceeded)
		}
		if text := buffer.String(); text != "" {
			t.Errorf("contention and cancel were logged:\n%s", text)
		}
		var ids []string
		f.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
			ids = append(ids, r.ID)
			return f.Backend.Acquire(ctx, r)
		}
		for i := range 50 {
			acquire(t, l, strings.Repeat("x", i+1))
		}
		outage.Store(true)
		time.Sleep(10 * time.Second)
		text := buffer.String()
		if n := strings.Count(text, "\n"); n < 1 || n > 10 {
			t.Errorf("an outage of 10 s with 50 locks made %d records:\n%s", n, text)
		}
		for _, id := range ids {
			if strings.Contains(text, id) {
				t.Fatal("a record contains an ID")
			}
		}
		_ = held
	})
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestManyLeases(t *testing.T) {
	virtual(t, func(t *testing.T, _ *memory.Store, f *faulty) {
		var batches, renewed atomic.Int32
		f.renew = func(ctx context.Context, g []anylock.Grant) []anylock.Renewal {
			batches.Add(1)
			renewed.Add(int32(len(g)))
			return f.Backend.Renew(ctx, g)
		}
		l := newLocker(t, f)
		const n = 20000
		leases := make([]*anylock.Lease, n)
		for i := range leases {
			leases[i] = acquire(t, l, string(rune(0x4e00+i%20000))+strings.Repeat("y", i/20000))
		}
		time.Sleep(60 * time.Second)
		for _, lease := range leases {
			if err := lease.Err(); err != nil {
				t.Fatal(err)
			}
		}
		if r := renewed.Load(); r < 5*n || r > 8*n {
			t.Errorf("%d renewals of %d leases in 6 intervals", r, n)
		}
		if b := batches.Load(); b > 400 {
			t.Errorf("%d batches", b)
		}
	})
}

func TestTimeInAQueueIsNotAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore(anylock.WakeQueue)
		f := &faulty{Backend: store.Client()}
		begin := time.Now().Add(time.Minute)
		end := begin.Add(2 * time.Second)
		f.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
			if time.Now().Before(begin) {
				var cancel context.CancelFunc
				ctx, cancel = context.WithDeadline(ctx, begin)
				defer cancel()
			}
			g, err := f.Backend.Acquire(ctx, r)
			if now := time.Now(); err != nil && !now.Before(begin) && now.Before(end) {
				err = errCut
			}
			return g, err
		}
		holder, l := newLocker(t, store.Client()), newLocker(t, f)
		lease := acquire(t, holder, "x")
		time.AfterFunc(time.Until(end)+time.Second, func() { _ = lease.Release(bg) })
		_ = acquire(t, l, "x").Release(bg)
		if time.Now().Before(end) {
			t.Error("granted while another had it")
		}
		lease = acquire(t, holder, "y")
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		_, err := l.Acquire(ctx, "y")
		wantErr(t, err, context.DeadlineExceeded)
		if strings.Contains(err.Error(), "not answered") {
			t.Errorf("a wait in the queue of a store that is well: %v", err)
		}
		_ = lease.Release(bg)
	})
}

// The undoing of a request that stood in a store's queue counts from the cancel: it may be granted as late as that.
func TestUndoOfALongWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore(anylock.WakeQueue)
		f := &faulty{Backend: store.Client()}
		var down atomic.Bool
		var releases atomic.Int32
		f.acquire = func(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
			if r.Wait {
				<-ctx.Done() // and nobody knows what became of it
				down.Store(true)
				return anylock.Grant{}, errCut
			}
			return f.Backend.Acquire(ctx, r)
		}
		f.release = func(ctx context.Context, g []anylock.Grant) []error {
			releases.Add(1)
			if down.Load() {
				return []error{errCut}
			}
			return f.Backend.Release(ctx, g)
		}
		l := newLocker(t, f, anylock.WithTTL(10*time.Second))
		holder := acquire(t, newLocker(t, store.Client()), "x")
		ctx, cancel := context.WithTimeout(bg, 15*time.Second) // longer than the TTL
		defer cancel()
		_, err := l.Acquire(ctx, "x")
		wantErr(t, err, context.DeadlineExceeded)
		time.Sleep(8 * time.Second)
		if n := releases.Load(); n < 8 {
			t.Errorf("%d tries to undo it in 8 s of an outage", n)
		}
		down.Store(false)
		_ = holder.Release(bg)
		time.Sleep(2 * time.Second)
	})
}
