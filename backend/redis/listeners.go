package redis

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/anylock/anylock"
)

// listeners has one listener for each server that counts who hears of a release. That is one, except in a Cluster: it
// sends a message to all of its nodes, but PUBLISH counts the receivers of its own node only, and whoever releases must
// know whether it has woken others. So one listens at the master that has the lock.
type listeners struct {
	client   redis.UniversalClient
	cluster  *redis.ClusterClient // the same client, if it is one
	classify func(error) error

	mu     sync.Mutex
	closed bool
	at     map[string]*listener // by the address that the server had at first; "" is the only one
}

func newListeners(client redis.UniversalClient, cluster *redis.ClusterClient, classify func(error) error) *listeners {
	return &listeners{client: client, cluster: cluster, classify: classify, at: make(map[string]*listener)}
}

// watch returns once the subscription is confirmed.
func (l *listeners) watch(ctx context.Context, k keys) (<-chan struct{}, error) {
	address, err := l.address(ctx, k)
	if err != nil {
		return nil, l.classify(err)
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, anylock.ErrClosed
	}
	at := l.at[address]
	if at == nil {
		at = newListener(l.subscriber(k), l.classify)
		l.at[address] = at
	}
	l.mu.Unlock()
	return at.watch(ctx, k.channel)
}

// count is how many of the receivers that a release has counted are this client's own.
func (l *listeners) count(ctx context.Context, k keys) int64 {
	address, err := l.address(ctx, k)
	if err != nil {
		return 0
	}
	l.mu.Lock()
	at := l.at[address]
	l.mu.Unlock()
	if at == nil {
		return 0
	}
	return at.count(k.channel, address)
}

// address is that of the server which has a lock.
func (l *listeners) address(ctx context.Context, k keys) (string, error) {
	if l.cluster == nil {
		return "", nil
	}
	node, err := l.cluster.MasterForKey(ctx, k.lock)
	if err != nil {
		return "", err
	}
	return node.Options().Addr, nil
}

// subscriber makes subscriptions at the server that has a lock at that time: a master that has failed is not waited for
// when there is another.
func (l *listeners) subscriber(k keys) subscriber {
	if l.cluster == nil {
		return func(ctx context.Context) (*redis.PubSub, string, error) { return l.client.Subscribe(ctx), "", nil }
	}
	again := false
	return func(ctx context.Context) (*redis.PubSub, string, error) {
		if again {
			l.cluster.ReloadState(ctx)
		}
		again = true
		ctx, cancel := context.WithTimeout(ctx, connectTime)
		defer cancel()
		node, err := l.cluster.MasterForKey(ctx, k.lock)
		if err != nil {
			return nil, "", err
		}
		return node.Subscribe(ctx), node.Options().Addr, nil
	}
}

// close ends all of them.
func (l *listeners) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	for _, at := range l.at {
		at.stop()
	}
}

// wait returns when they have ended.
func (l *listeners) wait() {
	for _, at := range l.at {
		at.wait()
	}
}
