package anylock

import (
	"context"
	"sync/atomic"
)

// aside runs call in a goroutine of its own, since a driver may not return when its context ends, and waits for it until
// ctx, leave or stop does. Then call is left behind, and late gets what it returns in the end. ok tells which.
func aside[T any](ctx context.Context, bg *tracker, leave, stop <-chan struct{}, call func() T, late func(T)) (result T, ok bool) {
	const (
		taken     = 1
		abandoned = 2
	)
	var fate atomic.Int32
	done := make(chan T, 1)
	bg.run(func() {
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
