package anylock_test

import (
	"context"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/backend/memory"
)

// yes is a backend that keeps nothing: what is measured with it is the core alone.
type yes struct{}

func (y *yes) Acquire(_ context.Context, r anylock.Request) (anylock.Grant, error) {
	return anylock.Grant{Name: r.Name, ID: r.ID, Token: 1, TTL: r.TTL, From: time.Now()}, nil
}

func (*yes) Watch(context.Context, string) (<-chan struct{}, error) { return nil, nil }

func (*yes) Renew(_ context.Context, g []anylock.Grant) []anylock.Renewal {
	renewals := make([]anylock.Renewal, len(g))
	for i := range renewals {
		renewals[i] = anylock.Renewal{From: time.Now(), TTL: g[i].TTL}
	}
	return renewals
}

func (*yes) Release(_ context.Context, g []anylock.Grant) []error { return make([]error, len(g)) }

func (*yes) Describe() anylock.Description {
	return anylock.Description{Name: "yes", MinTTL: 1, MaxTTL: time.Hour, MaxBatch: 500, Deadlines: true}
}

func (*yes) Close() error { return nil }

// BenchmarkCore is what the core adds to the store's own time: allocations and CPU of one acquire and release.
func BenchmarkCore(b *testing.B) {
	l, err := anylock.New(new(yes))
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close(bg)
	b.ReportAllocs()
	var n atomic.Int32
	b.RunParallel(func(p *testing.PB) {
		name := "x" + strconv.Itoa(int(n.Add(1)))
		for p.Next() {
			lease, err := l.Acquire(bg, name)
			if err != nil {
				b.Fatal(err)
			}
			if err := lease.Release(bg); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkMemory(b *testing.B) {
	l, err := anylock.New(memory.NewStore(anylock.WakeQueue).Client())
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close(bg)
	for b.Loop() {
		lease, err := l.Acquire(bg, "x")
		if err != nil {
			b.Fatal(err)
		}
		if err := lease.Release(bg); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHeldLeases holds 100,000 leases and reports what each costs in this process.
func BenchmarkHeldLeases(b *testing.B) {
	const n = 100_000
	for b.Loop() {
		l, err := anylock.New(new(yes))
		if err != nil {
			b.Fatal(err)
		}
		names := make([]string, n)
		leases := make([]*anylock.Lease, n)
		for i := range names {
			names[i] = "order/" + strconv.Itoa(i)
		}
		var before, after runtime.MemStats
		goroutines := runtime.NumGoroutine()
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range leases {
			if leases[i], err = l.Acquire(bg, names[i]); err != nil {
				b.Fatal(err)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "B/lease")
		b.ReportMetric(float64(runtime.NumGoroutine()-goroutines), "goroutines")
		if err := l.Close(bg); err != nil {
			b.Fatal(err)
		}
	}
}
