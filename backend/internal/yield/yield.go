// Package yield keeps a client that has just released a lock from snatching it before those who wait have heard of the
// release, on stores that wake waiters but do not queue them.
package yield

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

// Yielder remembers for which names a client must yield. The zero value is ready. It is safe for concurrent use.
type Yielder struct {
	some     atomic.Bool // spares the others the mutex
	mu       sync.Mutex
	released map[string]time.Time
}

// Released notes that others have been told of a release.
func (y *Yielder) Released(name string) {
	now := time.Now()
	y.mu.Lock()
	defer y.mu.Unlock()
	if len(y.released) >= mostNames {
		for other, at := range y.released {
			if now.Sub(at) > forgetAfter {
				delete(y.released, other)
			}
		}
	}
	if y.released == nil {
		y.released = make(map[string]time.Time)
	}
	if len(y.released) < mostNames {
		y.released[name] = now
		y.some.Store(true)
	}
}

// Yield waits for a random time from half of most to most if others were told of a release of the name. The next attempt
// does not wait.
func (y *Yielder) Yield(ctx context.Context, name string, most time.Duration) {
	if !y.some.Load() {
		return
	}
	y.mu.Lock()
	at, pending := y.released[name]
	delete(y.released, name)
	y.some.Store(len(y.released) > 0)
	y.mu.Unlock()
	if !pending || time.Since(at) > forgetAfter {
		return
	}
	timer := time.NewTimer(most/2 + rand.N(most/2))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Pending reports whether there is a name to yield for.
func (y *Yielder) Pending() bool { return y.some.Load() }
