package containers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/testcontainers/testcontainers-go"
)

const (
	sentinelMaster = "anylock"
	sentinelCount  = 3
	sentinelQuorum = "2"

	// sentinelDownAfter is how long a master is silent before it is taken to be down.
	sentinelDownAfter = time.Second
)

// Sentinel is a master of Redis with a replica, and three sentinels that promote the replica when the master fails. The
// Nodes are the first master, the replica and the sentinels, in this order; Addrs holds the sentinels' addresses only.
type Sentinel struct {
	*Server

	// MasterName is what clients ask the sentinels for.
	MasterName string
}

// RedisSentinel starts Redis with three sentinels. ANYLOCK_TEST_REDIS_SENTINEL names sentinels to use instead. The server is
// never shared: a failover changes it for good.
func RedisSentinel(tb testing.TB, opts ...Option) *Sentinel {
	tb.Helper()
	o := collect(opts)
	if named := os.Getenv("ANYLOCK_TEST_REDIS_SENTINEL"); named != "" && len(o.args) == 0 {
		master, addrs, found := strings.Cut(named, "@")
		if !found {
			tb.Fatalf("ANYLOCK_TEST_REDIS_SENTINEL: %q is not like master@host:port,host:port", named)
		}
		return &Sentinel{Server: &Server{scheme: "redis", Addrs: strings.Split(addrs, ",")}, MasterName: master}
	}

	daemons := func(ports []int) []daemon {
		node := func(port int, args ...string) daemon {
			args = append(redisArgs(args...), "--replica-announce-ip", "127.0.0.1",
				"--repl-diskless-sync-delay", "0")
			return daemon{port: port, program: "redis-server", args: append(args, o.args...)}
		}
		daemons := []daemon{node(ports[0]), node(ports[1], "--replicaof", "127.0.0.1 "+strconv.Itoa(ports[0]))}
		for i, port := range ports[2:] {
			daemons = append(daemons, daemon{port: port, program: "redis-sentinel", args: []string{
				sentinelConfig(i), "--protected-mode", "no", "--sentinel announce-ip", "127.0.0.1",
			}})
		}
		return daemons
	}
	var files []testcontainers.ContainerFile
	for i := range sentinelCount { // a sentinel insists on a file, and writes its state to it
		files = append(files, testcontainers.ContainerFile{
			Reader: bytes.NewReader([]byte("\n")), ContainerFilePath: sentinelConfig(i), FileMode: 0o666,
		})
	}
	server := obtain(tb, "", spec{
		image:   redisImage,
		scheme:  "redis",
		ports:   2 + sentinelCount,
		files:   files,
		command: func(ports []int) []string { return superviseDaemons(daemons(ports)...) },
		set: func(server *Server, ports []int) {
			for _, d := range daemons(ports) {
				server.Nodes = append(server.Nodes, d.node(server))
			}
			server.Addrs = server.Addrs[2:]
		},
		ready: watchMaster,
	})
	return &Sentinel{Server: server, MasterName: sentinelMaster}
}

func sentinelConfig(i int) string { return fmt.Sprintf("/sentinel-%d.conf", i) }

// watchMaster tells the sentinels to watch the master, once that has its replica, and returns nil when they know of the
// replica and of each other, and could promote it.
func watchMaster(ctx context.Context, server *Server) error {
	var errs []error
	for _, addr := range server.Addrs {
		errs = append(errs, watchMasterFrom(ctx, server, addr))
	}
	return errors.Join(errs...)
}

func watchMasterFrom(ctx context.Context, server *Server, addr string) error {
	known, err := ask(ctx, addr, "SENTINEL", "REPLICAS", sentinelMaster)
	if unknown := replyError(""); errors.As(err, &unknown) {
		return monitor(ctx, server, addr)
	}
	if err != nil {
		return err
	}
	if i := slices.Index(known, "master-link-status"); i < 0 || known[i+1] != "ok" {
		return errors.New("a sentinel does not know of a replica in step")
	}
	master, err := ask(ctx, addr, "SENTINEL", "MASTER", sentinelMaster)
	if err != nil {
		return err
	}
	if i := slices.Index(master, "num-other-sentinels"); i < 0 || master[i+1] != strconv.Itoa(sentinelCount-1) {
		return errors.New("the sentinels do not know of each other")
	}
	return nil
}

// monitor is done late on purpose: a sentinel asks a master for its replicas at once, and then only every 10 s.
func monitor(ctx context.Context, server *Server, sentinel string) error {
	role, err := ask(ctx, server.Nodes[0].Addr, "INFO", "replication")
	if err != nil {
		return err
	}
	if !strings.Contains(role[0], "state=online") {
		return errors.New("the replica is not in step")
	}

	host, port, _ := strings.Cut(server.Nodes[0].Addr, ":")
	for _, command := range [][]string{
		{"SENTINEL", "DEBUG", "info-period", "500"}, // ms
		{"SENTINEL", "MONITOR", sentinelMaster, host, port, sentinelQuorum},
		{"SENTINEL", "SET", sentinelMaster, "down-after-milliseconds", strconv.FormatInt(sentinelDownAfter.Milliseconds(), 10)},
		{"SENTINEL", "SET", sentinelMaster, "failover-timeout", "5000"}, // ms
	} {
		if _, err := ask(ctx, sentinel, command...); err != nil {
			return fmt.Errorf("%v: %w", command, err)
		}
	}
	return errors.New("the sentinel has not looked at the master yet")
}

// Master returns the address of the node that most sentinels take for the master.
func (s *Sentinel) Master(ctx context.Context) (string, error) {
	var mu sync.Mutex
	var errs []error
	votes := map[string]int{}
	var asking sync.WaitGroup
	for _, sentinel := range s.Addrs {
		asking.Go(func() {
			bounded, cancel := context.WithTimeout(ctx, 300*time.Millisecond) // one may be frozen
			defer cancel()
			addr, err := ask(bounded, sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.MasterName)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				errs = append(errs, err)
			case len(addr) == 2:
				votes[addr[0]+":"+addr[1]]++
			}
		})
	}
	asking.Wait()
	for addr, n := range votes {
		if n > len(s.Addrs)/2 {
			return addr, nil
		}
	}
	return "", fmt.Errorf("containers: the sentinels do not agree on a master: %v, %w", votes, errors.Join(errs...))
}

// Failover promotes the replica although the master is well, and returns the new master's address when that takes
// writes. What the old master had not replicated yet is lost; the old master becomes a replica shortly after.
func (s *Sentinel) Failover(ctx context.Context) (string, error) {
	if !s.CanFault() {
		return "", ErrNotOurs
	}
	old, err := s.Master(ctx)
	if err != nil {
		return "", err
	}
	if _, err := ask(ctx, s.Addr(), "SENTINEL", "FAILOVER", s.MasterName); err != nil {
		return "", fmt.Errorf("containers: fail over: %w", err)
	}
	return s.AwaitMaster(ctx, old)
}

// AwaitMaster waits until another node than old is master and takes writes, as happens some seconds after old is killed
// or paused, and returns its address.
func (s *Sentinel) AwaitMaster(ctx context.Context, old string) (string, error) {
	var master string
	err := poll(ctx, func(ctx context.Context) error {
		addr, err := s.Master(ctx)
		if err != nil {
			return err
		}
		if addr == old {
			return fmt.Errorf("the master is still %s", old)
		}
		role, err := ask(ctx, addr, "ROLE")
		if err != nil {
			return err
		}
		if role[0] != "master" {
			return fmt.Errorf("%s is still a %s", addr, role[0])
		}
		master = addr
		return nil
	})
	return master, err
}
