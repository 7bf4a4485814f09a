package redis

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/backend/internal/gate"
	"github.com/anylock/anylock/backend/internal/yield"
)

const (
	// minTTL is where a round trip over a network and the millisecond that Redis counts in stop being small.
	minTTL = 10 * time.Millisecond
	// maxTTL is far from what overflows in the server.
	maxTTL   = 10 * 365 * 24 * time.Hour
	maxBatch = 500
	// maxToken is the greatest whole number that is exact in a script.
	maxToken = 1<<53 - 1
	// standBack is in which time those who wait hear of a release and make their attempt: they are spread over the first
	// half of it.
	standBack = 2 * time.Millisecond
)

// Backend keeps locks in Redis or Valkey.
type Backend struct {
	client    redis.UniversalClient
	cluster   *redis.ClusterClient // the same client, if it is one
	config    config
	listeners *listeners
	yielder   yield.Yielder

	probed atomic.Bool
	gate   gate.Gate
	own    []io.Closer // what Open has opened
	asked  *sentinels  // by Open
}

var _ anylock.Backend = (*Backend)(nil)

// New makes a backend over a client that stays the caller's: Close leaves it open. Set ContextTimeoutEnabled on it, or
// go-redis ignores deadlines and each call costs a goroutine, and a ReadTimeout of a few seconds at most, since that is
// how long a command to a dead server takes. If it has a Dialer of its own that speaks TLS, the handshake belongs into the
// Dialer, within its ctx: go-redis would wait for it without a bound. Set DisableRoutingPolicies on a ClusterClient, or its
// first command may wait for a node that hangs; and prefer [Open] to a FailoverClient, which waits for a sentinel that hangs.
// There is no I/O. A Ring is refused, also inside another type: when one of its shards fails, it moves keys to another,
// which is a second owner.
func New(client redis.UniversalClient, opts ...Option) (*Backend, error) {
	b := &Backend{client: client, config: defaults()}
	if err := checkClient(client); err != nil {
		return nil, err
	}
	b.cluster, _ = client.(*redis.ClusterClient)
	for _, o := range opts {
		if o == nil {
			return nil, anylock.Invalidf("an option is nil")
		}
		o(&b.config)
	}
	if err := b.config.check(); err != nil {
		return nil, err
	}
	b.listeners = newListeners(client, b.cluster, b.classify)
	return b, nil
}

// Describe says what Redis promises in this configuration.
func (b *Backend) Describe() anylock.Description {
	survives := anylock.HolderCrash | anylock.HolderPartition
	if _, one := b.client.(*redis.Client); one && !b.sentinels() {
		// Without a second server nobody decides anything. Whether something outside promotes a replica is not known here.
		survives |= anylock.MinorityLoss | anylock.MajorityLoss
	}
	return anylock.Description{
		Name: "redis",
		Guarantees: anylock.Guarantees{
			Exclusion: anylock.ScopeNode,
			Fencing:   anylock.ScopeNode,
			Wake:      anylock.WakeNotify,
			Clock:     anylock.ClockStore,
			HoldCost:  anylock.CostRecord,
			Survives:  survives,
		},
		MinTTL: minTTL, MaxTTL: maxTTL, MaxBatch: maxBatch,
		Deadlines:   keepsDeadlines(b.client),
		MaxRequests: poolSize(b.client),
	}
}

// keepsDeadlines reports whether a client looks at the deadline of a context.
func keepsDeadlines(client redis.UniversalClient) bool {
	switch c := client.(type) {
	case *redis.Client:
		return c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return c.Options().ContextTimeoutEnabled
	}
	return false
}

// poolSize is how many connections a client has, to one node of a Cluster; 0: not known.
func poolSize(client redis.UniversalClient) int {
	switch c := client.(type) {
	case *redis.Client:
		return c.Options().PoolSize
	case *redis.ClusterClient:
		return c.Options().PoolSize
	}
	return 0
}

// sentinels reports whether the client asks sentinels where the server is.
func (b *Backend) sentinels() bool {
	c, ok := b.client.(*redis.Client)
	return b.asked != nil || ok && c.Options().Addr == "FailoverClient" // as go-redis calls it
}

