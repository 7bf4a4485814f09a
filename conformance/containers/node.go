package containers

import (
	"context"
	"fmt"
	"strings"
	"sync"
)

// Node is one process of a server that has several, such as a Cluster of Redis. Its faults leave the others alone.
type Node struct {
	// Addr is the node's address for clients, as host:port.
	Addr string

	server  *Server
	pidFile string // in the container
	command []string
	ready   func(context.Context) error

	mu     sync.Mutex
	paused bool
	killed bool
}

// Node returns the node at an address, or nil.
func (s *Server) Node(addr string) *Node {
	for _, node := range s.Nodes {
		if node.Addr == addr {
			return node
		}
	}
	return nil
}

// Pause freezes the process: connections stay open and nothing answers.
func (n *Node) Pause(ctx context.Context) error {
	return n.fault(ctx, `kill -STOP "$pid"`, func() { n.paused = true })
}

// Resume ends [Node.Pause].
func (n *Node) Resume(ctx context.Context) error {
	return n.fault(ctx, `kill -CONT "$pid"`, func() { n.paused = false })
}

// Kill ends the process with SIGKILL and returns when it is gone. Until [Node.Restart], new connections are closed by
// the engine, which still holds the port, instead of being refused.
func (n *Node) Kill(ctx context.Context) error {
	const killAndWait = `kill -KILL "$pid"; while kill -0 "$pid" && ! grep -q "^State:.Z" "/proc/$pid/status"; do :; done`
	return n.fault(ctx, killAndWait+" 2>/dev/null; true", func() { n.killed, n.paused = true, false })
}

// Restart starts the process after [Node.Kill], at the same address, and returns when it answers.
func (n *Node) Restart(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, err := n.server.Exec(ctx, n.command...); err != nil {
		return err
	}
	if err := poll(ctx, n.ready); err != nil {
		return fmt.Errorf("containers: node %s is not ready: %w", n.Addr, err)
	}
	n.killed = false
	return nil
}

// fault runs a script in the container with the process's number in $pid.
func (n *Node) fault(ctx context.Context, script string, done func()) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	script = "pid=$(cat " + n.pidFile + ") && [ -n \"$pid\" ] || exit 1\n" + script
	if output, err := n.server.Exec(ctx, "sh", "-c", script); err != nil {
		return fmt.Errorf("node %s: %w %s", n.Addr, err, strings.TrimSpace(output))
	}
	done()
	return nil
}

func (n *Node) recover(ctx context.Context) error {
	n.mu.Lock()
	paused, killed := n.paused, n.killed
	n.mu.Unlock()
	switch {
	case killed:
		return n.Restart(ctx)
	case paused:
		return n.Resume(ctx)
	}
	return nil
}
