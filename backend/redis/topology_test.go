package redis

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/conformance/containers"
)

func TestCluster(t *testing.T) {
	server := containers.RedisCluster(t, containers.Shared())
	url := "redis://" + strings.Join(server.Addrs, ",") + "?cluster=true"
	b := open(t, url)
	names := append(randomNames(300), oddNames...)
	var grants []anylock.Grant
	seen := map[string]bool{}
	for _, name := range names {
		if seen[name] {
			continue
		}
		seen[name] = true
		grants = append(grants, mustAcquire(t, b, request(name, newID())))
		_, err := b.Acquire(t.Context(), request(name, newID()))
		_ = wantHeld(t, err)
	}
	for _, node := range server.Nodes { // in the middle of a batch
		c := redis.NewClient(&redis.Options{Addr: node.Addr})
		c.ScriptFlush(t.Context())
		_ = c.Close()
	}
	for i, r := range b.Renew(t.Context(), grants) {
		if r.Err != nil {
			t.Fatalf("renew %q: %v", grants[i].Name, r.Err)
		}
	}
	grants[3].ID = newID()
	woken := mustWatch(t, t.Context(), b, grants[0].Name)
	far := mustWatch(t, t.Context(), open(t, url), grants[0].Name)
	for i, err := range b.Release(t.Context(), grants) {
		if i == 3 {
			wantClass(t, err, anylock.ErrLost)
		} else if err != nil {
			t.Fatalf("release %q: %v", grants[i].Name, err)
		}
	}
	wantWoken(t, woken)
	wantWoken(t, far)

	waiting := open(t, url+"&wait=1&waittimeout=10ms")
	_, err := waiting.Acquire(t.Context(), request("w", newID()))
	wantClass(t, err, anylock.ErrUnavailable)
	if !strings.Contains(err.Error(), "0 of 1 replicas") {
		t.Error(err)
	}
}

func TestClusterKnowsWhoHeardARelease(t *testing.T) {
	url := "redis://" + strings.Join(containers.RedisCluster(t, containers.Shared()).Addrs, ",") + "?cluster=true"
	b, other := open(t, url), open(t, url)
	for i := range 30 { // on all nodes
		name := fmt.Sprint(unique(t), i)
		mustWatch(t, t.Context(), b, name)
		mustRelease(t, b, mustAcquire(t, b, request(name, newID())))
		if b.yielder.Pending() {
			t.Fatalf("%q: it yields to itself", name)
		}
		mustWatch(t, t.Context(), other, name)
		mustRelease(t, b, mustAcquire(t, b, request(name, newID())))
		if !b.yielder.Pending() {
			t.Fatalf("%q: nothing is owed to another client that listens", name)
		}
		b.yielder.Yield(t.Context(), name, time.Millisecond)
	}
}

func TestClusterNodeThatRestartsIsListenedToAgain(t *testing.T) {
	server := containers.RedisCluster(t)
	b, name := open(t, server.URL()+"?cluster=true"), unique(t)
	woken := mustWatch(t, t.Context(), b, name)
	master, err := b.cluster.MasterForKey(t.Context(), keysFor("lock:", name).lock)
	if err != nil {
		t.Fatal(err)
	}
	node := server.Node(master.Options().Addr)
	if err := node.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := node.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantWoken(t, woken) // a release may have been missed
	var g anylock.Grant
	eventually(t, "the cluster is well again", func() bool {
		g, err = b.Acquire(t.Context(), request(name, newID()))
		return err == nil
	})
	mustRelease(t, b, g)
	wantWoken(t, woken)
}

func TestClusterKeySlots(t *testing.T) {
	server := containers.RedisCluster(t, containers.Shared())
	c := rawClient(t, server)
	for _, name := range append(randomNames(200), oddNames...) {
		k := keysFor("lock:", name)
		for _, key := range []string{k.lock, k.counter} {
			if slot := c.ClusterKeySlot(t.Context(), key).Val(); slot != int64(slotOf(key)) {
				t.Fatalf("%q: the server says slot %d, we %d", key, slot, slotOf(key))
			}
		}
	}
}

func TestClusterWithTheDocumentedACL(t *testing.T) {
	server := containers.RedisCluster(t)
	for _, node := range server.Nodes {
		c := redis.NewClient(&redis.Options{Addr: node.Addr})
		setUser(t, c, append(documentedRules(t), "+cluster|slots", "+command")...)
		_ = c.Close()
	}
	useAll(t, t.Context(), open(t, locker(server)+"?cluster=true"))
}

func TestPlainClientToACluster(t *testing.T) {
	server := containers.RedisCluster(t, containers.Shared())
	b := open(t, server.URL())
	for i := range 20 {
		_, err := b.Acquire(t.Context(), request(fmt.Sprint(unique(t), i), newID()))
		if err != nil {
			wantClass(t, err, anylock.ErrInvalid)
			if !strings.Contains(err.Error(), "cluster=true") {
				t.Error(err)
			}
			return
		}
	}
	t.Error("no name was on another node")
}

func TestClusterURLToAPlainServer(t *testing.T) {
	_, err := Open(t.Context(), shared(t).URL()+"?cluster=true")
	wantClass(t, err, anylock.ErrInvalid)
}

func TestSentinel(t *testing.T) {
	server := containers.RedisSentinel(t)
	url := server.URL() + "?wait=1&waittimeout=1s&sentinel=" + server.MasterName
	b := open(t, url)
	if g := b.Describe().Guarantees; g.Survives&(anylock.ReplicaPromotion|anylock.MinorityLoss) != 0 {
		t.Errorf("promises too much: %v", g.Survives)
	}
	useAll(t, t.Context(), b)
	g := mustAcquire(t, b, request("x", newID())) // on the replica by now
	woken := mustWatch(t, t.Context(), b, "x")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := server.Failover(ctx); err != nil {
		t.Fatal(err)
	}
	second := open(t, server.URL()+"?sentinel="+server.MasterName)
	_, err := second.Acquire(t.Context(), request("x", newID()))
	_ = wantHeld(t, err)
	eventually(t, "the client has found the new master", func() bool {
		return second.Renew(t.Context(), []anylock.Grant{g})[0].Err == nil
	})
	mustRelease(t, second, g)
	next := mustAcquire(t, second, request("x", newID()))
	if next.Token <= g.Token {
		t.Errorf("token %d after %d", next.Token, g.Token)
	}
	// The old master, if it lives, keeps the subscription until the sentinel closes it, some 10 s later.
	select {
	case <-woken:
	case <-time.After(30 * time.Second):
		t.Error("not woken")
	}
}

func TestUnknownMaster(t *testing.T) {
	server := containers.RedisSentinel(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err := Open(ctx, server.URL()+"?sentinel=nobody")
	wantClass(t, err, anylock.ErrInvalid)
}
