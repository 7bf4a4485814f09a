package anylock_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"strings"
	"testing"
)

const module = "github.com/anylock/anylock"

// drivers are the modules that each backend may import besides the standard library and this module's root.
var drivers = map[string][]string{
	"memory":    nil,
	"redis":     {"github.com/redis/go-redis/v9"},
	"redlock":   {"github.com/redis/go-redis/v9"},
	"etcd":      {"go.etcd.io/etcd", "google.golang.org/grpc"},
	"zookeeper": {"github.com/go-zookeeper/zk"},
	"postgres":  {"github.com/jackc/pgx/v5"},
}

// The three rules of the layout: the root imports the standard library only, a backend its own driver only, and
// testcontainers is imported by tests and conformance/containers alone.
func TestImportRules(t *testing.T) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := 0
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; packages++ {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		for _, imported := range p.Imports {
			if why := forbidden(p.ImportPath, imported); why != "" {
				t.Errorf("%s imports %s: %s", p.ImportPath, imported, why)
			}
		}
	}
	if packages < 3 {
		t.Errorf("looked at %d packages only", packages)
	}
}

func forbidden(pkg, imported string) string {
	standard := !strings.Contains(strings.Split(imported, "/")[0], ".")
	switch {
	case standard:
		return ""
	case strings.HasPrefix(imported, "github.com/testcontainers/") && !strings.HasPrefix(pkg, module+"/conformance/containers"):
		return "only tests and conformance/containers may"
	case pkg == module, strings.HasPrefix(pkg, module+"/internal/"):
		if strings.HasPrefix(imported, module+"/internal/") {
			return ""
		}
		return "the root package, with its internal ones, is standard library only"
	case path.Dir(pkg) == module+"/backend":
		if imported == module || strings.HasPrefix(imported, module+"/backend/internal/") {
			return ""
		}
		for _, driver := range drivers[path.Base(pkg)] {
			if imported == driver || strings.HasPrefix(imported, driver+"/") {
				return ""
			}
		}
		return "a backend imports its own driver only"
	}
	return ""
}

func TestImportRulesCatch(t *testing.T) {
	for _, c := range [][2]string{
		{module, "github.com/redis/go-redis/v9"},
		{module, module + "/backend/memory"},
		{module + "/internal/scheduler", "golang.org/x/sync"},
		{module + "/backend/redis", "github.com/jackc/pgx/v5"},
		{module + "/backend/memory", "github.com/redis/go-redis/v9"},
		{module + "/conformance", "github.com/testcontainers/testcontainers-go"},
	} {
		if forbidden(c[0], c[1]) == "" {
			t.Errorf("%s may import %s", c[0], c[1])
		}
	}
}
