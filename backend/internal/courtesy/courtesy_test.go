package courtesy

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

func TestOneWhoReleasedStandsBackOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Courtesy
		took := func(name string) time.Duration {
			start := time.Now()
			c.Pay(t.Context(), name, time.Millisecond)
			return time.Since(start)
		}
		c.Owe("x")
		if d := took("y"); d != 0 {
			t.Errorf("stood back for %v for a lock that it has not released", d)
		}
		if d := took("x"); d < time.Millisecond/2 || d > time.Millisecond {
			t.Errorf("stood back for %v, not for 0.5 to 1 ms", d)
		}
		if d := took("x"); d != 0 {
			t.Errorf("stood back a second time, for %v", d)
		}
		c.Owe("x")
		time.Sleep(forgetAfter + 1)
		if d := took("x"); d != 0 {
			t.Errorf("stood back for %v long after the release", d)
		}
	})
}

func TestStandingBackEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Courtesy
		c.Owe("x")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		c.Pay(ctx, "x", time.Hour)
		if d := time.Since(start); d != 0 {
			t.Errorf("stood back for %v", d)
		}
	})
}

func TestMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Courtesy
		for i := range 3 * mostNames {
			c.Owe(strconv.Itoa(i))
		}
		if n := len(c.released); n != mostNames {
			t.Errorf("%d names are remembered, not %d", n, mostNames)
		}
		time.Sleep(forgetAfter + 1)
		c.Owe("new")
		if n := len(c.released); n != 1 {
			t.Errorf("%d names are remembered long after their release", n)
		}
	})
}
