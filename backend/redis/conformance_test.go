package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/conformance"
	"github.com/anylock/anylock/conformance/containers"
)

const conformanceTTL = time.Second

func TestConformance(t *testing.T) {
	s := containers.Redis(t)
	conformance.Run(t, withServer(harness(t, single(s)), s))
}

func TestConformanceOfValkey(t *testing.T) {
	s := containers.Valkey(t)
	conformance.Run(t, withServer(harness(t, single(s)), s))
}

// TestConformanceOfARestrictedUser runs over TLS, as the user that the documentation proposes.
func TestConformanceOfARestrictedUser(t *testing.T) {
	s := containers.RedisTLS(t, containers.User{Name: "app", Password: "s3cret-w0rd", Rules: documentedRules(t)})
	h := harness(t, single(s))
	h.Leftovers, h.Steal, h.Foreign = nil, nil, nil // the user may not look around
	h.Secret = s.Password
	plain := h.Open
	h.Open = func(ctx context.Context) (conformance.Client, error) {
		c, err := plain(ctx)
		c.DropReply = nil // it would have to read what is encrypted
		return c, err
	}
	conformance.Run(t, withServer(h, s))
}

func TestConformanceOfACluster(t *testing.T) {
	s := containers.RedisCluster(t)
	h := harness(t, func(dial dialFunc) redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: s.Addrs, Dialer: dial, ContextTimeoutEnabled: true, ReadTimeout: time.Second, DialTimeout: time.Second,
		})
	})
	conformance.Run(t, h)
}

func TestConformanceWithSentinel(t *testing.T) {
	s := containers.RedisSentinel(t)
	h := harness(t, func(dial dialFunc) redis.UniversalClient {
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: s.MasterName, SentinelAddrs: s.Addrs, Dialer: dial,
			ContextTimeoutEnabled: true, ReadTimeout: time.Second, DialTimeout: time.Second,
		})
	})
	h.Promote = func(ctx context.Context) error {
		_, err := s.Failover(ctx)
		return err
	}
	conformance.Run(t, h)
}

func single(s *containers.Server) func(dialFunc) redis.UniversalClient {
	return func(dial dialFunc) redis.UniversalClient {
		if plain := dial; s.TLS != nil { // go-redis leaves this to those who bring a dialer
			dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := plain(ctx, network, addr)
				if err != nil {
					return nil, err
				}
				encrypted := tls.Client(conn, s.TLS)
				if err := encrypted.HandshakeContext(ctx); err != nil { // later it would be without a deadline
					_ = conn.Close()
					return nil, err
				}
				return encrypted, nil
			}
		}
		return redis.NewClient(&redis.Options{
			Addr: s.Addr(), Username: s.Username, Password: s.Password, Dialer: dial,
			ContextTimeoutEnabled: true, ReadTimeout: time.Second, DialTimeout: time.Second,
		})
	}
}

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// harness gives each client a network of its own, and lets the suite look into the store by a client without one.
func harness(t *testing.T, connect func(dialFunc) redis.UniversalClient) conformance.Harness {
	t.Helper()
	outside := connect(new(net.Dialer).DialContext)
	t.Cleanup(func() { _ = outside.Close() })
	everywhere := func(ctx context.Context, do func(context.Context, *redis.Client) error) error {
		switch c := outside.(type) {
		case *redis.ClusterClient:
			return c.ForEachMaster(ctx, do)
		case *redis.Client:
			return do(ctx, c)
		}
		return errors.New("what client is this?")
	}
	// What it needs for itself is there before the first case looks for leaks.
	if err := everywhere(t.Context(), func(ctx context.Context, c *redis.Client) error { return c.Ping(ctx).Err() }); err != nil {
		t.Fatal(err)
	}
	return conformance.Harness{
		TTL: conformanceTTL,
		Open: func(context.Context) (conformance.Client, error) {
			network := containers.NewNetwork(t)
			client := connect(network.DialContext)
			b, err := New(client)
			if err != nil {
				return conformance.Client{}, err
			}
			return conformance.Client{
				Backend: b, Cut: network.Cut, Heal: network.Heal, Slow: network.Slow, Stall: network.Stall,
				DropReply: func() { network.DropReply("evalsha") },
				Close:     func() { network.Close(); _ = client.Close() },
			}, nil
		},
		Leftovers: func(ctx context.Context) (left []string, err error) {
			var mu sync.Mutex
			err = everywhere(ctx, func(ctx context.Context, node *redis.Client) error {
				mu.Lock()
				defer mu.Unlock()
				for keys := node.Scan(ctx, 0, "lock:*", 1000).Iterator(); keys.Next(ctx); {
					if !strings.Contains(keys.Val(), "\x00") { // counters stay for an hour
						left = append(left, "key "+keys.Val())
					}
				}
				channels, err := node.PubSubChannels(ctx, "*\x00free").Result()
				for _, c := range channels {
					left = append(left, "subscription to "+c)
				}
				return err
			})
			return left, err
		},
		Steal: func(ctx context.Context, name string) error {
			n, err := outside.Del(ctx, "lock:"+name).Result()
			if err == nil && n == 0 {
				return errors.New("there was nothing to steal")
			}
			return err
		},
		// The code that is found in many services: SET NX PX, and a script that compares and deletes.
		Foreign: func(ctx context.Context, name string) (func(context.Context) error, error) {
			value := fmt.Sprintf("%x", rand.Uint64())
			ok, err := outside.SetNX(ctx, "lock:"+name, value, time.Minute).Result()
			if err != nil {
				return nil, err
			}
			if !ok {
				return nil, anylock.ErrHeld
			}
			return func(ctx context.Context) error {
				const script = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end`
				return outside.Eval(ctx, script, []string{"lock:" + name}, value).Err()
			}, nil
		},
	}
}

func withServer(h conformance.Harness, s *containers.Server) conformance.Harness {
	if s.CanFault() {
		h.Pause, h.Resume, h.Kill, h.Start = s.Pause, s.Resume, s.Kill, s.Restart
	}
	return h
}
