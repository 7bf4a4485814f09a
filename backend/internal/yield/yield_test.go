package yield

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

func TestYieldsOnceAfterARelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var y Yielder
		took := func(name string) time.Duration {
			start := time.Now()
			y.Yield(t.Context(), name, time.Millisecond)
			return time.Since(start)
		}
		y.Released("x")
		if d := took("y"); d != 0 {
			t.Errorf("yielded for %v for a lock that it has not released", d)
		}
		if d := took("x"); d < time.Millisecond/2 || d > time.Millisecond {
			t.Errorf("yielded for %v, not for 0.5 to 1 ms", d)
		}
		if d := took("x"); d != 0 {
			t.Errorf("yielded a second time, for %v", d)
		}
		y.Released("x")
		time.Sleep(forgetAfter + 1)
		if d := took("x"); d != 0 {
			t.Errorf("yielded for %v long after the release", d)
		}
	})
}

func TestYieldEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var y Yielder
		y.Released("x")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		y.Yield(ctx, "x", time.Hour)
		if d := time.Since(start); d != 0 {
			t.Errorf("yielded for %v", d)
		}
	})
}

func TestMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var y Yielder
		for i := range 3 * mostNames {
			y.Released(strconv.Itoa(i))
		}
		if n := len(y.released); n != mostNames {
			t.Errorf("%d names are remembered, not %d", n, mostNames)
		}
		time.Sleep(forgetAfter + 1)
		y.Released("new")
		if n := len(y.released); n != 1 {
			t.Errorf("%d names are remembered long after their release", n)
		}
	})
}
