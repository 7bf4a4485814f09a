package containers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
)

// requireEnv, set to "require", turns the skips for missing servers into failures.
const requireEnv = "ANYLOCK_TEST_CONTAINERS"

// Main runs the tests of a package and ends its shared servers afterwards:
//
//	func TestMain(m *testing.M) { os.Exit(containers.Main{M: m}.Run()) }
//
// or, to check for leaked goroutines too:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(containers.Main{M: m}) }
type Main struct{ M *testing.M }

// Run runs the tests and returns their exit status.
func (m Main) Run() int {
	pool.mu.Lock()
	pool.open = true
	pool.mu.Unlock()

	status := m.M.Run()

	if err := errors.Join(pool.stop(), closeEngine()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = max(status, 1)
	}
	return status
}

// pool holds the servers that the tests of a package share.
var pool = sharedServers{servers: map[string]func() (*Server, error){}}

type sharedServers struct {
	mu      sync.Mutex
	open    bool // Main will end them
	servers map[string]func() (*Server, error)
}

func (p *sharedServers) get(key string, start func() (*Server, error)) (*Server, error) {
	p.mu.Lock()
	if !p.open {
		p.mu.Unlock()
		return nil, errors.New("containers: a shared server needs containers.Main in TestMain, which ends it")
	}
	if p.servers[key] == nil {
		p.servers[key] = sync.OnceValues(start)
	}
	once := p.servers[key]
	p.mu.Unlock()
	return once()
}

func (p *sharedServers) stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, once := range p.servers {
		if server, err := once(); err == nil {
			errs = append(errs, server.stop())
		}
	}
	return errors.Join(errs...)
}

// obtain starts a server for one test, or takes the shared one of this key if there is a key. It ends the test, or
// skips it, if there is none to be had.
func obtain(tb testing.TB, key string, spec spec) *Server {
	tb.Helper()
	var server *Server
	var err error
	if key != "" {
		server, err = pool.get(key, func() (*Server, error) { return start(spec) })
	} else {
		server, err = start(spec)
	}

	if missing := (unavailableError{}); errors.As(err, &missing) && os.Getenv(requireEnv) != "require" {
		tb.Skipf("containers: %v", missing)
	}
	if err != nil {
		tb.Fatal(err)
	}

	tb.Cleanup(func() {
		tidy := server.stop
		if key != "" {
			tidy = func() error {
				ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
				defer cancel()
				return server.recover(ctx)
			}
		}
		if err := tidy(); err != nil {
			tb.Error(err)
		}
	})
	return server
}
