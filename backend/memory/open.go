package memory

import (
	"context"
	"strings"
	"sync"

	"github.com/anylock/anylock"
)

func init() { anylock.Register("memory", Open) }

var named struct {
	sync.Mutex
	stores map[string]*Store
}

// Open returns a client of the Store that a URL names, as the package documentation says.
func Open(ctx context.Context, url string) (anylock.Backend, error) {
	base, params, err := anylock.SplitURL(url)
	if err != nil {
		return nil, err
	}
	wakes := map[string]anylock.Wake{"queue": anylock.WakeQueue, "notify": anylock.WakeNotify, "poll": anylock.WakePoll}
	how := params.String("wake", "queue")
	wake, known := wakes[how]
	if !known {
		return nil, anylock.Invalidf("URL parameter wake=%s: it must be queue, notify or poll", how)
	}
	if err := params.Err(); err != nil {
		return nil, err
	}
	if err := anylock.CheckOpen(ctx, NewStore(wake).Client().Describe()); err != nil {
		return nil, err
	}
	name := strings.TrimPrefix(base, "memory://")
	named.Lock()
	defer named.Unlock()
	if named.stores[name] == nil {
		if named.stores == nil {
			named.stores = make(map[string]*Store)
		}
		named.stores[name] = NewStore(wake)
	}
	return named.stores[name].Client(), nil
}
