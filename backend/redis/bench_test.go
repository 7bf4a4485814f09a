package redis

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anylock/anylock"
)

// BenchmarkBackend compares acquire and release through a Backend with the same two scripts called bare, over the same
// client and in turns, so that what the machine does meanwhile hits both. The ratio is what counts.
func BenchmarkBackend(b *testing.B) {
	server := shared(b)
	for _, goroutines := range []int{1, 64} {
		b.Run(fmt.Sprint("goroutines=", goroutines), func(b *testing.B) {
			client := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true, PoolSize: goroutines})
			defer client.Close()
			backend := over(b, client)
			through := func(name string) {
				mustRelease(b, backend, mustAcquire(b, backend, request(name, newID())))
			}
			bare := func(name string) {
				k := keysFor("lock:", name)
				keys, id := []string{k.lock, k.counter}, newID()
				if err := client.EvalSha(b.Context(), acquireScript.sha, keys, id, 10000, 0, "test", 3600000).Err(); err != nil {
					b.Error(err)
				}
				if err := client.EvalSha(b.Context(), releaseScript.sha, keys, id, k.channel, 3600000, "bare").Err(); err != nil {
					b.Error(err)
				}
			}
			through("warm")
			inTurns(b, goroutines, through, bare)
		})
	}
}

// inTurns runs both sides b.N times each, in rounds, and reports their times and the ratio.
func inTurns(b *testing.B, goroutines int, ours, theirs func(name string)) {
	b.Helper()
	round := func(n int, do func(string)) time.Duration {
		start := time.Now()
		var all sync.WaitGroup
		for i := range goroutines {
			all.Go(func() {
				name := fmt.Sprint("bench", i)
				for k := i; k < n; k += goroutines {
					do(name)
				}
			})
		}
		all.Wait()
		return time.Since(start)
	}
	round(4*goroutines, ours)
	round(4*goroutines, theirs)
	const rounds = 100
	var sum [2]time.Duration
	each := max(b.N/rounds, goroutines)
	b.ResetTimer()
	for i := range rounds {
		if i%2 == 0 {
			sum[0] += round(each, ours)
			sum[1] += round(each, theirs)
		} else {
			sum[1] += round(each, theirs)
			sum[0] += round(each, ours)
		}
	}
	pairs := float64(each * rounds)
	b.ReportMetric(float64(sum[0].Nanoseconds())/pairs, "ns/backend")
	b.ReportMetric(float64(sum[1].Nanoseconds())/pairs, "ns/bare")
	b.ReportMetric(float64(sum[0])/float64(sum[1]), "backend/bare")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkRenew renews a full batch in one pipeline.
func BenchmarkRenew(b *testing.B) {
	backend := open(b, shared(b).URL())
	grants := make([]anylock.Grant, maxBatch)
	for i := range grants {
		req := request(fmt.Sprint("renew", i), newID())
		req.TTL = time.Minute
		grants[i] = mustAcquire(b, backend, req)
	}
	for b.Loop() {
		for _, r := range backend.Renew(b.Context(), grants) {
			if r.Err != nil {
				b.Fatal(r.Err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/maxBatch, "ns/lease")
	backend.Release(b.Context(), grants)
}
