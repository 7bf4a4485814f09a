package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/conformance/containers"
)

func TestMemory(t *testing.T) {
	sells(t, "-lock", "memory://test")
}

func TestRedis(t *testing.T) {
	url := containers.Redis(t).URL()
	sells(t, "-lock", url, "-stock", url, "-buyers", "1000")
}

// sells checks both halves of the story.
func sells(t *testing.T, args ...string) {
	t.Helper()
	var out strings.Builder
	if err := run(t.Context(), args, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	t.Log(out.String())
	var without, with []string
	for line := range strings.Lines(out.String()) {
		fields := strings.Fields(line)
		switch {
		case strings.Contains(line, "without a lock"):
			without = fields[3:]
		case strings.Contains(line, "with anylock") && len(fields) == 7:
			with = fields[2:]
		}
	}
	if without == nil || without[1] == "0" {
		t.Errorf("without a lock nothing was oversold: %q", without)
	}
	if with == nil || with[0] != "100" || with[1] != "0" {
		t.Errorf("with a lock: %q", with)
	}
	if !strings.HasSuffix(out.String(), "with anylock: sold 100, oversold 0\n") {
		t.Error("the last line does not say so")
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{
		{"-lock", "redsi://localhost"}, {"-lock", "memory://?tll=1s"}, {"-stock", "file://x"}, {"-buyers", "0"}, {"extra"},
	} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
	err := run(t.Context(), []string{"-lock", "redis://user:s3cret@localhost:1", "-buyers", "1"}, io.Discard, io.Discard)
	if !errors.Is(err, anylock.ErrUnavailable) || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("a server that is not there: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ctx, nil, io.Discard, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("after an interrupt: %v", err)
	}
}
