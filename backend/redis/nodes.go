package redis

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anylock/anylock"
)

// runAll makes many calls, in one round trip for each node. The batches of different nodes have nothing to do with each
// other: one node that hangs costs the others nothing, and each call has its own outcome. (A pipeline of go-redis that
// spans nodes loses the answers that came when its context ends.)
func (b *Backend) runAll(ctx context.Context, s script, calls []call) ([][]any, []error) {
	if b.cluster == nil {
		return s.runAll(ctx, b.client, calls)
	}
	replies, errs := make([][]any, len(calls)), make([]error, len(calls))
	batches := make(map[*redis.Client][]int)
	for i, c := range calls {
		node, err := b.cluster.MasterForKey(ctx, c.keys[0])
		if errs[i] = err; err == nil {
			batches[node] = append(batches[node], i)
		}
	}
	var running sync.WaitGroup
	for node, batch := range batches {
		running.Go(func() { s.runSome(ctx, node, calls, batch, replies, errs) })
	}
	running.Wait()
	var moved []int
	for i, err := range errs {
		if isRedirect(err) {
			moved = append(moved, i)
		}
	}
	if len(moved) > 0 {
		b.cluster.ReloadState(ctx)
		s.runSome(ctx, b.cluster, calls, moved, replies, errs) // which follows redirections
	}
	return replies, errs
}

// runSome makes some of the calls, and notes their outcomes.
func (s script) runSome(ctx context.Context, client redis.UniversalClient, calls []call, some []int, replies [][]any, errs []error) {
	batch := make([]call, len(some))
	for k, i := range some {
		batch[k] = calls[i]
	}
	r, e := s.runAll(ctx, client, batch)
	for k, i := range some {
		replies[i], errs[i] = r[k], e[k]
	}
}

// isRedirect reports whether a node sends us to another, or to the same a little later.
func isRedirect(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") || redis.HasErrorPrefix(err, "TRYAGAIN")
}

const (
	// hostTime is the least that one host gets to answer in, where another may take over.
	hostTime = time.Second
	// hostPause comes before the next try.
	hostPause = 100 * time.Millisecond
)

// onSomeHost repeats do, which must be safe to repeat, when a host is down or has not answered within a third of the time that
// there is: then another may serve in its place by now.
func (b *Backend) onSomeHost(ctx context.Context, do func(context.Context) error) error {
	deadline, bounded := ctx.Deadline()
	if !bounded || !b.manyHosts() {
		return do(ctx)
	}
	share := max(time.Until(deadline)/3, hostTime)
	for {
		one, cancel := context.WithTimeout(ctx, share)
		err := do(one)
		cancel()
		if !isNetwork(err) || ctx.Err() != nil || time.Until(deadline) < share/2 {
			return err
		}
		b.lookAgain(ctx, err)
		select { // one that is down says so at once
		case <-time.After(hostPause):
		case <-ctx.Done():
			return err
		}
	}
}

// isNetwork reports whether err is not an answer of a server.
func isNetwork(err error) bool {
	answer, held := redis.Error(nil), (*anylock.HeldError)(nil)
	return err != nil && !errors.As(err, &answer) && !errors.As(err, &held) && !errors.Is(err, anylock.ErrInvalid) &&
		!errors.Is(err, anylock.ErrClosed) && !errors.Is(err, redis.ErrClosed) && !errors.Is(err, context.Canceled)
}

// lookAgain lets the client read the topology again after an error that may come from its being old: go-redis does so by
// itself after redirections and once a minute.
func (b *Backend) lookAgain(ctx context.Context, err error) {
	if b.cluster != nil && isNetwork(err) {
		b.cluster.ReloadState(ctx)
	}
}

// manyHosts reports whether a lock can move from one host to another.
func (b *Backend) manyHosts() bool { return b.cluster != nil || b.sentinels() }
