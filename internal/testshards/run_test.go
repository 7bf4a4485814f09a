package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"
)

// sample is a module with a test of each outcome.
const sample = `package sample

import "testing"

func TestPasses(t *testing.T) {
	t.Run("one", func(*testing.T) {})
	t.Run("two", func(t *testing.T) { t.Log("said before"); t.Skip("needs a server") })
}

func TestFails(t *testing.T) {
	t.Run("below", func(t *testing.T) {
		t.Run("one", func(t *testing.T) { t.Error("the reason") })
		t.Run("two", func(*testing.T) {})
	})
}

func TestFailsAfterItsSubtests(t *testing.T) {
	t.Run("one", func(*testing.T) {})
	t.Error("the other reason")
}

func TestPanics(t *testing.T) {
	t.Run("below", func(*testing.T) { panic("the panic") })
}

func TestComesTooLate(*testing.T) {}
`

// runSample runs a shard of the sample.
func runSample(t *testing.T, s shard, flags ...string) *outcome {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"go.mod": "module sample\n\ngo 1.26\n", "sample_test.go": sample} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.name, s.packages = "sample", []string{"sample"}
	return s.run(t.Context(), flags)
}

func (o *outcome) printed() string {
	var out bytes.Buffer
	o.report(&out)
	table(&out, []*outcome{o}, time.Second)
	return out.String()
}

func TestOutcomes(t *testing.T) {
	o := runSample(t, shard{})
	if o.passed != 3 || o.failed != 3 || o.skips() != 1 || o.ok() {
		t.Errorf("%d passed, %d failed, %d skipped, ok is %v", o.passed, o.failed, o.skips(), o.ok())
	}
	printed := o.printed()
	for _, want := range []string{
		"--- FAIL: sample TestFails/below/one\n", "the reason", "the other reason", "the panic",
		"FAIL\tsample", "1: needs a server\n", "\n3 passed, 3 failed, 1 skipped\n",
	} {
		if !strings.Contains(printed, want) {
			t.Errorf("%q is missing in what was printed:\n%s", want, printed)
		}
	}
}

func TestPassing(t *testing.T) {
	o := runSample(t, shard{only: "^TestPasses$"})
	if printed := o.printed(); !o.ok() || !strings.HasPrefix(printed, "ok  \tsample") || strings.Contains(printed, "said before") {
		t.Errorf("ok is %v, and this was printed:\n%s", o.ok(), printed)
	}
	o = runSample(t, shard{only: "^TestPasses$"}, "-v")
	if printed := o.printed(); !o.ok() || !strings.Contains(printed, "said before") {
		t.Errorf("with -v, ok is %v, and this was printed:\n%s", o.ok(), printed)
	}
}

func TestSkipAmongTheFlags(t *testing.T) {
	o := runSample(t, shard{not: []string{"^TestPanics$"}}, "-skip=^TestFails")
	if o.passed != 2 || !o.ok() { // TestPasses/one and TestComesTooLate
		t.Errorf("%d passed, ok is %v, want 2 and true:\n%s", o.passed, o.ok(), o.printed())
	}
}

func TestNothingIsAFailure(t *testing.T) {
	if o := runSample(t, shard{only: "^TestRenamed$"}); o.ok() {
		t.Error("a shard that runs no test is well")
	}
	if o := runSample(t, shard{}, "-nosuchflag"); o.ok() || !strings.Contains(o.printed(), "nosuchflag") {
		t.Errorf("an error of go test itself is well, or not told:\n%s", o.printed())
	}
}
