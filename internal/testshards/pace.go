package main

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// pace waits before one more shard starts, for as long as it would not be alone. Most shards start servers, which takes the
// CPU for a while, so they do so a few seconds apart; and on a machine that is busy fewer run at once, since servers that
// get no CPU answer too late for tests that are about time.
func pace(ctx context.Context, alone func() bool) {
	for wait := 3 * time.Second; !alone(); wait = time.Second {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if runnable() <= 4*float64(runtime.NumCPU()) {
			return
		}
	}
}

// runnable is how many threads of the machine run or wait for a processor, over the last second or so; 0 if that is not known.
func runnable() float64 {
	const samples = 10
	sum := 0
	for range samples {
		load, err := os.ReadFile("/proc/loadavg") // "0.20 0.18 0.12 1/80 11206"
		fields := strings.Fields(string(load))
		if err != nil || len(fields) < 4 {
			return 0
		}
		running, _, _ := strings.Cut(fields[3], "/")
		n, _ := strconv.Atoi(running)
		sum += n
		time.Sleep(time.Second / samples)
	}
	return float64(sum) / samples
}
