package postgres

import (
	"context"
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

// whenSilent calls f when two thirds of ctx's time have passed without an answer. Other connections are then likely to lead to
// the same server, and each would be waited for in turn; whoever asks next, when the time is up, should find a new one. The
// function that is returned ends that.
func whenSilent(ctx context.Context, f func()) (stop func() bool) {
	end, bounded := ctx.Deadline()
	if !bounded {
		return func() bool { return true }
	}
	return time.AfterFunc(time.Until(end)*2/3, f).Stop
}

// reconnect drops what is idle, and opens a connection for whoever comes next: to find the host that answers takes a part of
// what a request may take.
//
// A connection that it has made lately is not dropped: it leads to the host that answers.
func (d *database) reconnect() {
	if last := d.reconnected.Load(); last != 0 && time.Since(time.Unix(0, last)) < connectTimeout {
		return
	}
	d.pool.Reset()
	ctx, cancel := context.WithTimeout(d.life, connectTimeout)
	go func() {
		defer cancel()
		if conn, err := d.pool.Acquire(ctx); err == nil {
			d.reconnected.Store(time.Now().UnixNano())
			conn.Release()
		}
	}()
}
