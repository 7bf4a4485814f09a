//go:build !linux

package bootclock

import "time"

// Suspended is not known here: on Windows, Go's monotonic clock counts the time asleep by itself; elsewhere a machine
// that sleeps longer than a TTL finds out by its next renewal.
func Suspended() time.Duration { return 0 }
