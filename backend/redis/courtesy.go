package redis

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

const (
	courtesyFor  = 5 * time.Millisecond
	courtesyMost = 1024 // names; more are not remembered
)

// courtesy keeps a client that has just released a lock from snatching it before those who wait have heard of the
// release: its next acquire of that name stands back for up to a millisecond, within which they come.
type courtesy struct {
	some     atomic.Bool // spares the others the mutex
	mu       sync.Mutex
	released map[string]time.Time
}

// owe remembers that others have been told of a release.
func (c *courtesy) owe(name string) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.released) >= courtesyMost {
		for other, at := range c.released {
			if now.Sub(at) > courtesyFor {
				delete(c.released, other)
			}
		}
	}
	if c.released == nil {
		c.released = make(map[string]time.Time)
	}
	if len(c.released) < courtesyMost {
		c.released[name] = now
		c.some.Store(true)
	}
}

// pay stands back if that is owed.
func (c *courtesy) pay(ctx context.Context, name string) {
	if !c.some.Load() {
		return
	}
	c.mu.Lock()
	at, owed := c.released[name]
	delete(c.released, name)
	c.some.Store(len(c.released) > 0)
	c.mu.Unlock()
	if !owed || time.Since(at) > courtesyFor {
		return
	}
	timer := time.NewTimer(300*time.Microsecond + rand.N(700*time.Microsecond))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
