package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// hostTime is how long one of several hosts gets to let us in, unless connect_timeout= is set: one that hangs must not use
// up what a request may take, 3 s, before the next is asked.
const hostTime = time.Second

// connectTime is the time to connect to one host.
func connectTime(c *pgx.ConnConfig) time.Duration {
	for _, other := range c.Fallbacks { // there is one for each sslmode that is tried, too
		if other.Host != c.Host || other.Port != c.Port {
			return hostTime
		}
	}
	return connectTimeout
}

// whenSilent calls f when ctx ends because its time is up: the server has not answered. Other connections are then likely to
// lead to the same server, and each would be waited for in turn. The function that is returned ends that.
func whenSilent(ctx context.Context, f func()) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			f()
		}
	})
}

// reconnect drops what is idle, and opens a connection for whoever comes next: to find the host that answers takes a part of
// what a request may take.
func (d *database) reconnect() {
	d.pool.Reset()
	ctx, cancel := context.WithTimeout(d.life, connectTimeout)
	go func() {
		defer cancel()
		if conn, err := d.pool.Acquire(ctx); err == nil {
			conn.Release()
		}
	}()
}
