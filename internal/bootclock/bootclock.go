// Package bootclock knows for how long this machine was asleep. Go's monotonic clock stands still meanwhile and a
// store's clock does not.
package bootclock

import (
	"sync/atomic"
	"time"
)

// Between returns how long the machine slept between two readings of Suspended.
func Between(before, after time.Duration) time.Duration {
	const noise = 10 * time.Millisecond // two readings differ by a little even if it never slept
	if d := after - before; d > noise {
		return d
	}
	return 0
}

// SuspendedLately is Suspended as it was read last, at most a tenth of a second ago; it costs much less. Where a trust
// window begins it errs on the safe side.
func SuspendedLately() time.Duration {
	r := lastReading.Load()
	if r == nil || time.Since(r.at) > 100*time.Millisecond || time.Until(r.at) > 0 {
		r = &reading{at: time.Now(), slept: Suspended()}
		lastReading.Store(r)
	}
	return r.slept
}

type reading struct {
	at    time.Time
	slept time.Duration
}

var lastReading atomic.Pointer[reading]
