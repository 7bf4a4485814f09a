package containers_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/anylock/anylock/conformance/containers"
)

func TestClusterHasThreeMastersAndAllSlots(t *testing.T) {
	ctx := patience(t)
	server := containers.RedisCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: server.Addrs})
	defer client.Close()

	shards, err := client.ClusterShards(ctx).Result()
	if err != nil {
		t.Fatal(err)
	}
	slots, masters := int64(0), map[string]bool{}
	for _, shard := range shards {
		for _, r := range shard.Slots {
			slots += r.End - r.Start + 1
		}
		for _, node := range shard.Nodes {
			masters[node.ID] = node.Role == "master"
		}
	}
	if slots != 16384 || len(masters) != 3 {
		t.Errorf("%d slots on %v, want 16384 on 3 masters", slots, masters)
	}

	for _, key := range []string{"a", "b", "c", "d", "e", "f"} { // on all of the nodes
		succeed(t, "SET", client.Set(ctx, key, key, 0))
	}

	t.Run("one node down", func(t *testing.T) {
		owner, err := client.MasterForKey(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		node := server.Node(owner.Options().Addr)
		if err := node.Kill(ctx); err != nil {
			t.Fatal(err)
		}
		if err := owner.Ping(ctx).Err(); err == nil {
			t.Error("a killed node answered")
		}
		if err := node.Restart(ctx); err != nil {
			t.Fatal(err)
		}
		succeed(t, "PING after Restart", owner.Ping(ctx))
	})

	t.Run("one node paused", func(t *testing.T) {
		node := server.Nodes[0]
		if err := node.Pause(ctx); err != nil {
			t.Fatal(err)
		}
		pingHangs(t, newClient(t, &containers.Server{Addrs: []string{node.Addr}}, nil))
		succeed(t, "PING of another node",
			newClient(t, &containers.Server{Addrs: []string{server.Nodes[1].Addr}}, nil).Ping(ctx))
		if err := node.Resume(ctx); err != nil {
			t.Fatal(err)
		}
		succeed(t, "PING after Resume", newClient(t, &containers.Server{Addrs: []string{node.Addr}}, nil).Ping(ctx))
	})

	t.Run("all nodes restarted", func(t *testing.T) {
		if err := server.Restart(ctx); err != nil {
			t.Fatal(err)
		}
	})
}
