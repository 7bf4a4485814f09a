// Command testshards runs all tests of this module, divided into shards that run side by side as processes of their own:
// most tests wait for servers, so that the waiting overlaps, and the checks for leaked goroutines of one do not see another.
//
//	go run ./internal/testshards [-at-once N] [-shards PREFIX] [flags of go test]
//
// It prints a line for each shard as it ends, all that a failed test has printed, and a table. With -run or -bench among
// the flags there is one shard, since the caller has chosen already; with -v all output is shown.
package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	atOnce := flag.Int("at-once", 6, "how many shards run at the same time, if the machine is not busy")
	only := flag.String("shards", "", "run only the shards whose name begins with this")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := run(ctx, *atOnce, *only, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testshards:", err)
	}
	if err != nil || !ok {
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
	if has(flags, "run") || has(flags, "bench") {
		shards = []shard{{name: "chosen", packages: packages}}
	}
	shards = slices.DeleteFunc(shards, func(s shard) bool { return !strings.HasPrefix(s.name, only) })
	if len(shards) == 0 {
		return false, fmt.Errorf("the name of no shard begins with %q", only)
	}

	removeContainers, err := markContainers()
	if err != nil {
		return false, err
	}
	defer removeContainers()

	start := time.Now()
	// Once, before the shards would compile the same side by side. What does not compile is told by its shard.
	_ = exec.CommandContext(ctx, "go", slices.Concat([]string{"test", "-c", "-o", os.DevNull}, flags, packages)...).Run()
	fmt.Printf("%d shards, up to %d at once\n", len(shards), atOnce)

	outcomes := make([]*outcome, len(shards))
	places := make(chan struct{}, max(atOnce, 1))
	var running sync.WaitGroup
	var printing sync.Mutex
	for i, s := range shards {
		places <- struct{}{}
		pace(ctx, func() bool { return len(places) == 1 })
		running.Go(func() {
			defer func() { <-places }()
			outcomes[i] = s.run(ctx, flags)
			printing.Lock()
			defer printing.Unlock()
			outcomes[i].report(os.Stdout)
		})
	}
	running.Wait()
	ok = table(os.Stdout, outcomes, time.Since(start))
	if ctx.Err() != nil {
		err = errInterrupted
	}
	return ok, err
}

// has reports whether a flag of go test is among flags, as -name, -name=value or with two dashes.
func has(flags []string, name string) bool { return index(flags, name) >= 0 }

// value is what a flag is given, as -name=value or -name value, or "".
func value(flags []string, name string) string {
	i := index(flags, name)
	if i < 0 {
		return ""
	}
	_, value, found := strings.Cut(flags[i], "=")
	if !found && i+1 < len(flags) {
		value = flags[i+1]
	}
	return value
}

func index(flags []string, name string) int {
	return slices.IndexFunc(flags, func(f string) bool {
		given, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(f, "-"), "-"), "=")
		return strings.HasPrefix(f, "-") && given == name
	})
}

// markContainers lets the containers of this run carry a label (see conformance/containers). The function that it returns
// removes those that are left: a test process that is interrupted, panics or runs out of time removes none.
func markContainers() (remove func(), err error) {
	id := rand.Text()
	return func() {
		ids, err := exec.CommandContext(context.Background(), "docker", "ps", "--all", "--quiet", "--filter", "label=anylock.test.run="+id).Output()
		left := strings.Fields(string(ids))
		if err != nil || len(left) == 0 {
			return // most often there is no docker, so that nothing was started
		}
		if out, err := exec.CommandContext(context.Background(), "docker", append([]string{"rm", "--force", "--volumes"}, left...)...).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "testshards: remove containers: %v\n%s", err, out)
		}
	}, os.Setenv("ANYLOCK_TEST_RUN", id)
}
