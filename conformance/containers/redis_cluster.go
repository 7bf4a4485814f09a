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
	return redisCluster(tb, "redis-cluster", clusterMasters, opts)
}

// RedisClusterWithReplicas starts a Redis Cluster of three masters with a replica each, which takes over some 3 s after its
// master has failed. Its Nodes are the masters and then their replicas, in the same order; Addrs has all six.
func RedisClusterWithReplicas(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	return redisCluster(tb, "redis-cluster-with-replicas", 2*clusterMasters, opts)
}

func redisCluster(tb testing.TB, key string, nodes int, opts []Option) *Server {
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
	return obtain(tb, o.key(key), spec{
		image:  redisImage,
		scheme: "redis",
		ports:  nodes,
		command: func(ports []int) []string {
			var daemons []daemon
			for _, port := range ports {
				daemons = append(daemons, master(port))
			}
			return superviseDaemons(daemons...)
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
	for i, addr := range server.Addrs[:clusterMasters] {
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
	for i, addr := range server.Addrs {
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
		if i >= clusterMasters {
			if err := replicate(ctx, addr, server.Addrs[i-clusterMasters]); err != nil {
				errs = append(errs, err)
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

// replicate makes one node a replica of another, and returns nil when it is one that could take over.
func replicate(ctx context.Context, addr, master string) error {
	role, err := ask(ctx, addr, "INFO", "replication")
	if err != nil {
		return err
	}
	if strings.Contains(role[0], "role:slave") {
		if !strings.Contains(role[0], "master_link_status:up") {
			return fmt.Errorf("%s is not yet in step", addr)
		}
		return nil
	}
	id, err := ask(ctx, master, "CLUSTER", "MYID")
	if err != nil {
		return err
	}
	if _, err := ask(ctx, addr, "CLUSTER", "REPLICATE", id[0]); err != nil {
		return err
	}
	return fmt.Errorf("%s is not a replica yet", addr)
}
