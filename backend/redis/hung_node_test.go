package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/conformance/containers"
)

const hungTimeout = 3 * time.Second // for a request

func openLocker(t *testing.T, url string) *anylock.Locker {
	t.Helper()
	l, err := anylock.Open(t.Context(), url, anylock.WithLogger(nil), anylock.WithRequestTimeout(hungTimeout))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

// acquireSoon acquires within the time in which a client must be back after another server has taken over.
func acquireSoon(t *testing.T, l *anylock.Locker, name string) *anylock.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*hungTimeout)
	defer cancel()
	for {
		lease, err := l.Acquire(ctx, name)
		if err == nil {
			return lease
		}
		if !errors.Is(err, anylock.ErrUnavailable) || ctx.Err() != nil {
			t.Fatalf("%q, two request timeouts after the promotion: %v", name, err)
		}
	}
}

func clusterURL(s *containers.Server) string {
	return "redis://" + strings.Join(s.Addrs, ",") + "?cluster=true"
}

// nodesOf sorts names by the address of the master that has them.
func nodesOf(t *testing.T, s *containers.Server, n int) map[string][]string {
	t.Helper()
	b := open(t, clusterURL(s))
	names := map[string][]string{}
	for i := range n {
		name := fmt.Sprintf("%s-%d", t.Name(), i)
		node, err := b.cluster.MasterForKey(t.Context(), keysFor(defaultPrefix, name).lock)
		if err != nil {
			t.Fatal(err)
		}
		names[node.Options().Addr] = append(names[node.Options().Addr], name)
	}
	return names
}

// A master of a Cluster that hangs costs the leases on it, and no others: neither renewals nor the releases of Close.
func TestClusterMasterThatHangsCostsOnlyItsOwn(t *testing.T) {
	server := containers.RedisCluster(t)
	byNode := nodesOf(t, server, 600)
	l := openLocker(t, clusterURL(server)+"&ttl=4s")
	leases := map[string][]*anylock.Lease{}
	for node, names := range byNode {
		for _, name := range names {
			lease, err := l.Acquire(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			leases[node] = append(leases[node], lease)
		}
	}
	hung := server.Nodes[0]
	if err := hung.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, lease := range leases[hung.Addr] {
		<-lease.Done()
	}
	time.Sleep(4 * time.Second) // another whole TTL
	for node, all := range leases {
		for _, lease := range all {
			if err := lease.Err(); err != nil && node != hung.Addr {
				t.Fatalf("%q, on a healthy node, is lost: %v", lease.Name(), err)
			}
		}
	}
	_ = l.Close(t.Context())
	for _, node := range server.Nodes[1:] {
		c := redis.NewClient(&redis.Options{Addr: node.Addr})
		for keys := c.Scan(t.Context(), 0, defaultPrefix+"*", 1000).Iterator(); keys.Next(t.Context()); {
			if !strings.Contains(keys.Val(), "\x00") {
				t.Errorf("left on a healthy node: %q", keys.Val())
			}
		}
		_ = c.Close()
	}
}

func TestClusterReplicaTakesOver(t *testing.T) {
	for _, fault := range []string{"kill", "freeze"} {
		t.Run(fault, func(t *testing.T) {
			server := containers.RedisClusterWithReplicas(t)
			failing, replica := server.Nodes[0], server.Nodes[3]
			names := nodesOf(t, server, 60)[failing.Addr]
			l := openLocker(t, clusterURL(server)+"&wait=1&waittimeout=1s")
			var leases []*anylock.Lease
			for _, name := range names {
				lease, err := l.Acquire(t.Context(), name)
				if err != nil {
					t.Fatal(err)
				}
				leases = append(leases, lease)
			}
			// Another that runs, since the new master has no replica to wait for; it has connections to all masters.
			running := openLocker(t, clusterURL(server))
			for i := range 20 {
				_ = acquireSoon(t, running, fmt.Sprint("warm-", i)).Release(t.Context())
			}
			hurt := failing.Kill
			if fault == "freeze" {
				hurt = failing.Pause
			}
			if err := hurt(t.Context()); err != nil {
				t.Fatal(err)
			}
			c := redis.NewClient(&redis.Options{Addr: replica.Addr})
			defer c.Close()
			for {
				role, err := c.Do(t.Context(), "ROLE").Slice()
				if err != nil {
					t.Fatal(err)
				}
				if role[0] == "master" {
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
			fresh := ""
			for i := 0; fresh == ""; i++ {
				if slotOf(keysFor(defaultPrefix, fmt.Sprint("new-", i)).lock) < slotCount/3 {
					fresh = fmt.Sprint("new-", i)
				}
			}
			_ = acquireSoon(t, running, fresh).Release(t.Context())
			_ = acquireSoon(t, openLocker(t, clusterURL(server)), fresh).Release(t.Context())
			for _, lease := range leases {
				eventually(t, "the new master renews "+lease.Name(), func() bool { return lease.Renew(t.Context()) == nil || lease.Err() != nil })
				if err := lease.Err(); err != nil {
					t.Fatalf("a lease that the new master has is lost: %v", err)
				}
			}
		})
	}
}

// The master is frozen, and one of the sentinels with it: whichever that is, running clients and new ones find the new master.
func TestSentinelFrozenWithTheMaster(t *testing.T) {
	for i := range 3 {
		t.Run(fmt.Sprint("sentinel ", i), func(t *testing.T) {
			server := containers.RedisSentinel(t)
			url := "redis://" + strings.Join(server.Addrs, ",") + "?sentinel=" + server.MasterName
			running := openLocker(t, url)
			for k := range 20 { // several connections, all of them to the old master
				lease, err := running.Acquire(t.Context(), fmt.Sprint("held-", k))
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = lease.Release(t.Context()) }()
			}
			master, err := server.Master(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := server.Nodes[2+i].Pause(t.Context()); err != nil {
				t.Fatal(err)
			}
			_ = acquireSoon(t, openLocker(t, url), "before").Release(t.Context())
			if err := server.Node(master).Pause(t.Context()); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := server.AwaitMaster(ctx, master); err != nil {
				t.Fatal(err)
			}
			_ = acquireSoon(t, running, "running").Release(t.Context())
			_ = acquireSoon(t, openLocker(t, url), "new").Release(t.Context())
		})
	}
}
