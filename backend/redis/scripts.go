package redis

import (
	"context"
	"crypto/sha1" //nolint:gosec // the name that Redis gives to a script
	_ "embed"
	"encoding/hex"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed acquire.lua
	acquireSource string
	//go:embed renew.lua
	renewSource string
	//go:embed release.lua
	releaseSource string
	//go:embed probe.lua
	probeSource string

	acquireScript = newScript(acquireSource)
	renewScript   = newScript(renewSource)
	releaseScript = newScript(releaseSource)
	probeScript   = newScript(probeSource)
)

// script is called by its hash. A server that does not know it (it forgets on restart, failover and SCRIPT FLUSH) gets
// the source, and knows it from then on.
type script struct{ source, sha string }

func newScript(source string) script {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // see above
	return script{source: source, sha: hex.EncodeToString(sum[:])}
}

// call is one call of a script; its answer is always an array, since that looks the same in every protocol version.
type call struct {
	keys []string
	args []any
}

// evaluator is what a client and a pipeline have in common.
type evaluator interface {
	Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd
	EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd
}

func (s script) queue(ctx context.Context, on evaluator, c call, known bool) *redis.Cmd {
	if known {
		return on.EvalSha(ctx, s.sha, c.keys, c.args...)
	}
	return on.Eval(ctx, s.source, c.keys, c.args...)
}

func (s script) run(ctx context.Context, on evaluator, c call) ([]any, error) {
	reply, err := s.queue(ctx, on, c, true).Slice()
	if isNoScript(err) {
		return s.queue(ctx, on, c, false).Slice()
	}
	return reply, err
}

// runAll makes many calls in one round trip. Each has its own outcome.
func (s script) runAll(ctx context.Context, client redis.UniversalClient, calls []call) ([][]any, []error) {
	replies, errs := make([][]any, len(calls)), make([]error, len(calls))
	if len(calls) == 1 { // without the pipeline's own connection
		replies[0], errs[0] = s.run(ctx, client, calls[0])
		return replies, errs
	}
	todo := make([]int, len(calls))
	for i := range calls {
		todo[i] = i
	}
	for _, known := range []bool{true, false} {
		pipe := client.Pipeline()
		cmds := make([]*redis.Cmd, len(todo))
		for k, i := range todo {
			cmds[k] = s.queue(ctx, pipe, calls[i], known)
		}
		_, _ = pipe.Exec(ctx) // each command has its error
		var unknown []int
		for k, i := range todo {
			if replies[i], errs[i] = cmds[k].Slice(); known && isNoScript(errs[i]) {
				unknown = append(unknown, i)
			}
		}
		if todo = unknown; len(todo) == 0 {
			break
		}
	}
	return replies, errs
}

func isNoScript(err error) bool { return redis.HasErrorPrefix(err, "NOSCRIPT") }

// number and text read a script's answer; what is not there reads as zero.
func number(reply []any, i int) int64 {
	if i < len(reply) {
		if n, ok := reply[i].(int64); ok {
			return n
		}
	}
	return -1
}

func text(reply []any, i int) string {
	if i < len(reply) {
		s, _ := reply[i].(string)
		return s
	}
	return ""
}
