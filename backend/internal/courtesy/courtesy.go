// Package courtesy keeps a client that has just released a lock from snatching it before those who wait have heard of the
// release, on stores that wake waiters but do not queue them.
package courtesy

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

const (
	forgetAfter = 5 * time.Millisecond
	mostNames   = 1024 // more are not remembered
)

// Courtesy is what a client owes to others. The zero value owes nothing. It is safe for concurrent use.
type Courtesy struct {
	some     atomic.Bool // spares the others the mutex
	mu       sync.Mutex
	released map[string]time.Time
}

// Owe remembers that others have been told of a release.
func (c *Courtesy) Owe(name string) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.released) >= mostNames {
		for other, at := range c.released {
			if now.Sub(at) > forgetAfter {
				delete(c.released, other)
			}
		}
	}
	if c.released == nil {
		c.released = make(map[string]time.Time)
	}
	if len(c.released) < mostNames {
		c.released[name] = now
		c.some.Store(true)
	}
}

// Pay stands back for a random time from half of most to most if that is owed for the name. The next attempt is free.
func (c *Courtesy) Pay(ctx context.Context, name string, most time.Duration) {
	if !c.some.Load() {
		return
	}
	c.mu.Lock()
	at, owed := c.released[name]
	delete(c.released, name)
	c.some.Store(len(c.released) > 0)
	c.mu.Unlock()
	if !owed || time.Since(at) > forgetAfter {
		return
	}
	timer := time.NewTimer(most/2 + rand.N(most/2))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Owing reports whether anything is owed.
func (c *Courtesy) Owing() bool { return c.some.Load() }
