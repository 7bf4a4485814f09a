package memory

import (
	"container/list"
	"slices"
	"sync"
	"time"

	"github.com/anylock/anylock"
)

// Store keeps locks. It is safe for concurrent use.
type Store struct {
	wake anylock.Wake

	mu        sync.Mutex
	locks     map[string]*lock
	watchers  map[string][]chan struct{}
	lastToken anylock.Token // of all names, so that nothing stays of a name
	sweepAt   int
	ended     map[string]bool // the IDs that ended last, of all names
	endedRing []string        // the same, in a ring
	endedNext int
}

// mostEnded is how many IDs that ended are remembered, so that late requests for them are refused.
const mostEnded = 1024

// sweepFirst is the number of names at which expired ones are looked for, for the first time.
const sweepFirst = 1024

// lock is a name that is held or waited for.
type lock struct {
	id, holder string // id is empty while nobody has it
	token      anylock.Token
	expires    time.Time
	expiry     *time.Timer // set while somebody waits
	lost       func(error)
	queue      list.List // of *waiter
}

type waiter struct {
	req     anylock.Request
	granted chan anylock.Grant
}

// NewStore returns an empty Store. wake says how waiters are woken: [anylock.WakeQueue], the usual choice, hands the lock
// to them in the order they came, and tells a holder at once when its lock is stolen; [anylock.WakeNotify] wakes all of
// them on release; [anylock.WakePoll] lets them look for themselves.
func NewStore(wake anylock.Wake) *Store {
	return &Store{wake: wake, locks: make(map[string]*lock), watchers: make(map[string][]chan struct{}), sweepAt: sweepFirst}
}

// Held returns the names that are held, sorted.
func (s *Store) Held() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name, k := range s.locks {
		if k.held() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Steal takes a lock away from its holder, as an administrator would who deletes it, and reports whether it was held.
func (s *Store) Steal(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.locks[name]
	if k == nil || !k.held() {
		return false
	}
	if k.lost != nil && s.wake == anylock.WakeQueue {
		go k.lost(anylock.ErrLost)
	}
	s.free(name, k)
	return true
}

func (k *lock) held() bool { return k.id != "" && time.Now().Before(k.expires) }

// remember notes that an ID has ended.
func (s *Store) remember(id string) {
	switch {
	case s.ended[id]:
		return
	case s.ended == nil:
		s.ended = make(map[string]bool)
	}
	if len(s.endedRing) < mostEnded {
		s.endedRing = append(s.endedRing, id)
	} else {
		delete(s.ended, s.endedRing[s.endedNext])
		s.endedRing[s.endedNext] = id
		s.endedNext = (s.endedNext + 1) % mostEnded
	}
	s.ended[id] = true
}

// lock returns the lock of a name, after its expiry has been seen to.
func (s *Store) lock(name string) *lock {
	k := s.locks[name]
	if k == nil {
		k = new(lock)
		s.locks[name] = k
	}
	if k.id != "" && !k.held() {
		s.free(name, k)
	}
	return k
}

// grant gives a free lock away.
func (s *Store) grant(k *lock, req anylock.Request) anylock.Grant {
	now := time.Now()
	if len(s.locks) >= s.sweepAt {
		s.sweep()
	}
	s.lastToken = max(s.lastToken+1, req.MinToken)
	k.id, k.holder, k.token, k.lost = req.ID, req.Holder, s.lastToken, req.Lost
	k.expires = now.Add(req.TTL)
	return anylock.Grant{Name: req.Name, ID: req.ID, Token: k.token, TTL: req.TTL, From: now}
}

// free takes a lock from its holder and passes it on.
func (s *Store) free(name string, k *lock) {
	k.id, k.lost = "", nil
	if first := k.queue.Front(); first != nil {
		w := k.queue.Remove(first).(*waiter)
		w.granted <- s.grant(k, w.req)
		s.watchExpiry(name, k)
	}
	s.forget(name, k)
	for _, wake := range s.watchers[name] {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// watchExpiry makes sure that a lock is passed on when its holder lets it expire while others wait.
func (s *Store) watchExpiry(name string, k *lock) {
	if k.expiry != nil {
		k.expiry.Stop()
		k.expiry = nil
	}
	if k.id == "" || k.queue.Len() == 0 {
		return
	}
	k.expiry = time.AfterFunc(time.Until(k.expires), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.locks[name] != k {
			return
		}
		if k.id != "" && !k.held() {
			s.free(name, k)
		} else {
			s.watchExpiry(name, k)
		}
	})
}

// sweep forgets the locks that expired unseen. It comes each time that the number of names has doubled.
func (s *Store) sweep() {
	for name, k := range s.locks {
		if k.id != "" && !k.held() {
			s.free(name, k)
		}
	}
	s.sweepAt = max(sweepFirst, 2*len(s.locks))
}

// forget drops a lock that nobody has or wants.
func (s *Store) forget(name string, k *lock) {
	if k.id == "" && k.queue.Len() == 0 && s.locks[name] == k {
		s.watchExpiry(name, k)
		delete(s.locks, name)
	}
}
