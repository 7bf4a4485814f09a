package conformance

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
)

// load is how many threads of this machine run or wait for a processor, on average.
type load struct{ sum, samples atomic.Int64 }

func (l *load) sample() {
	text, err := os.ReadFile("/proc/loadavg") // "0.20 0.18 0.12 1/80 11206"
	fields := strings.Fields(string(text))
	if err != nil || len(fields) < 4 {
		return // not known: the machine counts as quiet
	}
	running, _, _ := strings.Cut(fields[3], "/")
	n, _ := strconv.ParseInt(running, 10, 64)
	l.sum.Add(n)
	l.samples.Add(1)
}

// high reports whether each processor was wanted by more than two: a store on this machine then answers when it can, also
// later than a lease lasts.
func (l *load) high() bool {
	return l.sum.Load() > 2*int64(runtime.NumCPU())*l.samples.Load()
}
