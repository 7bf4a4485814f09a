package redis

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anylock/anylock"
)

// BenchmarkLocker is an acquire and a release through the whole library, beside the floor of the same run: the same two
// scripts called bare through the same client. x-of-floor is the rate as a part of the floor's rate.
func BenchmarkLocker(b *testing.B) {
	client := benchClient(b)
	l := benchLocker(b, client)
	ctx := context.Background()
	for _, goroutines := range []int{1, 64} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			var floor, locked time.Duration
			rounds := max(b.N/100, 1)
			b.ResetTimer()
			for range rounds { // in turns, so that both meet the same weather
				floor += spread(b, goroutines, 100, func(name string) error { return bare(ctx, client, name) })
				locked += spread(b, goroutines, 100, func(name string) error {
					lease, err := l.Acquire(ctx, name)
					if err != nil {
						return err
					}
					return lease.Release(ctx)
				})
			}
			perOp := func(d time.Duration) float64 {
				return float64(d.Microseconds()) / float64(rounds*max(100/goroutines, 1)*goroutines)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(perOp(floor), "floor-µs")
			b.ReportMetric(perOp(locked), "anylock-µs")
			b.ReportMetric(float64(floor)/float64(locked), "x-of-floor")
		})
	}
}

// BenchmarkHandOver has 16 clients, each with connections of its own, take turns that last 2 ms. The floor is what one
// client needs between a release and its own next acquire.
func BenchmarkHandOver(b *testing.B) {
	const clients, hold = 16, 2 * time.Millisecond
	ctx := context.Background()
	floorClient := benchClient(b)
	var lockers []*anylock.Locker
	for range clients {
		lockers = append(lockers, benchLocker(b, benchClient(b)))
	}
	var gaps, floors []time.Duration
	var wins [clients]int
	b.ResetTimer()
	for range b.N {
		floorStart := time.Now()
		for range 100 {
			if err := bare(ctx, floorClient, "floor"); err != nil {
				b.Fatal(err)
			}
			floors = append(floors, time.Since(floorStart))
			floorStart = time.Now()
		}
		var mu sync.Mutex
		var left atomic.Int64
		left.Store(400)
		var freed time.Time
		last := -1
		var all sync.WaitGroup
		for i, l := range lockers {
			all.Go(func() {
				for left.Add(-1) >= 0 {
					lease, err := l.Acquire(ctx, "turn")
					now := time.Now()
					if err != nil {
						b.Error(err)
						return
					}
					mu.Lock()
					if last >= 0 && last != i {
						gaps = append(gaps, now.Sub(freed))
					}
					last = i
					wins[i]++
					mu.Unlock()
					time.Sleep(hold)
					mu.Lock()
					freed = time.Now()
					mu.Unlock()
					if err := lease.Release(ctx); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
	}
	total := 0
	for _, n := range wins {
		total += n
	}
	mean := float64(total) / clients
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ms(quantile(floors, 0.5)), "floor-p50-ms")
	b.ReportMetric(ms(quantile(gaps, 0.5)), "p50-ms")
	b.ReportMetric(ms(quantile(gaps, 0.99)), "p99-ms")
	b.ReportMetric(float64(slices.Min(wins[:]))/mean, "fewest-wins/mean")
	b.ReportMetric(float64(slices.Max(wins[:]))/mean, "most-wins/mean")
}

// BenchmarkHold holds 100,000 leases for three renewals and reports how many were renewed in time.
func BenchmarkHold(b *testing.B) {
	const n = 100_000
	ctx := context.Background()
	l := benchLocker(b, benchClient(b), anylock.WithTTL(30*time.Second))
	for range b.N {
		leases := make([]*anylock.Lease, n)
		start := time.Now()
		spreadOver(b, 64, n, func(i int) (err error) {
			leases[i], err = l.Acquire(ctx, "hold/"+strconv.Itoa(i))
			return err
		})
		b.ReportMetric(time.Since(start).Seconds(), "s-to-acquire")
		time.Sleep(40 * time.Second)
		lost, late := 0, 0
		for _, lease := range leases {
			if lease.Err() != nil {
				lost++
			} else if time.Until(lease.Deadline()) < 27*time.Second-30*time.Second/3-2*time.Second {
				late++ // its last renewal is older than the interval and two seconds
			}
		}
		b.ReportMetric(float64(lost), "lost")
		b.ReportMetric(float64(late), "late")
		start = time.Now()
		spreadOver(b, 64, n, func(i int) error { return leases[i].Release(ctx) })
		b.ReportMetric(time.Since(start).Seconds(), "s-to-release")
	}
}

func benchClient(b *testing.B) *redis.Client { return rawClient(b, shared(b)) }

func benchLocker(b *testing.B, client redis.UniversalClient, opts ...anylock.Option) *anylock.Locker {
	b.Helper()
	backend, err := New(client, WithPrefix(b.Name()+":"))
	if err != nil {
		b.Fatal(err)
	}
	l, err := anylock.New(backend, opts...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

// bare calls the two scripts and does nothing else.
func bare(ctx context.Context, client *redis.Client, name string) error {
	k := keysFor("bare:", name)
	id := newID() // a lock of any kind needs one
	if _, err := acquireScript.run(ctx, client, call{keys: []string{k.lock, k.counter}, args: []any{id, 30000, 0, "", 3600000}}); err != nil {
		return err
	}
	_, err := releaseScript.run(ctx, client, call{keys: []string{k.lock, k.counter}, args: []any{id, k.channel, 3600000}})
	return err
}

// spread does so many operations on several goroutines, each with a name of its own, and returns how long it took.
func spread(b *testing.B, goroutines, operations int, do func(name string) error) time.Duration {
	b.Helper()
	each := max(operations/goroutines, 1)
	start := time.Now()
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			name := "bench/" + strconv.Itoa(g)
			for range each {
				if err := do(name); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return time.Since(start)
}

func spreadOver(b *testing.B, goroutines, n int, do func(i int) error) {
	b.Helper()
	var next atomic.Int64
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

func quantile[T cmp.Ordered](values []T, q float64) (v T) {
	if len(values) == 0 {
		return v
	}
	slices.Sort(values)
	return values[int(float64(len(values)-1)*q)]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
