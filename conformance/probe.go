package conformance

import (
	"context"
	"errors"
	"sync"

	"github.com/anylock/anylock"
)

// probe stands between a Locker and a backend: it counts what passes, and lets a case change it.
type probe struct {
	anylock.Backend

	mu       sync.Mutex
	acquires int
	renews   map[string]int // by ID
	releases int
	watches  int
	ids      []string // of all acquires
	blocks   bool     // a changed function takes no notice of deadlines

	acquire func(ctx context.Context, r anylock.Request) (anylock.Grant, error)
	renew   func(ctx context.Context, grants []anylock.Grant) []anylock.Renewal
	release func(ctx context.Context, grants []anylock.Grant) []error
	watch   func(ctx context.Context, name string) (<-chan struct{}, error)
}

var errStaged = errors.New("staged by the conformance suite")

// probe puts a probe on a client. set may change its functions.
func (t *tester) probe(c Client, set func(p *probe)) (Client, *probe) {
	p := &probe{Backend: c.Backend, renews: make(map[string]int)}
	p.acquire, p.renew, p.release, p.watch = c.Backend.Acquire, c.Backend.Renew, c.Backend.Release, c.Backend.Watch
	if set != nil {
		set(p)
	}
	c.Backend = p
	return c, p
}

func (p *probe) Describe() anylock.Description {
	d := p.Backend.Describe()
	d.Deadlines = d.Deadlines && !p.blocks
	return d
}

func (p *probe) Acquire(ctx context.Context, r anylock.Request) (anylock.Grant, error) {
	p.mu.Lock()
	p.acquires++
	p.ids = append(p.ids, r.ID)
	p.mu.Unlock()
	return p.acquire(ctx, r)
}

func (p *probe) Renew(ctx context.Context, grants []anylock.Grant) []anylock.Renewal {
	p.mu.Lock()
	for _, g := range grants {
		p.renews[g.ID]++
	}
	p.mu.Unlock()
	return p.renew(ctx, grants)
}

func (p *probe) Release(ctx context.Context, grants []anylock.Grant) []error {
	p.mu.Lock()
	p.releases++
	p.mu.Unlock()
	return p.release(ctx, grants)
}

func (p *probe) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	p.mu.Lock()
	p.watches++
	p.mu.Unlock()
	return p.watch(ctx, name)
}

// calls is how often the store was asked anything.
func (p *probe) calls() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.acquires + p.releases + p.watches
	for _, r := range p.renews {
		n += r
	}
	return n
}

func (p *probe) renewals() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, r := range p.renews {
		n += r
	}
	return n
}

func (p *probe) allIDs() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.ids...)
}
