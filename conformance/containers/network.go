package containers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// Network is one client's own way to its servers, whatever protocol they speak. Faults hit all connections of this
// client and nobody else's. Plug [Network.DialContext] into the client's driver, or give [Network.Addr] to a client that
// takes addresses only, such as another process.
//
// There are six faults. Cut, Hold, Stall and Slow are states, which last until [Network.Heal]; DropReply and Disconnect
// happen once. A Network may be used from several goroutines.
type Network struct {
	server *toxiproxy.ApiServer

	mu      sync.Mutex
	paths   map[string]*path // by the server's address
	changed chan struct{}    // closed and replaced whenever a field below or a connection's state changes
	closed  bool
	cut     bool
	held    bool
	slow    time.Duration
	drop    *string // what the request contains whose reply is to be dropped; nil: none
	trips   int
}

// errClosed is returned to those who dial after the test.
var errClosed = errors.New("containers: the network of an ended test")

// NewNetwork makes a network without faults. It is closed, with all of its connections, when the test ends.
func NewNetwork(tb testing.TB) *Network {
	tb.Helper()
	n := &Network{
		server:  toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()),
		paths:   map[string]*path{},
		changed: make(chan struct{}),
	}
	tb.Cleanup(n.Close)
	return n
}

// DialContext connects to a server by way of this network. While the network is cut or held it waits, until ctx ends
// (then the error wraps ctx.Err()) or the network heals. A server that is down accepts here and closes at once, instead
// of refusing.
func (n *Network) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	if err := n.awaitOpen(ctx); err != nil {
		return nil, fmt.Errorf("containers: dial %s: %w", addr, err)
	}
	local, err := n.path(addr)
	if err != nil {
		return nil, err
	}
	return new(net.Dialer).DialContext(ctx, network, local)
}

// Addr returns a local address that leads to a server by way of this network.
func (n *Network) Addr(tb testing.TB, addr string) string {
	tb.Helper()
	local, err := n.path(addr)
	if err != nil {
		tb.Fatal(err)
	}
	return local
}

// Cut makes a black hole: everything sent from now on, in both directions, is lost, and neither side is told, not even
// of a connection that the other side closes. Heal then closes the connections that lost something.
func (n *Network) Cut() { n.change(func() { n.cut = true }) }

// Hold keeps everything sent from now on, in both directions, and delivers it in order at Heal: a partition short enough
// for TCP to get over. A request may so reach the server long after its sender has given up.
func (n *Network) Hold() { n.change(func() { n.held = true }) }

// Stall keeps what is sent from now on to servers, on the connections that are open, and delivers it at Heal, as after the
// loss of a packet. New connections pass: their requests overtake those.
func (n *Network) Stall() {
	n.change(func() { n.eachConnection(func(c *connection) { c.stalled = true }) })
}

// Slow delays everything that servers send by d. Requests arrive at once; Slow(0) ends it.
func (n *Network) Slow(d time.Duration) { n.change(func() { n.slow = d }) }

// DropReply lets the next request that contains these bytes reach its server, which carries it out, but drops the reply
// and then closes the connection: the client cannot know what happened. An empty string is in every request; what a
// driver sends by itself on new connections counts too. It happens once, to one connection; the others are not touched.
func (n *Network) DropReply(request string) { n.change(func() { n.drop = &request }) }

// Disconnect closes all open connections once; new ones pass.
func (n *Network) Disconnect() {
	n.change(func() { n.eachConnection(func(c *connection) { c.broken = true }) })
}

// Heal ends all faults, also a DropReply that has not happened yet.
func (n *Network) Heal() {
	n.change(func() {
		n.cut, n.held, n.slow, n.drop = false, false, 0, nil
		n.eachConnection(func(c *connection) { c.stalled = false })
	})
}

// RoundTrips counts the times that a server answered something that this client sent, on all connections so far. What a
// client sends at once counts once, however many commands it holds (more than 32 KB may count more than once); what
// servers send unasked does not count. Take the difference of two calls, on connections that are warm: opening one takes
// round trips too.
func (n *Network) RoundTrips() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.trips
}

// change changes the state and tells all who wait for a change.
func (n *Network) change(do func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.announce(do)
}

// eachConnection goes through the open connections, within a change.
func (n *Network) eachConnection(do func(*connection)) {
	for _, path := range n.paths {
		for conn := range path.conns {
			do(conn)
		}
	}
}

func (n *Network) announce(do func()) {
	do()
	close(n.changed)
	n.changed = make(chan struct{})
}

// awaitOpen waits until nothing stops a new connection.
func (n *Network) awaitOpen(ctx context.Context) error {
	for {
		n.mu.Lock()
		closed, blocked, changed := n.closed, n.cut || n.held, n.changed
		n.mu.Unlock()
		switch {
		case closed:
			return errClosed
		case !blocked:
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// path returns the local address that leads to a server, and opens it on first use.
func (n *Network) path(addr string) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return "", errClosed
	}
	if p := n.paths[addr]; p != nil {
		return p.proxy.Listen, nil
	}
	p := &path{network: n, conns: map[*connection]struct{}{}}
	p.proxy = toxiproxy.NewProxy(n.server, addr, "127.0.0.1:0", addr)
	unregister := register(p)
	for _, direction := range []string{requests, replies} {
		if _, err := p.proxy.Toxics.AddToxicJson(strings.NewReader(p.valveJSON(direction))); err != nil {
			unregister()
			return "", fmt.Errorf("containers: prepare a way to %s: %w", addr, err)
		}
	}
	if err := p.proxy.Start(); err != nil {
		unregister()
		return "", fmt.Errorf("containers: open a way to %s: %w", addr, err)
	}
	p.close = func() {
		p.proxy.Stop()
		unregister()
	}
	n.paths[addr] = p
	return p.proxy.Listen, nil
}

// Close ends the network and all of its connections, before the test ends. It may be called twice.
func (n *Network) Close() {
	n.change(func() { n.closed = true })
	for _, path := range n.paths { // nobody adds to them any more
		path.close()
	}
}
