package redis

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/anylock/anylock"
)

const (
	dialTimeout = 3 * time.Second
	ioTimeout   = 3 * time.Second
)

func init() {
	open := func(ctx context.Context, url string) (anylock.Backend, error) {
		b, err := Open(ctx, url)
		if err != nil {
			return nil, err // and not a nil *Backend in an interface
		}
		return b, nil
	}
	for _, scheme := range []string{"redis", "rediss", "valkey", "valkeys"} {
		anylock.Register(scheme, open)
	}
}

// Open makes a backend with a client of its own from a URL, see the package documentation. It asks the server once
// whether it is there, for as long as ctx allows.
func Open(ctx context.Context, url string) (*Backend, error) {
	s, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, anylock.Unavailable(context.Cause(ctx))
	}
	d := newDialer(s.client.TLSConfig)
	o := &s.client
	o.Dialer = d.dial
	o.ContextTimeoutEnabled = true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = dialTimeout, ioTimeout, ioTimeout, ioTimeout
	o.DialerRetries = 1 // commands are repeated anyway
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	var client redis.UniversalClient
	var asked *sentinels
	switch {
	case o.IsClusterMode:
		cluster := o.Cluster()
		cluster.DisableRoutingPolicies = true // which asks any node for COMMAND, for up to 5 s, whatever becomes of ctx
		client = redis.NewClusterClient(cluster)
	case o.MasterName != "":
		asked = newSentinels(o, s.client.TLSConfig, d)
		one := o.Simple()
		one.Addr, one.Dialer = "the master "+strconv.Quote(o.MasterName), asked.dial
		client = redis.NewClient(one)
	default:
		client = redis.NewClient(o.Simple())
	}
	b, err := New(client, func(c *config) { *c = s.config })
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	b.own = []io.Closer{client, d}
	if asked != nil {
		b.asked = asked
		b.own = append(b.own, asked)
	}
	if err := anylock.CheckOpen(ctx, b.Describe()); err != nil {
		_ = b.Close()
		return nil, err
	}
	if err := b.ping(ctx); err != nil {
		_ = b.Close()
		return nil, err
	}
	return b, nil
}

// ping returns when ctx ends even if go-redis does not; Close then ends what it has left.
func (b *Backend) ping(ctx context.Context) error {
	answer := make(chan error, 1)
	go func() {
		answer <- b.onSomeHost(ctx, b.pingSome)
	}()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return anylock.Unavailable(context.Cause(ctx))
	}
}

// pingSome asks the server, or a few of a Cluster's masters: one that hangs does not keep a client from its work on the
// others.
func (b *Backend) pingSome(ctx context.Context) error {
	asked := 1
	if b.cluster != nil {
		asked = 4
	}
	answers := make(chan error, asked)
	for range asked {
		go func() {
			node, err := b.nodeOf(ctx, strconv.Itoa(rand.Int()))
			if err == nil {
				err = node.Ping(ctx).Err()
			}
			answers <- b.classify(err)
		}()
	}
	var err error
	for range asked {
		if err = <-answers; err == nil || errors.Is(err, anylock.ErrInvalid) {
			return err
		}
	}
	return err
}
