package conformance

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/anylock/anylock"
)

// Wired puts a pretended network between a backend and its store, and returns a client whose network can be cut, slowed
// and made to drop replies. It is meant for backends without a network, and for tests of what stands above a backend: it
// cannot find what a driver does wrong, as a proxy on the real connection can.
//
// With deaf set, calls on a cut network do not return when their context ends, as with a driver that ignores contexts.
func Wired(b anylock.Backend, deaf bool) Client {
	w := &wire{Backend: b, deaf: deaf, gate: make(chan struct{}), closed: make(chan struct{})}
	close(w.gate)
	return Client{Backend: w, Cut: w.cut, Heal: w.heal, DropReply: w.dropReply, Slow: w.slow}
}

type wire struct {
	anylock.Backend
	deaf   bool
	closed chan struct{}

	mu    sync.Mutex
	gate  chan struct{} // closed while the network works
	isCut bool
	drop  bool
	delay time.Duration
	once  sync.Once
}

func (w *wire) Describe() anylock.Description {
	d := w.Backend.Describe()
	d.Deadlines = d.Deadlines && !w.deaf
	return d
}

var (
	errReplyLost = errors.New("the connection was closed before the reply came")
	errNoNetwork = errors.New("the network is a black hole")
)

func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.isCut {
		w.isCut = true
		w.gate = make(chan struct{})
	}
}

func (w *wire) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isCut {
		w.isCut = false
		close(w.gate)
	}
}

func (w *wire) dropReply() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop = true
}

func (w *wire) slow(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.delay = d
}

// cross waits until the network lets something through.
func (w *wire) cross(ctx context.Context) error {
	w.mu.Lock()
	gate := w.gate
	w.mu.Unlock()
	select {
	case <-gate:
		return nil
	default:
	}
	done := ctx.Done()
	if w.deaf {
		done = nil
	}
	select {
	case <-gate:
		if w.deaf && ctx.Err() != nil {
			return anylock.Unavailable(ctx.Err())
		}
		return nil
	case <-done:
		return anylock.Unavailable(errors.Join(errNoNetwork, ctx.Err()))
	case <-w.closed:
		return anylock.ErrClosed
	}
}

// reply brings a reply back: late, or not at all.
func (w *wire) reply(ctx context.Context) error {
	w.mu.Lock()
	drop, delay := w.drop, w.delay
	w.drop = false
	w.mu.Unlock()
	if delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return anylock.Unavailable(ctx.Err())
		case <-w.closed:
			return anylock.ErrClosed
		}
	}
	if err := w.cross(ctx); err != nil {
		return err
	}
	if drop {
		return anylock.Unavailable(errReplyLost)
	}
	return nil
}

func (w *wire) Acquire(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
	if err := w.cross(ctx); err != nil {
		return anylock.Grant{}, err
	}
	if lost := r.Lost; lost != nil {
		r.Lost = func(err error) { w.later(func() { lost(err) }) }
	}
	g, err := w.Backend.Acquire(ctx, r)
	if lost := w.reply(ctx); lost != nil {
		return anylock.Grant{}, lost
	}
	return g, err
}

// later runs f in the background when the network works.
func (w *wire) later(f func()) {
	go func() {
		for {
			w.mu.Lock()
			gate := w.gate
			w.mu.Unlock()
			select {
			case <-gate:
				f()
				return
			case <-w.closed:
				return
			}
		}
	}()
}

func (w *wire) Renew(ctx context.Context, grants []anylock.Grant) []anylock.Renewal {
	out := make([]anylock.Renewal, len(grants))
	err := w.cross(ctx)
	if err == nil {
		out = w.Backend.Renew(ctx, grants)
		err = w.reply(ctx)
	}
	if err != nil {
		for i := range out {
			out[i] = anylock.Renewal{Err: err}
		}
	}
	return out
}

func (w *wire) Release(ctx context.Context, grants []anylock.Grant) []error {
	out := make([]error, len(grants))
	err := w.cross(ctx)
	if err == nil {
		out = w.Backend.Release(ctx, grants)
		err = w.reply(ctx)
	}
	if err != nil {
		for i := range out {
			out[i] = err
		}
	}
	return out
}

func (w *wire) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	if err := w.cross(ctx); err != nil {
		return nil, err
	}
	from, err := w.Backend.Watch(ctx, name)
	if err != nil || from == nil {
		return from, err
	}
	to := make(chan struct{}, 1)
	go func() {
		for {
			select {
			case <-from:
			case <-ctx.Done():
				return
			case <-w.closed:
				return
			}
			w.mu.Lock()
			gate := w.gate
			w.mu.Unlock()
			select {
			case <-gate:
			case <-ctx.Done():
				return
			case <-w.closed:
				return
			}
			select {
			case to <- struct{}{}:
			default:
			}
		}
	}()
	return to, w.reply(ctx)
}

func (w *wire) Close() error {
	w.once.Do(func() { close(w.closed) })
	return w.Backend.Close()
}
