// Package background runs what may outlive its caller, and counts it, so that its owner can wait for it with a bound.
package background

import (
	"context"
	"sync/atomic"
)

// Call runs call in a goroutine of its own, since a driver may not return when its context ends, and waits for it until
// ctx, leave or stop does. Then call is left behind, and late gets what it returns in the end. ok tells which.
func Call[T any](ctx context.Context, g *Group, leave, stop <-chan struct{}, call func() T, late func(T)) (result T, ok bool) {
	const (
		taken     = 1
		abandoned = 2
	)
	var fate atomic.Int32
	done := make(chan T, 1)
	g.Go(func() {
		r := call()
		if fate.CompareAndSwap(0, taken) {
			done <- r
		} else {
			late(r)
		}
	})
	select {
	case r := <-done:
		return r, true
	case <-ctx.Done():
	case <-leave:
	case <-stop:
	}
	if fate.CompareAndSwap(0, abandoned) {
		return result, false
	}
	return <-done, true
}
