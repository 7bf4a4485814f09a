package anylock

import (
	"context"
	"crypto/rand"
	"errors"
	"reflect"
	"sync"
	"time"

	"github.com/anylock/anylock/internal/background"
	"github.com/anylock/anylock/internal/bootclock"
	"github.com/anylock/anylock/internal/scheduler"
)

// Locker acquires locks in one store. It is safe for concurrent use; a process needs one for each store.
type Locker struct {
	backend Backend
	desc    Description
	cfg     config
	queue   queue

	draining  chan struct{} // closed by Drain and Close: no new leases
	drainOnce sync.Once
	closing   chan struct{} // closed by Close: no renewals any more

	renewals   scheduler.Scheduler[*Lease]
	undoings   undoings
	background background.Group // calls aside, also those left behind
	slow       slowness
	admission  *admission
	troubles   troubles
	races      races
	slept      time.Duration // bootclock.Suspended() as the scheduler of renewals saw it last

	closeOnce sync.Once
	closed    chan struct{} // closed when Close is done
	closeErr  error
}

// New returns a Locker over a backend, which it owns from then on. It does no I/O. The error matches [ErrInvalid].
func New(b Backend, opts ...Option) (*Locker, error) {
	if v := reflect.ValueOf(b); b == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, &Error{Op: "new", Err: Invalidf("the backend is nil; check the error of its constructor first")}
	}
	l := &Locker{
		backend:  b,
		desc:     b.Describe(),
		cfg:      applied(opts),
		draining: make(chan struct{}),
		closing:  make(chan struct{}),
		closed:   make(chan struct{}),
	}
	if err := l.cfg.check(l.desc); err != nil {
		return nil, l.error("new", "", err)
	}
	l.troubles.logger = l.cfg.logger.With("backend", l.desc.Name)
	l.admission = newAdmission(l.desc.MaxRequests)
	l.slept = bootclock.Suspended()
	l.renewals = scheduler.Scheduler[*Lease]{
		Job: func(lease *Lease) *scheduler.Job { return &lease.renewal }, Run: l.renewBatch, Tick: l.checkSleep,
		Batch: max(l.desc.MaxBatch, 1), Workers: 256, // since some may hang
	}
	l.undoings.Scheduler = scheduler.Scheduler[*undoing]{
		Job: func(u *undoing) *scheduler.Job { return &u.job }, Run: l.undoBatch,
		Batch: max(l.desc.MaxBatch, 1), Workers: 16,
	}
	return l, nil
}

// Guarantees returns what the backend promises in its present configuration.
func (l *Locker) Guarantees() Guarantees { return l.desc.Guarantees }

// Description returns what the backend says of itself, its limits for TTLs among it.
func (l *Locker) Description() Description { return l.desc }

// Acquire waits until it has the lock, or ctx ends. Waiters of one process are served in the order they came; those of
// different processes as [Guarantees] says. ctx bounds the wait and never the lease: give the lease back with Release.
//
// A free lock costs one round trip on most stores. A waiter costs nothing between wake-ups where the store can wake it.
//
// Errors, all of type [*Error]:
//
//   - ctx's own error, when it ended first; it also matches [ErrHeld] if somebody was known to hold the lock. Acquire
//     then returns at once even if the store does not answer.
//   - [ErrUnavailable]: the store did not answer for longer than [WithRequestTimeout].
//   - [ErrInvalid]: a wrong name or option (nothing was sent), wrong credentials or missing rights.
//   - [ErrClosed]: the Locker was closed while it waited, or before.
//
// After an error nothing is left in the store: what may have been granted is released in the background.
func (l *Locker) Acquire(ctx context.Context, name string, opts ...AcquireOption) (*Lease, error) {
	return l.acquire(ctx, name, true, opts)
}

// TryAcquire makes one attempt and returns [ErrHeld] if the lock is not free; a [*HeldError] inside tells who has it, if
// the store knows. It does not wait for other holders; it costs one round trip, or none if this Locker holds the lock
// itself. Other errors are as for [Locker.Acquire].
func (l *Locker) TryAcquire(ctx context.Context, name string, opts ...AcquireOption) (*Lease, error) {
	return l.acquire(ctx, name, false, opts)
}

// Do runs fn while it holds the lock. The context of fn ends when ctx does or the lease ends, with the lease's error as
// its [context.Cause]; fn should then return soon. The lock is released when fn returns, panics or calls
// runtime.Goexit. Do returns fn's error, joined with that of the release: an [ErrLost] among it says that the lock was
// lost while fn ran, even if fn returned nil.
func (l *Locker) Do(ctx context.Context, name string, fn func(context.Context, *Lease) error, opts ...AcquireOption) error {
	return l.do(ctx, name, true, fn, opts)
}

// TryDo is Do with one attempt, as [Locker.TryAcquire] makes it: when the lock is not free it returns [ErrHeld] and does not
// call fn.
func (l *Locker) TryDo(ctx context.Context, name string, fn func(context.Context, *Lease) error, opts ...AcquireOption) error {
	return l.do(ctx, name, false, fn, opts)
}

func (l *Locker) do(ctx context.Context, name string, wait bool, fn func(context.Context, *Lease) error, opts []AcquireOption) (err error) {
	lease, err := l.acquire(ctx, name, wait, opts)
	if err != nil {
		return err
	}
	defer func() {
		// The caller's context may have ended; a release is bounded by itself.
		if releaseErr := lease.Release(context.WithoutCancel(ctx)); releaseErr != nil && !errors.Is(err, releaseErr) { // fn may return the loss itself
			err = errors.Join(err, releaseErr)
		}
	}()
	inside, cancel := lease.Context(ctx)
	defer cancel()
	return fn(inside, lease)
}

// error wraps err with what it is about, unless that has been done.
func (l *Locker) error(op, name string, err error) error {
	if e, ok := err.(*Error); ok { //nolint:errorlint // one that is wrapped says less than its wrapper
		return e
	}
	return &Error{Op: op, Backend: l.desc.Name, Name: name, Err: err}
}

// newID returns a fresh random name for one acquisition, of 130 bits.
func newID() string { return rand.Text() }
