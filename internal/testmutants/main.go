// Command testmutants breaks the code in one place at a time and checks that the test named for it fails: a test that
// nothing makes fail is none.
//
//	go run ./internal/testmutants [-only TEXT]
//
// Each mutant is applied in a copy of the module. A mutant that survives, or that does not apply any more, fails the
// command. It takes some minutes and needs the test servers, so it is run by hand and not in CI.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
)

func main() {
	only := flag.String("only", "", "try only the mutants whose file or fault contains this")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *only)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testmutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string) error {
	dir, err := copyModule(ctx)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	caught, survived := 0, 0
	honest := map[string]error{} // how a test goes without a fault
	for _, m := range mutants {
		if !strings.Contains(m.file+" "+m.fault, only) {
			continue
		}
		if _, known := honest[m.pkg+m.caught]; !known {
			honest[m.pkg+m.caught] = m.passes(ctx, dir)
		}
		err := honest[m.pkg+m.caught]
		if err == nil {
			err = m.try(ctx, dir)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			survived++
			fmt.Printf("SURVIVES\t%s: %s\n\t%v\n", m.file, m.fault, err)
			continue
		}
		caught++
		fmt.Printf("caught\t%s: %s, by %s\n", m.file, m.fault, m.caught)
	}
	fmt.Printf("%d caught, %d survived\n", caught, survived)
	if survived > 0 {
		return errors.New("a fault is not noticed")
	}
	return nil
}

// copyModule copies what git knows of the module that the working directory is in.
func copyModule(ctx context.Context) (dir string, err error) {
	mod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(mod)))
	list, err := exec.CommandContext(ctx, "git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return "", fmt.Errorf("git ls-files: %w", err)
	}
	if dir, err = os.MkdirTemp("", "mutants"); err != nil {
		return "", err
	}
	for name := range strings.Lines(string(list)) {
		name = strings.TrimSpace(name)
		text, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, os.ErrNotExist) { // deleted, but not in a commit yet
			continue
		}
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			return dir, err
		}
	}
	return dir, nil
}

// passes runs the mutant's test without its fault.
func (m mutant) passes(ctx context.Context, dir string) error {
	if out, err := m.test(ctx, dir); err != nil {
		return fmt.Errorf("%s fails without a fault: %w\n%s", m.caught, err, out)
	}
	return nil
}

// try applies the mutant, runs its test and returns nil if it fails. It leaves the copy as it was.
func (m mutant) try(ctx context.Context, dir string) error {
	path := filepath.Join(dir, m.file)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	broken, err := m.apply(text)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, broken, 0o600); err != nil {
		return err
	}
	out, err := m.test(ctx, dir)
	switch restored := os.WriteFile(path, text, 0o600); {
	case restored != nil:
		return restored
	case err == nil:
		return fmt.Errorf("%s passes", m.caught)
	case !bytes.Contains(out, []byte("--- FAIL: "+m.caught)) && !bytes.Contains(out, []byte("panic: ")):
		return fmt.Errorf("%s does not run: %w\n%s", m.caught, err, out)
	}
	return nil
}

// apply returns the text of the file with the fault in it.
func (m mutant) apply(text []byte) ([]byte, error) {
	if n := bytes.Count(text, []byte(m.right)); n != 1 {
		return nil, fmt.Errorf("%s contains %d times, want once: %s", m.file, n, m.right)
	}
	return bytes.Replace(text, []byte(m.right), []byte(m.wrong), 1), nil
}

// test runs the mutant's test alone.
func (m mutant) test(ctx context.Context, dir string) ([]byte, error) {
	levels := strings.Split(m.caught, "/")
	command := exec.CommandContext(ctx, "go", "test", "-count=1", "-timeout=3m", "-run", "^"+strings.Join(levels, "$/^")+"$", "./"+m.pkg)
	command.Dir = dir
	command.Env = append(os.Environ(), "ANYLOCK_TEST_CONTAINERS=require")
	return command.CombinedOutput()
}
