package background

import (
	"context"
	"sync"
)

// Group counts goroutines, so that Close can wait for them with a bound. Unlike a sync.WaitGroup it may be added to
// while somebody waits.
type Group struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // made by a waiter, closed at zero
}

// Begin counts the caller's own goroutine until it calls Done.
func (g *Group) Begin() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n++
}

// Go runs f in a goroutine that is counted.
func (g *Group) Go(f func()) {
	g.Begin()
	go func() {
		defer g.Done()
		f()
	}()
}

// Done ends what Begin counts.
func (g *Group) Done() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n--; g.n == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// Wait returns when nothing is running, or ctx ends.
func (g *Group) Wait(ctx context.Context) {
	g.mu.Lock()
	if g.n == 0 {
		g.mu.Unlock()
		return
	}
	if g.idle == nil {
		g.idle = make(chan struct{})
	}
	idle := g.idle
	g.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}
