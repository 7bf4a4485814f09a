package anylock

import (
	"time"

	"github.com/anylock/anylock/internal/bootclock"
)

// window is the time for which a lease may be trusted.
type window struct {
	end   time.Time     // on the monotonic clock
	slept time.Duration // bootclock.Suspended when the request that granted it left
}

// left returns how much of the window remains.
func (w window) left() time.Duration {
	return time.Until(w.end) - bootclock.Between(w.slept, bootclock.Suspended())
}

// leftLately is left with a reading of the clocks that may be a little old.
func (w window) leftLately() time.Duration {
	return time.Until(w.end) - bootclock.Between(w.slept, bootclock.SuspendedLately())
}