// Acquire is one script: one round trip, and one more at the first time.
func (b *Backend) Acquire(ctx context.Context, req anylock.Request) (anylock.Grant, error) {
	if err := b.gate.Enter(ctx); err != nil {
		return anylock.Grant{}, err
	}
	if req.MinToken > maxToken {
		return anylock.Grant{}, anylock.Invalidf("token %d is more than Redis can count to, %d", req.MinToken, int64(maxToken))
	}
	ttl, err := milliseconds(req.TTL)
	if err != nil {
		return anylock.Grant{}, err
	}
	k := keysFor(b.config.prefix, req.Name)
	if !b.probed.Load() {
		if err := b.onSomeHost(ctx, func(ctx context.Context) error { return b.probe(ctx, k) }); err != nil {
			return anylock.Grant{}, b.classify(err)
		}
	}
	b.yielder.Yield(ctx, req.Name, standBack)
	from := time.Now()
	var reply []any
	err = b.onSomeHost(ctx, func(ctx context.Context) (err error) {
		reply, err = b.attempt(ctx, call{
			keys: []string{k.lock, k.counter},
			args: []any{req.ID, ttl, int64(max(req.MinToken, 0)), req.Holder, b.config.retention.Milliseconds()},
		})
		return err
	})
	if err != nil {
		return anylock.Grant{}, b.classify(err)
	}
	switch number(reply, 0) {
	case 1:
		token, err := strconv.ParseInt(text(reply, 1), 10, 64)
		if err != nil || token <= 0 {
			return anylock.Grant{}, anylock.Unavailable(errAnswer)
		}
		return anylock.Grant{
			Name: req.Name, ID: req.ID, Token: anylock.Token(token),
			TTL: time.Duration(ttl) * time.Millisecond, From: from,
		}, nil
	case 0:
		return anylock.Grant{}, &anylock.HeldError{Holder: text(reply, 2), RetryAfter: retryAfter(number(reply, 1))}
	case 2:
		return anylock.Grant{}, gate.ErrTooLate
	case 3:
		return anylock.Grant{}, anylock.Invalidf("the lock's counter has passed %d, beyond which Redis does not count exactly; "+
			"something else has written it", int64(maxToken))
	}
	return anylock.Grant{}, anylock.Unavailable(errAnswer)
}

var errAnswer = fmt.Errorf("the answer of the script is not understood")

// attempt runs the acquire script, and waits for replicas if that is asked for.
func (b *Backend) attempt(ctx context.Context, c call) ([]any, error) {
	if b.config.replicas == 0 {
		return acquireScript.run(ctx, b.client, c)
	}
	node, err := b.nodeOf(ctx, c.keys[0])
	if err != nil {
		return nil, err
	}
	for _, known := range []bool{true, false} {
		pipe := node.Pipeline() // WAIT speaks about the connection that wrote
		script := acquireScript.queue(ctx, pipe, c, known)
		wait := pipe.Do(ctx, "wait", b.config.replicas, b.config.waitTimeout.Milliseconds())
		_, _ = pipe.Exec(ctx)
		reply, err := script.Slice()
		switch {
		case known && isNoScript(err):
			continue
		case err != nil:
			if b.cluster != nil && (redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK")) {
				b.cluster.ReloadState(ctx) // for the next attempt
			}
			return nil, err
		case number(reply, 0) != 1:
			return reply, nil
		}
		// The lock is taken by now, so nothing below may count as refused.
		replicas, err := wait.Int()
		if err != nil {
			return nil, anylock.Unavailable(fmt.Errorf("waiting for replicas: %w", err))
		}
		if replicas < b.config.replicas {
			return nil, anylock.Unavailable(fmt.Errorf("%d of %d replicas have acknowledged within %v",
				replicas, b.config.replicas, b.config.waitTimeout))
		}
		return reply, nil
	}
	return nil, errAnswer
}

// nodeOf is the client of the one server that has a key.
func (b *Backend) nodeOf(ctx context.Context, key string) (redis.UniversalClient, error) {
	if b.cluster != nil {
		return b.cluster.MasterForKey(ctx, key)
	}
	return b.client, nil
}

// probe makes sure, before the first lock is taken, that it could also be released.
func (b *Backend) probe(ctx context.Context, k keys) error {
	key := k.probeKey()
	c := call{keys: []string{key}, args: []any{b.config.prefix + "\x00probe"}}
	if _, err := probeScript.queue(ctx, b.client, c, false).Slice(); err != nil { // by EVAL: the rest is mostly EVALSHA
		return err
	}
	if b.config.replicas > 0 {
		node, err := b.nodeOf(ctx, key)
		if err != nil {
			return err
		}
		if err := node.Do(ctx, "wait", 0, 1).Err(); err != nil {
			return err
		}
	}
	b.probed.Store(true)
	return nil
}

