package anylock

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/anylock/anylock/internal/background"
)

const (
	// askPatience is how long a caller waits in the backend itself. It bounds what a cancel can be late by.
	askPatience = 80 * time.Millisecond
	// askSlowly is for how long, after that was not enough, each call gets a goroutine of its own.
	askSlowly = 30 * time.Second
)

// errNoAnswer means that a call was left behind, or gave up, without an answer: its outcome is unknown.
var errNoAnswer = errors.New("no answer")

// ask makes one request to the store and returns soon after ctx ends, even if the backend does not. A detached request
// goes on without ctx then. late, if not nil, gets the answer that nobody waited for.
//
// A goroutine for each request costs up to half of what the request itself does, so while the store is quick and its
// driver keeps deadlines, the request is made in the caller's own. What does not come back in time is repeated aside:
// backends must be able to repeat a request anyway.
//
// The deadline that a backend sees is that of the request. The caller's own never cuts off what was sent: its answer
// mostly comes a moment later, and without it nobody knows whether the lock was granted, and the connection is lost.
func ask[T any](ctx context.Context, l *Locker, detached bool, call func(context.Context) (T, error), late func(T, error)) (T, error) {
	base := context.WithoutCancel(ctx)
	var none T
	if l.desc.Deadlines && (detached || ctx.Err() == nil) && !l.slow.now() {
		brief, cancel := context.WithTimeout(base, min(askPatience, l.cfg.requestTimeout))
		r, err := call(brief)
		answered := err == nil || !isUnknown(err) || !ended(brief)
		cancel()
		if answered {
			return r, err
		}
		l.slow.note()
		if ended(ctx) && !detached {
			return none, errNoAnswer
		}
	}
	bounded, cancel := context.WithTimeout(base, l.cfg.requestTimeout)
	if detached {
		leave, stop := patiently(ctx)
		defer stop()
		return askAside(bounded, l, cancel, leave, nil, call, late)
	}
	defer context.AfterFunc(ctx, cancel)()
	return askAside(bounded, l, cancel, ctx.Done(), l.draining, call, late)
}

// askQueued is ask for a request that waits in the store's own queue for as long as ctx lives. After that it waits a
// moment for the request to have left the queue, so that nobody is told of a lock that nobody has.
func askQueued[T any](ctx context.Context, l *Locker, call func(context.Context) (T, error), late func(T, error)) (T, error) {
	waiting, cancel := context.WithCancel(ctx)
	leave, stop := patiently(ctx)
	defer stop()
	return askAside(context.WithoutCancel(ctx), l, cancel, leave, l.draining, func(context.Context) (T, error) {
		r, err := call(waiting)
		if err != nil && isUnknown(err) && waiting.Err() != nil {
			err = errNoAnswer
		}
		return r, err
	}, late)
}

// patiently returns a channel that is closed askPatience after ctx has ended. stop lets go of what is behind it.
func patiently(ctx context.Context) (ended <-chan struct{}, stop func()) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(askPatience)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-late.Done():
		}
	})
	return late.Done(), func() { unhook(); cancel() }
}

// askAside calls cancel when the call is over, or left behind although it is not detached: then there is a stop.
func askAside[T any](ctx context.Context, l *Locker, cancel func(), leave, stop <-chan struct{}, call func(context.Context) (T, error), late func(T, error)) (T, error) {
	type answer struct {
		result T
		err    error
	}
	got, ok := background.Call(ctx, &l.background, leave, stop, func() answer {
		r, err := call(ctx)
		if err != nil && isUnknown(err) && ended(ctx) {
			err = errNoAnswer
		}
		return answer{r, err}
	}, func(a answer) {
		cancel()
		if late != nil {
			late(a.result, a.err)
		}
	})
	if ok || stop != nil {
		cancel()
	}
	if !ok {
		return got.result, errNoAnswer
	}
	return got.result, got.err
}

// ended reports whether ctx has ended. A driver may notice its deadline a little before ctx does.
func ended(ctx context.Context) bool {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		<-ctx.Done()
	}
	return ctx.Err() != nil
}

// slowness remembers that a request was not answered quickly.
type slowness struct{ until atomic.Int64 }

func (s *slowness) now() bool {
	until := s.until.Load()
	return until != 0 && time.Now().UnixNano() < until
}

func (s *slowness) note() { s.until.Store(time.Now().Add(askSlowly).UnixNano()) }
