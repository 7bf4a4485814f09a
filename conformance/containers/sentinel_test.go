package containers_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/anylock/anylock/conformance/containers"
)

func TestSentinelPromotesTheReplica(t *testing.T) {
	ctx := patience(t)
	sentinel := containers.RedisSentinel(t)
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: sentinel.MasterName, SentinelAddrs: sentinel.Addrs,
	})
	defer client.Close()
	succeed(t, "SET", client.Set(ctx, "key", "1", 0))

	first, err := sentinel.Master(ctx)
	if err != nil || first != sentinel.Nodes[0].Addr {
		t.Fatalf("master %s, %v, want %s", first, err, sentinel.Nodes[0].Addr)
	}
	second, err := sentinel.Failover(ctx)
	if err != nil || second != sentinel.Nodes[1].Addr {
		t.Fatalf("Failover: %s, %v, want %s", second, err, sentinel.Nodes[1].Addr)
	}
	succeed(t, "SET after the failover", client.Set(ctx, "key", "2", 0))
}

func TestSentinelReplacesAKilledMaster(t *testing.T) {
	ctx := patience(t)
	sentinel := containers.RedisSentinel(t)
	old := sentinel.Nodes[0]
	if err := old.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	master, err := sentinel.AwaitMaster(ctx, old.Addr)
	if err != nil {
		t.Fatal(err)
	}
	succeed(t, "SET", newClient(t, &containers.Server{Addrs: []string{master}}, nil).Set(ctx, "key", "1", 0))
	if err := old.Restart(ctx); err != nil {
		t.Error(err)
	}
}
