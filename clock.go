package anylock

import "time"

// window is the time for which a lease may be trusted.
type window struct {
	end   time.Time     // on the monotonic clock
	slept time.Duration // suspended() when the request that granted it left
}

// left returns how much of the window remains.
func (w window) left() time.Duration {
	return time.Until(w.end) - sleptSince(w.slept)
}

// sleptSince returns how long the machine has slept since suspended() returned base.
func sleptSince(base time.Duration) time.Duration {
	const noise = 10 * time.Millisecond // two readings differ by a little even if it never slept
	if d := suspended() - base; d > noise {
		return d
	}
	return 0
}
