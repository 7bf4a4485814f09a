package anylock

import (
	"sync/atomic"
	"time"
)

// window is the time for which a lease may be trusted.
type window struct {
	end   time.Time     // on the monotonic clock
	slept time.Duration // suspended() when the request that granted it left
}

// left returns how much of the window remains.
func (w window) left() time.Duration { return time.Until(w.end) - sleepBetween(w.slept, suspended()) }

// leftLately is left with a reading of the clocks that may be a little old.
func (w window) leftLately() time.Duration {
	return time.Until(w.end) - sleepBetween(w.slept, suspendedLately())
}

// sleepBetween is how long the machine slept between two readings of suspended().
func sleepBetween(before, after time.Duration) time.Duration {
	const noise = 10 * time.Millisecond // two readings differ by a little even if it never slept
	if d := after - before; d > noise {
		return d
	}
	return 0
}

// suspendedLately is suspended() as it was read last, at most a tenth of a second ago; it costs much less. Where a window
// begins it errs on the safe side.
func suspendedLately() time.Duration {
	r := lastReading.Load()
	if r == nil || time.Since(r.at) > 100*time.Millisecond || time.Until(r.at) > 0 {
		r = &reading{at: time.Now(), slept: suspended()}
		lastReading.Store(r)
	}
	return r.slept
}

type reading struct {
	at    time.Time
	slept time.Duration
}

var lastReading atomic.Pointer[reading]
