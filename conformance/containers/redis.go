package containers

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
)

var (
	redisImage  = image{local: "anylock/redis:8", official: "redis:8"}
	valkeyImage = image{local: "anylock/valkey:8", official: "valkey/valkey:8"}
)

// Option changes how a server is started.
type Option func(*options)

type options struct {
	shared bool
	args   []string
}

// Shared uses one server for all tests of the package that ask for the same kind with the same options. [Main] ends it.
// Tests keep apart by their keys; what one of them paused or killed works again when the next one begins.
func Shared() Option {
	return func(o *options) { o.shared = true }
}

// AppendOnly makes the server write every command to its disk before it answers, so that a restart loses nothing.
func AppendOnly() Option {
	return Args("--appendonly", "yes", "--appendfsync", "always")
}

// Args adds arguments to the server's command line.
func Args(args ...string) Option {
	return func(o *options) { o.args = append(o.args, args...) }
}

func collect(opts []Option) options {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// key names the shared server of a kind with these options; empty if it is not shared.
func (o options) key(kind string) string {
	if !o.shared {
		return ""
	}
	return strings.Join(append([]string{kind}, o.args...), " ")
}

// Redis starts one node of Redis 8 that writes nothing to its disk: killed, it comes back empty. ANYLOCK_TEST_REDIS
// names a server to use instead, for calls without options other than [Shared].
func Redis(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	return single(tb, "redis", redisImage, "redis-server", os.Getenv("ANYLOCK_TEST_REDIS"), opts)
}

// Valkey starts one node of Valkey 8, as [Redis] does; ANYLOCK_TEST_VALKEY names a server to use instead.
func Valkey(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	return single(tb, "valkey", valkeyImage, "valkey-server", os.Getenv("ANYLOCK_TEST_VALKEY"), opts)
}

func single(tb testing.TB, kind string, image image, program, named string, opts []Option) *Server {
	tb.Helper()
	o := collect(opts)
	if named != "" && len(o.args) == 0 {
		return &Server{scheme: "redis", Addrs: []string{named}}
	}
	return obtain(tb, o.key(kind), spec{
		image:  image,
		scheme: "redis",
		ports:  1,
		command: func(ports []int) []string {
			command := append([]string{program}, redisArgs("--port", strconv.Itoa(ports[0]))...)
			return append(command, o.args...)
		},
		ready: func(ctx context.Context, server *Server) error {
			_, err := ask(ctx, server.Addr(), "PING")
			return err
		},
	})
}

// redisArgs are the arguments of a node without persistence that serves clients from outside of its container, and more.
func redisArgs(more ...string) []string {
	return append([]string{"--save", "", "--appendonly", "no", "--protected-mode", "no"}, more...)
}
