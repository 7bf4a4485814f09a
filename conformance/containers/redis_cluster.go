package containers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	clusterMasters = 3
	clusterSlots   = 16384
)

// RedisCluster starts a Redis Cluster of three masters without replicas, which share all slots. Its Nodes are the
// masters. ANYLOCK_TEST_REDIS_CLUSTER names a cluster to use instead.
func RedisCluster(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	o := collect(opts)
	if named := os.Getenv("ANYLOCK_TEST_REDIS_CLUSTER"); named != "" && len(o.args) == 0 {
		return &Server{scheme: "redis", Addrs: strings.Split(named, ",")}
	}

	master := func(port int) daemon {
		number := strconv.Itoa(port)
		// A node down must not stop the slots of the others: tests want to see what one node's loss does.
		args := redisArgs("--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1",
			"--cluster-announce-port", number, "--cluster-node-timeout", "2000", "--cluster-require-full-coverage", "no")
		return daemon{port: port, program: "redis-server", args: append(args, o.args...)}
	}
	return obtain(tb, o.key("redis-cluster"), spec{
		image:  redisImage,
		scheme: "redis",
		ports:  clusterMasters,
		command: func(ports []int) []string {
			return superviseDaemons(master(ports[0]), master(ports[1]), master(ports[2]))
		},
		set: func(server *Server, ports []int) {
			for _, port := range ports {
				server.Nodes = append(server.Nodes, master(port).node(server))
			}
		},
		ready: joinCluster,
	})
}

// joinCluster brings the cluster one step nearer to its final state, and returns nil if that is reached. It can be
// called again and again, also after a restart.
func joinCluster(ctx context.Context, server *Server) error {
	for i, addr := range server.Addrs {
		info, err := ask(ctx, addr, "CLUSTER", "INFO")
		if err != nil {
			return err
		}
		if !strings.Contains(info[0], "cluster_slots_assigned:0\r") {
			continue
		}
		first, last := i*clusterSlots/clusterMasters, (i+1)*clusterSlots/clusterMasters-1
		_, err = ask(ctx, addr, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last))
		if err != nil {
			return err
		}
		_, err = ask(ctx, addr, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		if err != nil {
			return err
		}
	}

	var errs []error
	for _, addr := range server.Addrs {
		info, err := ask(ctx, addr, "CLUSTER", "INFO")
		if err != nil {
			return err
		}
		state := strings.Fields(info[0])
		if slices.Contains(state, "cluster_known_nodes:1") && addr != server.Addr() {
			host, port, _ := strings.Cut(server.Addr(), ":")
			if _, err := ask(ctx, addr, "CLUSTER", "MEET", host, port); err != nil {
				return err
			}
		}
		for _, want := range []string{"cluster_state:ok", fmt.Sprintf("cluster_slots_ok:%d", clusterSlots)} {
			if !slices.Contains(state, want) {
				errs = append(errs, fmt.Errorf("%s is not yet %s", addr, want))
			}
		}
	}
	return errors.Join(errs...)
}
