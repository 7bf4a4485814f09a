package containers

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// Several processes of Redis run in one container, on ports that are the same inside and outside: the addresses that
// they tell each other are then those that they tell clients.

// daemon is a process of Redis in a container with others.
type daemon struct {
	port    int
	program string   // redis-server or redis-sentinel
	args    []string // after the configuration file, if there is one
}

// command starts the daemon in the background in a directory of its own, where it finds its state again.
func (d daemon) command() []string {
	args := []string{d.program}
	args = append(args, d.args...)
	args = append(args, "--port", strconv.Itoa(d.port), "--dir", d.dir(), "--pidfile", d.pidFile(), "--daemonize", "yes",
		"--logfile", d.dir()+"/log")
	return args
}

func (d daemon) dir() string     { return "/tmp/" + strconv.Itoa(d.port) }
func (d daemon) pidFile() string { return d.dir() + "/pid" }

// node makes the handle of a daemon for tests.
func (d daemon) node(server *Server) *Node {
	return &Node{
		Addr:    loopback(d.port),
		server:  server,
		pidFile: d.pidFile(),
		command: d.command(),
		ready: func(ctx context.Context) error {
			_, err := ask(ctx, loopback(d.port), "PING")
			return err
		},
	}
}

// superviseDaemons is the main command of the container: it starts the daemons, and stays to collect those that end.
func superviseDaemons(daemons ...daemon) []string {
	var script strings.Builder
	for _, d := range daemons {
		fmt.Fprintf(&script, "mkdir -p %s; '%s' &\n", d.dir(), strings.Join(d.command(), "' '"))
	}
	script.WriteString("while :; do wait; sleep 1; done\n")
	return []string{"sh", "-c", script.String()}
}
