package conformance

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// collected are the numbers of the collection of faults.
const collected = `2 4 6 8 10 11 13 15 17 19 20 22 24 26 27 29 31 33 35 37 39 41 42 44 45 48 49 51 53 54 57 59 61 63 65 67 69 71 73
75 76 78 80 82 84 87 89 90 92 94 96 98 100 101 104 106 108 110 112 114 116 118 120 122 124 126 128 130 132 134 136 139 141 142`

func TestEachScenarioIsMapped(t *testing.T) {
	var want []string
	for n := range strings.FieldsSeq(collected) {
		if len(n) == 1 {
			n = "0" + n
		}
		want = append(want, "B"+n)
	}
	var got []string
	for _, s := range Scenarios() {
		got = append(got, s.ID)
		if len(s.Cases) == 0 && s.Else == "" {
			t.Errorf("%s is checked by nothing, and nothing says why", s.ID)
		}
		for _, name := range s.Cases {
			caseNamed(t, name)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the scenarios are\n%v, want\n%v", got, want)
	}
}

// TestCasesNameTheirScenarios compares the comments at the cases with the table.
func TestCasesNameTheirScenarios(t *testing.T) {
	inTable := map[string][]string{}
	for _, s := range Scenarios() {
		for _, name := range s.Cases {
			short := name[strings.IndexByte(name, '/')+1:]
			inTable[short] = append(inTable[short], s.ID)
		}
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^\t\tname: +"([^"]+)",(?: // (B[B0-9 ]+))?$`)
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range line.FindAllStringSubmatch(string(src), -1) {
			if got, want := strings.Join(inTable[m[1]], " "), m[2]; got != want {
				t.Errorf("%s: case %s says %q, the table says %q", file, m[1], want, got)
			}
		}
	}
}
