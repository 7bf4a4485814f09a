package bootclock

import (
	"syscall"
	"time"
	"unsafe"
)

// Suspended returns for how long this machine has slept since it was booted. Go's monotonic clock stands still
// meanwhile and a store's clock does not, so this time counts against every trust window.
func Suspended() time.Duration {
	const (
		monotonic, boot = 1, 7 // CLOCK_MONOTONIC, CLOCK_BOOTTIME
		apart           = time.Millisecond
	)
	var slept time.Duration
	for range 10 { // again when the scheduler stepped in between the readings
		before := read(monotonic)
		now := read(boot)
		after := read(monotonic)
		slept = max(now-after, 0)
		if after-before < apart {
			break
		}
	}
	return slept
}

func read(clock uintptr) time.Duration {
	var t syscall.Timespec
	if _, _, e := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&t)), 0); e != 0 {
		return 0
	}
	return time.Duration(t.Nano())
}
