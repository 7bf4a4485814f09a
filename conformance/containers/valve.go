package containers

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
)

// A valve is the one toxic on each direction of each connection; it asks the Network what to do with what comes by.
// toxiproxy's own toxics are not used: adding and removing them while data flows can block for seconds, they do not see
// both directions of a connection, and "timeout" tells the other side when one side closes.

const (
	// requests and replies are toxiproxy's names of the two directions.
	requests = "upstream"
	replies  = "downstream"

	valveType = "anylock-valve"

	// quiet is how long a server is silent before its answer is taken to be complete, and thrown away by DropReply: the
	// first bytes after a request may be of the protocol (HTTP/2) or for another request.
	quiet = 50 * time.Millisecond

	// valveBuffer is in chunks; it lets data that Slow delays overlap.
	valveBuffer = 1024
)

// path leads to one server.
type path struct {
	network *Network
	id      int64
	proxy   *toxiproxy.Proxy
	close   func()

	// Guarded by network.mu:
	conns    map[*connection]struct{}
	starting *connection // has one of its two directions yet
}

// connection is one TCP connection, shared by the valves of its two directions and guarded by the network's mutex.
type connection struct {
	path *path

	broken   bool // to be closed: it has lost something
	stalled  bool // what is sent to the server has to wait
	asked    bool // a request has passed and no reply since
	dropping bool // the reply to a request that has passed is to be dropped
}

// valve is made by toxiproxy, from JSON, and finds its path by number. Its exported fields are the JSON.
type valve struct {
	Path    int64 `json:"path"`
	Replies bool  `json:"replies"`
}

func (p *path) valveJSON(direction string) string {
	return fmt.Sprintf(`{"type": %q, "stream": %q, "attributes": {"path": %d, "replies": %t}}`,
		valveType, direction, p.id, direction == replies)
}

var paths struct {
	mu   sync.Mutex
	last int64
	byID map[int64]*path
}

var registerValve = sync.OnceFunc(func() { toxics.Register(valveType, new(valve)) })

// register numbers a path so that its valves find it.
func register(p *path) (unregister func()) {
	registerValve()
	paths.mu.Lock()
	defer paths.mu.Unlock()
	if paths.byID == nil {
		paths.byID = map[int64]*path{}
	}
	paths.last++
	p.id = paths.last
	paths.byID[p.id] = p
	return func() {
		paths.mu.Lock()
		defer paths.mu.Unlock()
		delete(paths.byID, p.id)
	}
}

func (v *valve) path() *path {
	paths.mu.Lock()
	defer paths.mu.Unlock()
	return paths.byID[v.Path]
}

// GetBufferSize implements toxics.BufferedToxic.
func (v *valve) GetBufferSize() int { return valveBuffer }

// NewState implements toxics.StatefulToxic. toxiproxy starts the two directions of a connection one after the other, and
// the connections of a proxy too: so the second call is for the same connection as the first.
func (v *valve) NewState() any {
	p := v.path()
	p.network.mu.Lock()
	defer p.network.mu.Unlock()
	if conn := p.starting; conn != nil {
		p.starting = nil
		return conn
	}
	p.starting = &connection{path: p}
	p.conns[p.starting] = struct{}{}
	return p.starting
}

// Pipe implements toxics.Toxic: it passes on what comes in until the connection ends.
func (v *valve) Pipe(stub *toxics.ToxicStub) {
	conn := stub.State.(*connection)
	f := &flow{network: conn.path.network, conn: conn, replies: v.Replies, stub: stub}
	f.run()
}

// flow is one direction of one connection.
type flow struct {
	network *Network
	conn    *connection
	replies bool
	stub    *toxics.ToxicStub
}

// verdict is what to do with a piece of data.
type verdict int

const (
	pass   verdict = iota
	lose           // forget it and go on
	wait           // ask again after a change, or at a time
	hangUp         // close the connection
)

func (f *flow) run() {
	defer f.end()
	var answered <-chan time.Time // fires when the reply that is dropped is complete
	for {
		changed, broken := f.look()
		if broken {
			return
		}
		select {
		case <-changed:
		case <-answered:
			return
		case chunk := <-f.stub.Input:
			switch f.handle(chunk) {
			case hangUp:
				return
			case lose:
				if f.isDropping() {
					answered = time.After(quiet)
				}
			}
		}
	}
}

// handle brings one piece of data, or the end (nil), to its destiny.
func (f *flow) handle(chunk *stream.StreamChunk) verdict {
	for {
		verdict, again, changed := f.judge(chunk)
		switch verdict {
		case wait:
			var timer <-chan time.Time
			if again > 0 {
				timer = time.After(again)
			}
			select {
			case <-timer:
			case <-changed:
			}
		case pass:
			if f.send(chunk) {
				return pass
			}
			return hangUp
		default:
			return verdict
		}
	}
}

// judge decides about a piece of data. For wait it also returns after what time to ask again (0: only after a change).
func (f *flow) judge(chunk *stream.StreamChunk) (verdict, time.Duration, <-chan struct{}) {
	n := f.network
	n.mu.Lock()
	defer n.mu.Unlock()
	end := chunk == nil
	switch {
	case n.closed:
		return hangUp, 0, nil
	case n.cut && end, n.held && !n.cut, f.conn.stalled && !f.replies:
		return wait, 0, n.changed
	case n.cut:
		f.conn.broken = true
		return lose, 0, nil
	case end, f.conn.broken:
		return hangUp, 0, nil
	case f.replies:
		return f.judgeReply(chunk)
	}
	if n.drop != nil && strings.Contains(string(chunk.Data), *n.drop) {
		n.drop = nil
		f.conn.dropping = true
	}
	f.conn.asked = true
	return pass, 0, nil
}

func (f *flow) judgeReply(chunk *stream.StreamChunk) (verdict, time.Duration, <-chan struct{}) {
	n := f.network
	if f.conn.dropping {
		return lose, 0, nil
	}
	if delay := n.slow - time.Since(chunk.Timestamp); delay > 0 {
		return wait, delay, n.changed
	}
	if f.conn.asked {
		f.conn.asked = false
		n.trips++
	}
	return pass, 0, nil
}

// send hands data on, and reports false if the connection ends first.
func (f *flow) send(chunk *stream.StreamChunk) bool {
	for {
		changed, broken := f.look()
		if broken {
			return false
		}
		select {
		case f.stub.Output <- chunk:
			return true
		case <-changed:
		}
	}
}

// look returns a channel that is closed at the next change, and whether the connection has to end. A connection that
// has lost something ends only when the network is whole again: until then nobody may learn of it.
func (f *flow) look() (changed <-chan struct{}, broken bool) {
	n := f.network
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changed, n.closed || f.conn.broken && !n.cut && !n.held
}

func (f *flow) isDropping() bool {
	n := f.network
	n.mu.Lock()
	defer n.mu.Unlock()
	return f.replies && f.conn.dropping
}

// end closes this direction and makes the other one end too. What still comes in is read and forgotten, so that the
// goroutines before this one end as well.
func (f *flow) end() {
	f.network.change(func() {
		f.conn.broken = true
		delete(f.conn.path.conns, f.conn)
	})
	f.stub.Close()
	for chunk := range f.stub.Input {
		_ = chunk
	}
}
