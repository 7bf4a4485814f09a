package anylock_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/anylock/anylock/conformance"
)

var update = flag.Bool("update", false, "write the generated parts of the documentation")

// TestContributing compares the table of faults in CONTRIBUTING.md with the suite's own.
func TestContributing(t *testing.T) {
	var table strings.Builder
	table.WriteString("| | Seen at | What went wrong there | Checked by |\n|---|---|---|---|\n")
	for _, s := range conformance.Scenarios() {
		checks := make([]string, 0, len(s.Cases)+1)
		for _, c := range s.Cases {
			checks = append(checks, "`"+c+"`")
		}
		if s.Else != "" {
			checks = append(checks, s.Else)
		}
		fmt.Fprintf(&table, "| %s | %s | %s | %s |\n", s.ID, s.Seen, s.Fault, strings.Join(checks, ", "))
	}
	generated(t, "CONTRIBUTING.md", "scenarios", table.String())
}

// generated checks the part of a file between two marks, or writes it with -update.
func generated(t *testing.T, file, mark, want string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+mark+" -->\n", "<!-- end of "+mark+" -->\n"
	before, rest, ok := strings.Cut(string(text), begin)
	got, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no %s ... %s", file, begin, end)
	}
	if got == want {
		return
	}
	if !*update {
		t.Fatalf("the part %q of %s is not up to date; run go test . -run %s -update", mark, file, t.Name())
	}
	if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
