package anylock

import (
	"context"
	"sync"
)

// tracker counts goroutines, so that Close can wait for them with a bound. Unlike a sync.WaitGroup it may be added to
// while somebody waits.
type tracker struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // made by a waiter, closed at zero
}

// begin counts the caller's own goroutine until it calls done.
func (t *tracker) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
}

func (t *tracker) run(f func()) {
	t.begin()
	go func() {
		defer t.done()
		f()
	}()
}

func (t *tracker) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n--; t.n == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// wait returns when nothing is running, or ctx ends.
func (t *tracker) wait(ctx context.Context) {
	t.mu.Lock()
	if t.n == 0 {
		t.mu.Unlock()
		return
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	idle := t.idle
	t.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}
