package main

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// stock is the number of phones left, in a store that can only read and write it.
type stock interface {
	Read(context.Context) (int, error)
	Write(context.Context, int) error
	Close() error
}

func openStock(_ context.Context, url string) (stock, error) {
	switch scheme(url) {
	case "memory":
		return new(memoryStock), nil
	case "redis", "rediss":
		o, err := redis.ParseURL(url)
		if err != nil {
			return nil, errStock // the parser's error repeats the URL, and a password with it
		}
		o.MaxRetries = -1
		o.PoolSize = 100
		return redisStock{redis.NewClient(o)}, nil
	}
	return nil, errStock
}

// memoryStock lets others go first, as happens to everybody whose stock is across a network.
type memoryStock struct{ left atomic.Int64 }

func (s *memoryStock) Read(context.Context) (int, error) {
	n := int(s.left.Load())
	runtime.Gosched()
	return n, nil
}

func (s *memoryStock) Write(_ context.Context, n int) error {
	runtime.Gosched()
	s.left.Store(int64(n))
	return nil
}

func (s *memoryStock) Close() error { return nil }

const stockKey = "flashsale:stock:phone-15"

type redisStock struct{ client *redis.Client }

func (s redisStock) Read(ctx context.Context) (int, error) { return s.client.Get(ctx, stockKey).Int() }
func (s redisStock) Write(ctx context.Context, n int) error {
	return s.client.Set(ctx, stockKey, n, time.Hour).Err()
}
func (s redisStock) Close() error { return s.client.Close() }
