package redis

import (
	"time"

	"github.com/anylock/anylock"
)

const (
	defaultPrefix      = "lock:"
	defaultWaitTimeout = 500 * time.Millisecond
	maxWaitTimeout     = 2 * time.Second // below the read timeout of the clients that Open makes
	defaultRetention   = time.Hour
	maxRetention       = 366 * 24 * time.Hour
)

type config struct {
	prefix      string
	replicas    int
	waitTimeout time.Duration
	retention   time.Duration
}

func defaults() config {
	return config{prefix: defaultPrefix, waitTimeout: defaultWaitTimeout, retention: defaultRetention}
}

func (c config) check() error {
	switch {
	case c.replicas < 0:
		return anylock.Invalidf("wait=%d: the number of replicas cannot be negative", c.replicas)
	case c.waitTimeout < time.Millisecond || c.waitTimeout > maxWaitTimeout:
		return anylock.Invalidf("waittimeout=%v: it must be between 1ms and %v", c.waitTimeout, maxWaitTimeout)
	case c.retention < time.Minute || c.retention > maxRetention:
		return anylock.Invalidf("retention=%v: it must be between 1m and %v", c.retention, maxRetention)
	}
	return checkPrefix(c.prefix)
}

// Option changes how a [Backend] uses Redis. Each is also a parameter of the URL.
type Option func(*config)

// WithPrefix sets what stands before each lock's name in its key, "lock:" unless it is set. It may be empty, so that
// anylock meets other code that locks by SET NX at the bare name. URL: prefix=TEXT.
func WithPrefix(prefix string) Option { return func(c *config) { c.prefix = prefix } }

// WithReplicas makes an acquire wait until that many replicas have the lock, or fail as unavailable when they do not
// within the timeout (0 for 500ms). This narrows the gap in which a failover loses a lock, and does not close it.
// URL: wait=N and waittimeout=DURATION.
func WithReplicas(n int, timeout time.Duration) Option {
	return func(c *config) {
		c.replicas = n
		if timeout != 0 {
			c.waitTimeout = timeout
		}
	}
}

// WithRetention sets for how long the last token of a lock that nobody uses is kept, 1h unless it is set. By as much may
// the server's clock step back without a token going back. Longer is also right for a fleet that is migrated and mixes
// processes which follow another store's tokens with some that do not, see the package documentation.
// URL: retention=DURATION.
func WithRetention(d time.Duration) Option { return func(c *config) { c.retention = d } }
