package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// outcome is how a shard ended.
type outcome struct {
	shard          string
	passed, failed int
	skipped        map[string]int // by reason
	took           time.Duration
	broken         string       // why it failed although no test did
	log            bytes.Buffer // what is shown of it

	verbose bool
	tests   map[test]*record
	outside bytes.Buffer // what no test has printed: of compilers, packages and go test itself
}

// test names a test.
type test struct{ Package, Name string }

// record is what is known of a test.
type record struct {
	result      string // "pass", "fail" or "skip"; empty if a panic or a time-out cut it off
	output      bytes.Buffer
	hasSubtests bool
	failedBelow bool // a subtest of it has failed
}

var errInterrupted = errors.New("interrupted")

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
}

func (s shard) run(ctx context.Context, flags []string) *outcome {
	o := newOutcome(s.name, has(flags, "v"))
	start := time.Now()
	command := exec.CommandContext(ctx, "go", s.args(flags)...)
	inGroup(command)
	command.WaitDelay = 10 * time.Second
	var stderr bytes.Buffer
	command.Stderr = &stderr
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
	o.outside.Write(stderr.Bytes())
	if ctx.Err() != nil {
		err = errInterrupted
	}
	o.count(err)
	return o
}

func newOutcome(name string, verbose bool) *outcome {
	return &outcome{shard: name, verbose: verbose, skipped: map[string]int{}, tests: map[test]*record{}}
}

// read takes the events of go test -json.
func (o *outcome) read(events io.Reader) {
	for decoder := json.NewDecoder(events); ; {
		var e event
		if err := decoder.Decode(&e); err != nil {
			return
		}
		if o.verbose {
			o.log.WriteString(e.Output)
		}
		if e.Test == "" {
			o.outside.WriteString(e.Output)
			continue
		}
		r := o.record(test{e.Package, e.Test})
		r.output.WriteString(e.Output)
		switch e.Action {
		case "run":
			if parent, isSubtest := above(e.Test); isSubtest {
				o.record(test{e.Package, parent}).hasSubtests = true
			}
		case "pass", "fail", "skip":
			r.result = e.Action
		}
	}
}

func (o *outcome) record(id test) *record {
	if o.tests[id] == nil {
		o.tests[id] = new(record)
	}
	return o.tests[id]
}

// above is the name of the test that a subtest belongs to.
func above(name string) (parent string, isSubtest bool) {
	i := strings.LastIndexByte(name, '/')
	return name[:max(i, 0)], i >= 0
}

// count counts the tests that have no subtests, and of the others those that failed by themselves. end is how go test ended.
func (o *outcome) count(end error) {
	for id, r := range o.tests {
		for parent, below := above(id.Name); below && r.result != "pass" && r.result != "skip"; parent, below = above(parent) {
			o.record(test{id.Package, parent}).failedBelow = true
		}
	}
	inOrder := func(a, b test) int { return cmp.Or(cmp.Compare(a.Package, b.Package), cmp.Compare(a.Name, b.Name)) }
	for _, id := range slices.SortedFunc(maps.Keys(o.tests), inOrder) {
		r := o.tests[id]
		switch r.result {
		case "pass", "skip":
			if r.hasSubtests {
				continue
			}
			if r.result == "pass" {
				o.passed++
			} else {
				o.skipped[reason(r.output.String())]++
			}
		default:
			if r.result == "" && errors.Is(end, errInterrupted) {
				continue
			}
			if !r.failedBelow {
				o.failed++
			}
			if !o.verbose && (!r.failedBelow || !saysNothing(r.output.String())) {
				fmt.Fprintf(&o.log, "--- FAIL: %s %s\n%s\n", id.Package, id.Name, r.output.String())
			}
		}
	}
	if end != nil && o.failed == 0 {
		o.broken = end.Error()
	}
	if end == nil && o.passed == 0 && len(o.skipped) == 0 {
		o.broken = "no test was run"
	}
	if !o.ok() && !errors.Is(end, errInterrupted) {
		o.log.Write(o.outside.Bytes())
	}
}

// saysNothing reports whether there is nothing in a test's output but that it ran.
func saysNothing(output string) bool {
	for line := range strings.Lines(output) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			return false
		}
	}
	return true
}

// reason is what a test said last before it was skipped, without the line that it said it at.
func reason(output string) string {
	text := "no reason given"
	for line := range strings.Lines(output) {
		if file, said, found := strings.Cut(strings.TrimSpace(line), ": "); found && strings.Contains(file, ".go:") {
			text = said
		}
	}
	return text
}

func (o *outcome) ok() bool { return o.failed == 0 && o.broken == "" }

func (o *outcome) skips() (n int) {
	for _, k := range o.skipped {
		n += k
	}
	return n
}
