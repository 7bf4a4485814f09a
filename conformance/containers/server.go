package containers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	tcexec "github.com/testcontainers/testcontainers-go/exec"
)

// startTimeout bounds the start of a server until it is ready, and each fault that waits for an effect.
const startTimeout = 60 * time.Second

// ErrNotOurs is returned by every node fault on a server that the environment named: it may serve others.
var ErrNotOurs = errors.New("containers: the server was not started by this test, so it takes no faults")

// Server is one container with the processes of a store, or servers elsewhere that the environment named.
//
// Its methods may be called from several goroutines, but faults of the same server should not overlap.
type Server struct {
	// Addrs are the addresses for clients, as host:port. They stay the same for the server's life.
	Addrs []string

	// Nodes are the processes of a server that has several, in the order of Addrs; empty otherwise.
	Nodes []*Node

	// Username and Password are empty if the server asks for none.
	Username, Password string

	// TLS is what a client needs to connect; nil if the server speaks plain text.
	TLS *tls.Config

	scheme    string
	docker    *client.Client
	container testcontainers.Container // nil if not ours
	ready     func(context.Context, *Server) error

	mu     sync.Mutex
	paused bool
	killed bool
}

// spec says how to start a server.
type spec struct {
	image  image
	scheme string // of URLs
	ports  int    // how many

	// command is run in the container, which publishes these ports.
	command func(ports []int) []string
	files   []testcontainers.ContainerFile
	data    string // the directory where the server keeps much, if it does

	// set completes the server before it is asked whether it is ready; may be nil.
	set func(*Server, []int)

	// ready returns nil as soon as clients are served; it is polled with a short context.
	ready func(context.Context, *Server) error
}

// start runs a server and waits until it is ready.
func start(spec spec) (*Server, error) {
	docker, err := engine()
	if err != nil {
		return nil, err
	}
	imageName, err := spec.image.choose(docker)
	if err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	const attempts = 3 // another process may take one of our ports first
	for attempt := 1; ; attempt++ {
		ports, err := freePorts(ctx, spec.ports)
		if err != nil {
			return nil, err
		}
		exposed, bindings := publish(ports)
		started, err := run(ctx, testcontainers.ContainerRequest{
			Image:        imageName,
			Entrypoint:   []string{"sh", "-c", `exec "$@"`, "sh"}, // the command as it is given, in every image
			Cmd:          spec.command(ports),
			Files:        spec.files,
			ExposedPorts: exposed,
			HostConfigModifier: func(host *container.HostConfig) {
				host.PortBindings = bindings
				if spec.data != "" { // a volume, as the file systems of containers can be slow
					host.Mounts = append(host.Mounts, mount.Mount{Type: mount.TypeVolume, Target: spec.data})
				}
			},
		})
		if err != nil && attempt < attempts && strings.Contains(err.Error(), "port is already allocated") {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("containers: start %s: %w", imageName, err)
		}

		server := &Server{scheme: spec.scheme, docker: docker, container: started, ready: spec.ready}
		for _, port := range ports {
			server.Addrs = append(server.Addrs, loopback(port))
		}
		if spec.set != nil {
			spec.set(server, ports)
		}
		if err := server.waitReady(ctx); err != nil {
			return nil, errors.Join(err, server.stop())
		}
		return server, nil
	}
}

// waitReady polls the server until it serves clients.
func (s *Server) waitReady(ctx context.Context) error {
	err := poll(ctx, func(ctx context.Context) error { return s.ready(ctx, s) })
	if err != nil {
		return fmt.Errorf("containers: %s is not ready: %w; its log ends with: %s", s.URL(), err, s.logTail())
	}
	return nil
}

// poll calls check until it returns nil, or until ctx ends; then it returns the last error of check. It asks less often and
// waits longer for an answer as time goes on: on a busy machine, those who ask and give up keep a server from starting.
func poll(ctx context.Context, check func(context.Context) error) error {
	interval, patience := 10*time.Millisecond, time.Second
	for {
		bounded, cancel := context.WithTimeout(ctx, patience)
		err := check(bounded)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(interval):
		}
		interval, patience = min(interval*3/2, 500*time.Millisecond), min(patience*3/2, 20*time.Second)
	}
}

func (s *Server) logTail() string {
	const length = 1000
	logs, err := s.container.Logs(context.Background())
	if err != nil {
		return err.Error()
	}
	defer logs.Close()
	text, _ := io.ReadAll(logs)
	return string(text[max(0, len(text)-length):])
}

// Addr is the first of Addrs, the only one of a single server.
func (s *Server) Addr() string { return s.Addrs[0] }

// URL is the connection string of the first address, such as redis://127.0.0.1:20001 or rediss://user:word@host:port.
func (s *Server) URL() string {
	login := ""
	if s.Username != "" {
		login = s.Username + ":" + s.Password + "@"
	}
	return s.scheme + "://" + login + s.Addr()
}

// CanFault reports whether node faults are to be had: false for a server that the environment named.
func (s *Server) CanFault() bool { return s.container != nil }

// Exec runs a command in the container and returns its output. An exit status other than 0 is an error with the output
// in its message.
func (s *Server) Exec(ctx context.Context, command ...string) (string, error) {
	if !s.CanFault() {
		return "", ErrNotOurs
	}
	status, reader, err := s.container.Exec(ctx, command, tcexec.Multiplexed())
	if err != nil {
		return "", fmt.Errorf("containers: run %q: %w", command, err)
	}
	output, err := io.ReadAll(reader)
	if err != nil {
		return "", fmt.Errorf("containers: read the output of %q: %w", command, err)
	}
	if status != 0 {
		return string(output), fmt.Errorf("containers: %q exited with %d: %s", command, status, output)
	}
	return string(output), nil
}

// stop ends the server for good.
func (s *Server) stop() error {
	if !s.CanFault() {
		return nil
	}
	// The engine cannot remove what is paused.
	return errors.Join(s.Resume(context.Background()), remove(s.container))
}
