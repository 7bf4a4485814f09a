package redis

import (
	"context"
	"errors"
	"io"
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
	client := redis.NewUniversalClient(o)
	b, err := New(client, func(c *config) { *c = s.config })
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	b.own = []io.Closer{client, d}
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
	go func() { answer <- b.classify(b.client.Ping(ctx).Err()) }()
	select {
	case err := <-answer:
		if err != nil && errors.Is(err, redis.Nil) && b.sentinels() {
			return anylock.Invalidf("the sentinels do not know the master that sentinel= names")
		}
		return err
	case <-ctx.Done():
		return anylock.Unavailable(context.Cause(ctx))
	}
}
