package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// testsOf reads the names of a package's tests, of all kinds that go test -run chooses from.
func testsOf(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		syntax, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range syntax.Decls {
			f, ok := d.(*ast.FuncDecl)
			if ok && f.Recv == nil && f.Name.Name != "TestMain" && regexp.MustCompile("^(Test|Example|Fuzz)").MatchString(f.Name.Name) {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names
}

func TestEveryTestIsInOneShard(t *testing.T) {
	list, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.ImportPath}} {{.Dir}}", module+"/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	dirs := map[string]string{}
	var packages []string
	for line := range strings.Lines(string(list)) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		packages = append(packages, path)
		dirs[path] = dir
	}

	shards := plan(packages)
	chosen := map[string]int{}
	for path, dir := range dirs {
		for _, name := range testsOf(t, dir) {
			var in []string
			for _, s := range shards {
				if s.runs(path, name) {
					in = append(in, s.name)
					chosen[s.name]++
				}
			}
			if len(in) != 1 {
				t.Errorf("%s %s is in the shards %q, want one", path, name, in)
			}
		}
	}
	for _, s := range shards {
		if chosen[s.name] == 0 {
			t.Errorf("shard %s has no test: is %q still the name of one?", s.name, s.only)
		}
	}
}

// runs says what go test does with the arguments of the shard.
func (s shard) runs(path, name string) bool {
	return slices.Contains(s.packages, path) &&
		(s.only == "" || regexp.MustCompile(s.only).MatchString(name)) &&
		(len(s.not) == 0 || !regexp.MustCompile(strings.Join(s.not, "|")).MatchString(name))
}
