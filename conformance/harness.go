package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/anylock/anylock"
)

// Client is one client of the store, as a process of its own would have it.
type Client struct {
	Backend anylock.Backend

	// Cut makes the client's network a black hole: requests and replies vanish, connections stay open. Heal ends that.
	// Both or neither.
	Cut, Heal func()
	// DropReply lets the client's next request reach the store, drops its reply and closes the connection.
	DropReply func()
	// Slow delays every reply by d until Slow(0).
	Slow func(d time.Duration)
	// Stall keeps what is sent to the store on the connections that are open now, and delivers it at Heal; new connections
	// pass, so their requests overtake those.
	Stall func()

	// Close, if set, is called once after Backend.Close, for what the backend does not own: connections, proxies.
	Close func()
}

// Harness gives the suite a store. Only Open is needed. Each nil function skips the cases that need it, by name.
type Harness struct {
	// Open opens a new client of the one store, with nothing in common with the earlier ones. The suite closes it.
	Open func(ctx context.Context) (Client, error)

	// TTL is what the suite asks for in cases that wait for an expiry: as short as the store can keep and the test
	// machine can keep up with. If zero, it is the least that the backend allows, and at least half a second.
	TTL time.Duration
	// MaxHolds is how many locks one client can hold at once, if that is limited (by a connection pool).
	MaxHolds int
	// KeepsAlive says that the driver renews by itself for as long as the client is connected (a ZooKeeper session): a
	// lock that the backend does not renew then expires only after Cut.
	KeepsAlive bool
	// TellsLoss says that the backend learns by itself when a grant has ended and calls Request.Lost.
	TellsLoss bool
	// Secret is a password in the client's configuration. No error and no log record may contain it.
	Secret string
	// IgnoreGoroutines names functions (as in a stack: "net/http.(*persistConn).readLoop") of goroutines that belong to
	// the harness and may outlive a case.
	IgnoreGoroutines []string

	// Leftovers lists what the store holds for anylock besides what may stay when nothing is held and nobody waits:
	// lock records, queue entries, subscriptions, sessions without an owner. One line each, for people.
	Leftovers func(ctx context.Context) ([]string, error)
	// Steal removes the lock from the store by hand, as an operator would.
	Steal func(ctx context.Context, name string) error
	// Foreign takes the lock with another tool's code that shares the name by design. It does not wait: an error
	// matching anylock.ErrHeld says that somebody else has it. The function it returns frees it.
	Foreign func(ctx context.Context, name string) (release func(context.Context) error, err error)

	// Pause freezes the store, Resume lets it go on. Both or neither.
	Pause, Resume func(ctx context.Context) error
	// Kill ends the store without a warning, Start brings it back and returns when it serves. Both or neither.
	Kill, Start func(ctx context.Context) error
	// Promote kills the primary and makes a replica take over, and returns when it serves.
	Promote func(ctx context.Context) error
	// StepClock moves the store's wall clock. The suite steps back what it stepped.
	StepClock func(ctx context.Context, d time.Duration) error
}

// need is something that a harness may or may not offer.
type need struct {
	name string
	has  func(s *suite) bool
}

var (
	needCut       = need{"Client.Cut and Heal", func(s *suite) bool { return s.client.Cut != nil && s.client.Heal != nil }}
	needDropReply = need{"Client.DropReply", func(s *suite) bool { return s.client.DropReply != nil }}
	needSlow      = need{"Client.Slow", func(s *suite) bool { return s.client.Slow != nil }}
	needStall     = need{"Client.Stall and Heal", func(s *suite) bool { return s.client.Stall != nil && s.client.Heal != nil }}
	needSteal     = need{"Harness.Steal", func(s *suite) bool { return s.Steal != nil }}
	needTold      = need{"Harness.TellsLoss", func(s *suite) bool { return s.TellsLoss }}
	needForeign   = need{"Harness.Foreign", func(s *suite) bool { return s.Foreign != nil }}
	needPause     = need{"Harness.Pause and Resume", func(s *suite) bool { return s.Pause != nil && s.Resume != nil }}
	needRestart   = need{"Harness.Kill and Start", func(s *suite) bool { return s.Kill != nil && s.Start != nil }}
	needPromote   = need{"Harness.Promote", func(s *suite) bool { return s.Promote != nil }}
	needStepClock = need{"Harness.StepClock", func(s *suite) bool { return s.StepClock != nil }}
	// needExpiry: the suite can make a lock of a live client expire.
	needExpiry = need{"Client.Cut, since the driver keeps leases alive", func(s *suite) bool {
		return !s.KeepsAlive || needCut.has(s)
	}}
	needLapse     = need{"leases that expire while their client lives", func(s *suite) bool { return !s.KeepsAlive }}
	needFIFO      = need{"a backend that promises FIFO", func(s *suite) bool { return s.desc.Guarantees.FIFO }}
	needWatch     = need{"a backend that notifies", func(s *suite) bool { return s.desc.Guarantees.Wake == anylock.WakeNotify }}
	needWoken     = need{"a backend that wakes waiters", func(s *suite) bool { return s.desc.Guarantees.Wake != anylock.WakePoll }}
	needQueue     = need{"a backend with a queue", func(s *suite) bool { return s.desc.Guarantees.Wake == anylock.WakeQueue }}
	needDeadlines = need{"a backend that keeps deadlines", func(s *suite) bool { return s.desc.Deadlines }}
	needFence     = need{"a backend whose tokens outlive a restart", func(s *suite) bool {
		return s.desc.Guarantees.Fencing >= anylock.ScopeNode
	}}
)

// suite is a harness with what the suite has found out about it.
type suite struct {
	Harness
	desc   anylock.Description
	client Client // a sample, closed: it shows which faults clients offer
}

func newSuite(ctx context.Context, h Harness) (*suite, error) {
	if h.Open == nil {
		return nil, errors.New("conformance: the harness has no Open")
	}
	c, err := h.Open(ctx)
	if err != nil {
		return nil, fmt.Errorf("conformance: open a client: %w", err)
	}
	s := &suite{Harness: h, client: c, desc: c.Backend.Describe()}
	closeClient(c)
	switch d := s.desc; {
	case d.Name == "":
		return nil, errors.New("conformance: Describe().Name is empty")
	case d.MinTTL <= 0 || d.MaxTTL < d.MinTTL:
		return nil, fmt.Errorf("conformance: Describe() says that TTLs may be from %v to %v; both must be positive, in this order", d.MinTTL, d.MaxTTL)
	case d.MaxBatch < 1:
		return nil, fmt.Errorf("conformance: Describe().MaxBatch is %d, and at least 1 is needed", d.MaxBatch)
	case d.MaxRequests < 0:
		return nil, fmt.Errorf("conformance: Describe().MaxRequests is %d; 0 says that there is no limit", d.MaxRequests)
	}
	if s.TTL == 0 {
		s.TTL = max(s.desc.MinTTL, 500*time.Millisecond)
	}
	if s.MaxHolds == 0 {
		s.MaxHolds = 1 << 30
	}
	return s, nil
}

// missing names what the case needs and the harness has not, or "".
func (s *suite) missing(c testCase) string {
	var names []string
	for _, n := range c.needs {
		if !n.has(s) {
			names = append(names, n.name)
		}
	}
	return strings.Join(names, "; ")
}

func closeClient(c Client) {
	if c.Heal != nil {
		c.Heal()
	}
	_ = c.Backend.Close()
	if c.Close != nil {
		c.Close()
	}
}
