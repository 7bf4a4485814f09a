// Package gate lets requests into a backend until it is closed.
package gate

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/anylock/anylock"
)

// ErrTooLate refuses a request of an ID that the store remembers to have ended.
var ErrTooLate = fmt.Errorf("this attempt was released before it arrived: %w", anylock.ErrLost)

// Gate is open until Close. It is safe for concurrent use.
type Gate struct{ closed atomic.Bool }

// Enter says why a request need not begin: the backend was closed, or the caller has given up.
func (g *Gate) Enter(ctx context.Context) error {
	if g.closed.Load() {
		return anylock.ErrClosed
	}
	if ctx.Err() != nil {
		return anylock.Unavailable(context.Cause(ctx))
	}
	return nil
}

// Explain returns the error of a request that was let in, which is about the closing if there was one meanwhile: then the
// store's own words are about connections that have gone.
func (g *Gate) Explain(err error) error {
	if err != nil && g.closed.Load() {
		return anylock.ErrClosed
	}
	return err
}

// Close lets nobody in any more. It reports whether the gate was open.
func (g *Gate) Close() bool { return !g.closed.Swap(true) }
