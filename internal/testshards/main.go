// Command testshards runs all tests of this module, divided into shards that run side by side as processes of their own:
// most tests wait for servers, so that the waiting overlaps, and the checks for leaked goroutines of one do not see another.
//
//	go run ./internal/testshards [-at-once N] [-shards PREFIX] [flags of go test]
//
// It prints a line for each shard as it ends, all that a failed test has printed, and a table. With -run among the flags
// there is one shard, since the caller has chosen already.
package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"
)

func main() {
	atOnce := flag.Int("at-once", 6, "how many shards run at the same time")
	only := flag.String("shards", "", "run only the shards whose name begins with this")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := run(ctx, *atOnce, *only, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "testshards:", err)
	}
	if err != nil || !ok {
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, atOnce int, only string, flags []string) (ok bool, err error) {
	list, err := exec.CommandContext(ctx, "go", "list", "./...").Output()
	if err != nil {
		return false, fmt.Errorf("go list: %w", err)
	}
	packages := strings.Fields(string(list))
	shards := plan(packages)
	if slices.ContainsFunc(flags, func(f string) bool {
		return strings.TrimLeft(f, "-") == "run" || strings.HasPrefix(strings.TrimLeft(f, "-"), "run=")
	}) {
		shards = []shard{{name: "chosen", packages: packages}}
	}
	shards = slices.DeleteFunc(shards, func(s shard) bool { return !strings.HasPrefix(s.name, only) })
	start := time.Now()
	// Once, before the shards would compile the same side by side. What does not compile is told by its shard.
	_ = exec.CommandContext(ctx, "go", append(append([]string{"test", "-c", "-o", os.DevNull}, flags...), packages...)...).Run()
	fmt.Printf("%d shards, %d at once\n", len(shards), atOnce)

	outcomes := make([]*outcome, len(shards))
	places := make(chan struct{}, max(atOnce, 1))
	var running sync.WaitGroup
	var printing sync.Mutex
	for i, s := range shards {
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			outcomes[i] = s.run(ctx, flags)
			printing.Lock()
			defer printing.Unlock()
			outcomes[i].report()
		})
	}
	running.Wait()
	return table(outcomes, time.Since(start)), ctx.Err()
}

// table prints what each shard has done, and the sum in a line of its own.
func table(outcomes []*outcome, took time.Duration) (ok bool) {
	ok = true
	passed, failed, skipped := 0, 0, 0
	fmt.Println()
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "shard\tpassed\tfailed\tskipped\tseconds\twhy skipped")
	for _, o := range outcomes {
		ok = ok && o.ok()
		passed += o.passed
		failed += o.failed
		skipped += o.skips()
		var why []string
		for _, reason := range slices.Sorted(maps.Keys(o.skipped)) {
			why = append(why, fmt.Sprintf("%d: %s", o.skipped[reason], reason))
		}
		if o.broken != "" {
			why = append(why, o.broken)
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%.0f\t%s\n", o.shard, o.passed, o.failed, o.skips(), o.took.Seconds(), strings.Join(why, "; "))
	}
	_ = w.Flush()
	fmt.Printf("\nall of it took %.0f s\n%d passed, %d failed, %d skipped\n", took.Seconds(), passed, failed, skipped)
	return ok
}
