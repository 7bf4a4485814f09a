package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMutantsApply(t *testing.T) {
	if len(mutants) < 30 {
		t.Errorf("%d mutants, want 30 at least", len(mutants))
	}
	for _, m := range mutants {
		text, err := os.ReadFile(filepath.Join("..", "..", m.file))
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := m.apply(text); err != nil {
			t.Error(err)
		}
		if !declared(t, m) {
			t.Errorf("%s: there is no %s in %s", m.fault, m.caught, m.pkg)
		}
	}
}

// declared reports whether the test that is to notice a mutant is there.
func declared(t *testing.T, m mutant) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", m.pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	name, _, _ := strings.Cut(m.caught, "/")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "func "+name+"(t *testing.T)") {
			return true
		}
	}
	return false
}