// Renew is one pipeline for each node.
func (b *Backend) Renew(ctx context.Context, grants []anylock.Grant) []anylock.Renewal {
	if err := b.gate.Enter(ctx); err != nil {
		return slices.Repeat([]anylock.Renewal{{Err: err}}, len(grants))
	}
	if len(grants) == 0 {
		return nil
	}
	renewals := make([]anylock.Renewal, len(grants))
	calls := make([]call, len(grants))
	for i, g := range grants {
		ttl, err := milliseconds(g.TTL)
		if err != nil {
			ttl = 0 // the script then says only whether the lock is there
		}
		renewals[i].TTL = time.Duration(ttl) * time.Millisecond
		k := keysFor(b.config.prefix, g.Name)
		calls[i] = call{keys: []string{k.lock, k.counter}, args: []any{g.ID, ttl, b.config.retention.Milliseconds()}}
	}
	from := time.Now()
	replies, errs := b.runAll(ctx, renewScript, calls)
	for i := range renewals {
		renewals[i].From = from
		if errs[i] != nil {
			renewals[i].Err = b.classify(errs[i])
			continue
		}
		switch number(replies[i], 0) {
		case 1:
		case 0:
			renewals[i].Err = anylock.ErrLost
		case 2:
			_, renewals[i].Err = milliseconds(grants[i].TTL) //nolint:gosec // there are as many grants as renewals
		default:
			renewals[i].Err = anylock.Unavailable(errAnswer)
		}
	}
	return renewals
}

// Release is one pipeline for each node.
func (b *Backend) Release(ctx context.Context, grants []anylock.Grant) []error {
	if err := b.gate.Enter(ctx); err != nil {
		return slices.Repeat([]error{err}, len(grants))
	}
	if len(grants) == 0 {
		return nil
	}
	results := make([]error, len(grants))
	calls := make([]call, len(grants))
	for i, g := range grants {
		k := keysFor(b.config.prefix, g.Name)
		calls[i] = call{keys: []string{k.lock, k.counter}, args: []any{g.ID, k.channel, b.config.retention.Milliseconds()}}
	}
	replies, errs := b.runAll(ctx, releaseScript, calls)
	for i, g := range grants {
		switch {
		case errs[i] != nil:
			results[i] = b.classify(errs[i])
		case number(replies[i], 0) == 0:
			results[i] = anylock.ErrLost
		case number(replies[i], 0) != 1:
			results[i] = anylock.Unavailable(errAnswer)
		case b.othersHeard(ctx, g.Name, number(replies[i], 1)):
			b.yielder.Released(g.Name)
		}
	}
	return results
}

// othersHeard reports whether a release that so many have received was heard outside of this client.
func (b *Backend) othersHeard(ctx context.Context, name string, receivers int64) bool {
	return receivers > 0 && receivers > b.listeners.count(ctx, keysFor(b.config.prefix, name))
}

// Watch listens for releases, over one connection for all names, and in a Cluster one to each master.
func (b *Backend) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	if err := b.gate.Enter(ctx); err != nil {
		return nil, err
	}
	return b.listeners.watch(ctx, keysFor(b.config.prefix, name))
}

// Close ends the subscription, and the client if Open has made it. Calls under way then return.
func (b *Backend) Close() error {
	if !b.gate.Close() {
		return nil
	}
	b.listeners.close()
	var first error
	for _, c := range b.own {
		if err := c.Close(); err != nil && first == nil {
			first = err
		}
	}
	b.listeners.wait()
	return first
}

func (b *Backend) classify(err error) error {
	b.lookAgain(context.Background(), err)
	return b.gate.Explain(classify(err, b.cluster != nil))
}

// milliseconds rounds up to what Redis can count.
func milliseconds(ttl time.Duration) (int64, error) {
	if ttl < minTTL || ttl > maxTTL {
		return 0, anylock.Invalidf("a TTL of %v is not between %v and %v", ttl, minTTL, maxTTL)
	}
	return int64((ttl + time.Millisecond - 1) / time.Millisecond), nil
}

// retryAfter turns a PTTL into the time after which the key is gone for sure: Redis keeps it through its last
// millisecond. Less than zero is a key that somebody else has set without a TTL: not known.
func retryAfter(pttl int64) time.Duration {
	if pttl < 0 {
		return 0
	}
	return time.Duration(pttl+1) * time.Millisecond
}
