package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// outcome is how a shard ended.
type outcome struct {
	shard           string
	passed, failed  int
	skipped         map[string]int // by reason
	took            time.Duration
	broken          string // why it failed although no test did
	failures        bytes.Buffer
	outputs         map[test]*bytes.Buffer
	hasSubtests     map[test]bool
	results         map[test]string
	buildAndPackage bytes.Buffer
}

// test names a test; Name is empty for what a package prints itself.
type test struct{ Package, Name string }

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
}

func (s shard) run(ctx context.Context, flags []string) *outcome {
	o := &outcome{
		shard: s.name, skipped: map[string]int{},
		outputs: map[test]*bytes.Buffer{}, hasSubtests: map[test]bool{}, results: map[test]string{},
	}
	start := time.Now()
	command := exec.CommandContext(ctx, "go", s.args(flags)...)
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGINT) }
	command.WaitDelay = 30 * time.Second
	command.Stderr = &o.buildAndPackage
	stdout, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		o.broken = err.Error()
		return o
	}
	o.read(stdout)
	err = command.Wait()
	o.took = time.Since(start)
	o.count()
	switch {
	case err != nil && o.failed == 0:
		o.broken = fmt.Sprintf("go test: %v", err)
		o.failures.Write(o.buildAndPackage.Bytes())
	case err == nil && o.passed == 0 && len(o.skipped) == 0:
		o.broken = "no test was run"
	case o.failed > 0:
		o.failures.Write(o.buildAndPackage.Bytes())
	}
	return o
}

func (o *outcome) read(stdout io.Reader) {
	for decoder := json.NewDecoder(stdout); ; {
		var e event
		if err := decoder.Decode(&e); err != nil {
			return
		}
		id := test{e.Package, e.Test}
		switch e.Action {
		case "run":
			if i := strings.LastIndexByte(e.Test, '/'); i >= 0 {
				o.hasSubtests[test{e.Package, e.Test[:i]}] = true
			}
		case "output", "build-output":
			if e.Test == "" {
				o.buildAndPackage.WriteString(e.Output)
				continue
			}
			if o.outputs[id] == nil {
				o.outputs[id] = new(bytes.Buffer)
			}
			o.outputs[id].WriteString(e.Output)
		case "pass", "fail", "skip":
			if e.Test != "" {
				o.results[id] = e.Action
			}
		}
	}
}

// count counts the tests that have no subtests, and those with which failed by themselves.
func (o *outcome) count() {
	failedBelow := map[test]bool{}
	for id, result := range o.results {
		for name := id.Name; result == "fail"; {
			i := strings.LastIndexByte(name, '/')
			if i < 0 {
				break
			}
			name = name[:i]
			failedBelow[test{id.Package, name}] = true
		}
	}
	for id := range o.outputs {
		if _, ended := o.results[id]; !ended { // a panic or a time-out cut it off
			o.results[id] = "fail"
		}
	}
	for id, result := range o.results {
		if o.hasSubtests[id] && (result != "fail" || failedBelow[id]) {
			continue
		}
		switch result {
		case "pass":
			o.passed++
		case "skip":
			o.skipped[reason(o.outputs[id].String())]++
		case "fail":
			o.failed++
			fmt.Fprintf(&o.failures, "--- FAIL: %s %s\n%s\n", id.Package, id.Name, o.outputs[id])
		}
	}
}

// reason is what a test said when it was skipped, without the line that it said it at.
func reason(output string) string {
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if file, text, found := strings.Cut(line, ": "); found && strings.Contains(file, ".go:") {
			return text
		}
	}
	return "no reason given"
}

func (o *outcome) ok() bool { return o.failed == 0 && o.broken == "" }

func (o *outcome) skips() (n int) {
	for _, k := range o.skipped {
		n += k
	}
	return n
}

// report prints a line of progress, and all that is known of what failed.
func (o *outcome) report() {
	verdict := "ok  "
	if !o.ok() {
		verdict = "FAIL"
		_, _ = os.Stdout.Write(o.failures.Bytes())
	}
	fmt.Printf("%s %-18s %4d passed, %d failed, %d skipped in %.0f s %s\n", verdict, o.shard, o.passed, o.failed, o.skips(), o.took.Seconds(), o.broken)
}
