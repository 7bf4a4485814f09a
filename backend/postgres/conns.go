package postgres

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/anylock/anylock"
)

const (
	// slotPatience is how long an attempt waits for one of a bounded number of connections. After that it fails, so that
	// somebody who holds them all and wants one more learns it instead of waiting for himself.
	slotPatience = 2500 * time.Millisecond
	// idleConnection is how long a connection that nobody uses stays open.
	idleConnection = 30 * time.Second
	// goodbye is how long a connection that was given up may still count as open.
	goodbye = time.Second
)

// connections is a bounded set of connections, each with a session of its own.
type connections struct {
	connect connectFunc
	slots   chan struct{} // one element for each connection that is open

	mu      sync.Mutex
	idle    []*connection // the last one was used last
	reaping bool          // reap will be called
	closed  bool
}

// connection is one of them. Whoever has taken it uses it alone.
type connection struct {
	*pgx.Conn
	reused bool
	taken  time.Time     // when it was, before it was opened
	ttl    time.Duration // what its session's timeout is set to
	since  time.Time     // since when it is idle
}

func newConnections(connect connectFunc, most int) *connections {
	return &connections{connect: connect, slots: make(chan struct{}, most)}
}

// introduce opens the first connection, so that what is wrong shows at once.
func (c *connections) introduce(ctx context.Context) error {
	conn, err := c.take(ctx, ctx)
	if err == nil {
		c.give(conn)
	}
	return err
}

// take returns a connection: the one that was used last, or a new one. ctx bounds the wait for one of the bounded number,
// and patient the making of a new one.
func (c *connections) take(ctx, patient context.Context) (*connection, error) {
	patience := slotPatience
	if end, ok := ctx.Deadline(); ok { // say why, before the caller's time is up
		patience = min(patience, time.Until(end)*9/10)
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, anylock.Unavailable(context.Cause(ctx))
	case <-timer.C:
		return nil, anylock.Unavailable(fmt.Errorf("all %d connections are taken by held locks and by waiters, for %v; "+
			"raise conns=, hold fewer locks at a time, or use mode=lease, which takes none", cap(c.slots), patience.Round(time.Millisecond)))
	}
	taken := time.Now()
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		<-c.slots
		return nil, anylock.ErrClosed
	}
	if n := len(c.idle); n > 0 {
		conn := c.idle[n-1]
		c.idle = c.idle[:n-1]
		c.mu.Unlock()
		conn.reused, conn.taken = true, taken
		return conn, nil
	}
	c.mu.Unlock()
	conn, err := c.connect(patient)
	if err != nil {
		<-c.slots
		return nil, err
	}
	return &connection{Conn: conn, taken: taken}, nil
}

// interruptAgain is after how long a request to stop is repeated. One that overtakes the statement on its way stops nothing.
const interruptAgain = 5 * time.Millisecond

// interruptWith makes the server stop what it does for this connection when ctx ends. The connection stays good. The
// function that is returned ends that; afterwards no interrupt is under way.
func (c *connection) interruptWith(ctx context.Context) func() {
	over, done := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		for again := interruptAgain; ; again *= 2 {
			_ = c.PgConn().CancelRequest(ctx) // returns when the server has done it
			select {
			case <-over:
				return
			case <-ctx.Done():
				return
			case <-time.After(again):
			}
		}
	})
	return func() {
		close(over)
		if !stop() {
			<-done
		}
	}
}

// give takes back a connection. Unless it is in no transaction it is closed.
func (c *connections) give(conn *connection) {
	if conn.IsClosed() || conn.PgConn().TxStatus() != 'I' {
		c.drop(conn)
		return
	}
	conn.since = time.Now()
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.idle = append(c.idle, conn)
		c.reapLater()
	}
	c.mu.Unlock()
	if closed {
		c.drop(conn)
		return
	}
	<-c.slots
}

// reapLater is called with mu held.
func (c *connections) reapLater() {
	if !c.reaping && len(c.idle) > 0 {
		c.reaping = true
		time.AfterFunc(idleConnection/2, c.reap)
	}
}

// drop closes a connection in the background. Its slot is free when the server knows, or after a moment.
func (c *connections) drop(conn *connection) {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), goodbye)
		defer cancel()
		_ = conn.Close(ctx)
		select {
		case <-conn.PgConn().CleanupDone():
		case <-ctx.Done():
		}
		<-c.slots
	}()
}

func (c *connections) reap() {
	var old []*connection
	c.mu.Lock()
	for len(c.idle) > 0 && time.Since(c.idle[0].since) > idleConnection {
		old = append(old, c.idle[0])
		c.idle = c.idle[1:]
	}
	c.reaping = false
	c.reapLater()
	c.mu.Unlock()
	for _, conn := range old {
		closeSoon(conn.Conn)
	}
}

// dropIdle closes what is idle, since one of them turned out to be dead.
func (c *connections) dropIdle() {
	c.mu.Lock()
	old := c.idle
	c.idle = nil
	c.mu.Unlock()
	for _, conn := range old {
		go closeSoon(conn.Conn)
	}
}

// close closes what is idle, and the others when they are given back.
func (c *connections) close() {
	var closing sync.WaitGroup
	c.mu.Lock()
	c.closed = true
	old := c.idle
	c.idle = nil
	c.mu.Unlock()
	for _, conn := range old {
		closing.Go(func() { closeSoon(conn.Conn) })
	}
	closing.Wait()
}
