package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/anylock/anylock"
)

// dialer makes the connections of a client that Open has made, and can end them all at once. go-redis lets nothing
// interrupt a command that waits for a dead server; closing the connection does.
type dialer struct {
	tls    *tls.Config
	ctx    context.Context //nolint:containedctx // the life of the dialer
	cancel context.CancelFunc

	mu    sync.Mutex
	conns map[*dialed]struct{}
}

// dialed keeps all methods of a TCP connection, since go-redis looks into the socket for connections that have died.
type dialed struct {
	*net.TCPConn
	dialer *dialer
	addr   string
}

func (c *dialed) Close() error {
	c.dialer.mu.Lock()
	delete(c.dialer.conns, c)
	c.dialer.mu.Unlock()
	return c.TCPConn.Close()
}

func newDialer(config *tls.Config) *dialer {
	d := &dialer{tls: config, conns: make(map[*dialed]struct{})}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	defer context.AfterFunc(d.ctx, cancel)()
	plain := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}}
	conn, err := plain.DialContext(ctx, network, addr)
	if err != nil {
		return nil, d.closedOr(err)
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		_ = conn.Close()
		return nil, errors.New("not a TCP address")
	}
	kept := &dialed{TCPConn: tcp, dialer: d, addr: addr}
	d.mu.Lock()
	d.conns[kept] = struct{}{}
	d.mu.Unlock()
	if d.ctx.Err() != nil { // Close may have passed by
		_ = kept.Close()
		return nil, anylock.ErrClosed
	}
	if d.tls == nil {
		return kept, nil
	}
	config := d.tls
	if config.ServerName == "" {
		config = config.Clone()
		config.ServerName, _, _ = net.SplitHostPort(addr)
	}
	secure := tls.Client(kept, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = kept.Close()
		return nil, d.closedOr(fmt.Errorf("TLS handshake with %s, which may not speak TLS: %w", addr, err))
	}
	return secure, nil
}

func (d *dialer) closedOr(err error) error {
	if d.ctx.Err() != nil {
		return anylock.ErrClosed
	}
	return err
}

// closeOthers ends all connections but those to addr.
func (d *dialer) closeOthers(addr string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.conns {
		if c.addr != addr {
			_ = c.TCPConn.Close()
			delete(d.conns, c)
		}
	}
}

// Close ends all connections and attempts to make one.
func (d *dialer) Close() error {
	d.cancel()
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.conns {
		_ = c.TCPConn.Close()
	}
	clear(d.conns)
	return nil
}
