package anylock

import (
	"fmt"
	"slices"
	"strings"
)

// Scope says how far a promise reaches, from nowhere to a majority that agreed.
type Scope int

// Scopes, each stronger than the one before.
const (
	// ScopeNone: not promised.
	ScopeNone Scope = iota
	// ScopeProcess: among the users of one store in one process.
	ScopeProcess
	// ScopeNode: as long as one server lives and keeps its data.
	ScopeNode
	// ScopeQuorum: as long as most of several independent servers do, and their clocks run at about the same rate.
	ScopeQuorum
	// ScopeConsensus: by a replicated log that survives the loss of a minority.
	ScopeConsensus
)

var scopeNames = []string{"none", "process", "node", "quorum", "consensus"}

func (s Scope) String() string { return nameOf(scopeNames, int(s)) }

// Wake says how a waiter learns that it may try again.
type Wake int

// Ways to wake, each cheaper than the one before.
const (
	// WakePoll: it looks again from time to time.
	WakePoll Wake = iota
	// WakeNotify: the store sends a message on release; all who wait then race.
	WakeNotify
	// WakeQueue: the store keeps a queue and wakes the next.
	WakeQueue
)

var wakeNames = []string{"poll", "notify", "queue"}

func (w Wake) String() string { return nameOf(wakeNames, int(w)) }

// Clock says whose clock decides that a lease has expired.
type Clock int

// Clocks.
const (
	// ClockStore: the store's; clients need no common time, only about the same rate.
	ClockStore Clock = iota
	// ClockProcess: this process's own.
	ClockProcess
)

var clockNames = []string{"store", "process"}

func (c Clock) String() string { return nameOf(clockNames, int(c)) }

// Cost says what one held lease costs in the store, besides its record.
type Cost int

// Costs.
const (
	// CostRecord: nothing but its record.
	CostRecord Cost = iota
	// CostConnection: one connection for as long as it is held.
	CostConnection
)

var costNames = []string{"record", "connection"}

func (c Cost) String() string { return nameOf(costNames, int(c)) }

// Fault is a set of faults.
type Fault uint

// The faults that [Guarantees] speaks about.
const (
	// HolderCrash: a holder dies and never says so.
	HolderCrash Fault = 1 << iota
	// HolderPartition: a holder is cut off from the store, silently.
	HolderPartition
	// StoreRestart: the server is killed and comes back.
	StoreRestart
	// ReplicaPromotion: a replica takes over from a primary that failed.
	ReplicaPromotion
	// MinorityLoss: fewer than half of the servers are gone.
	MinorityLoss
	// MajorityLoss: half of the servers or more are gone.
	MajorityLoss
	// StoreClockStep: the wall clock of a server jumps.
	StoreClockStep
)

var faultNames = []string{
	"holder-crash", "holder-partition", "store-restart", "replica-promotion", "minority-loss", "majority-loss", "store-clock-step",
}

func (f Fault) String() string {
	var names []string
	for i, name := range faultNames {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ",")
}

// Guarantees says what a backend promises in its present configuration. As the argument of [Require] it says the least
// that the code needs, and its zero fields ask for nothing.
type Guarantees struct {
	Exclusion Scope // how far it is sure that there is one holder at a time
	Fencing   Scope // how far tokens keep growing
	FIFO      bool  // waiters of different processes are served in the order they came
	Wake      Wake
	Clock     Clock
	HoldCost  Cost
	// Survives lists the faults after which there is still one holder at a time. A fault that cannot happen in this
	// configuration counts as survived.
	Survives Fault
}

// String is g as [ParseGuarantees] reads it, with what holds a lock and whose clock counts behind it.
func (g Guarantees) String() string {
	words := []string{"exclusion:" + g.Exclusion.String(), "fencing:" + g.Fencing.String(), "wake:" + g.Wake.String()}
	if g.FIFO {
		words = append(words, "fifo")
	}
	if g.Survives != 0 {
		words = append(words, g.Survives.String())
	}
	return strings.Join(words, ",") + " (one hold costs a " + g.HoldCost.String() + ", the " + g.Clock.String() + "'s clock counts)"
}

// AtLeast returns nil when g promises all that least does, as [Require] checks it, and otherwise an error that says what is
// missing: for the tests of a service that depends on it.
func (g Guarantees) AtLeast(least Guarantees) error {
	if what := g.missing(least); what != "" {
		return Invalidf("required is %s", what)
	}
	return nil
}

// missing says in words what g lacks of least; "" if nothing.
func (g Guarantees) missing(least Guarantees) string {
	var all []string
	lacks := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if g.Exclusion < least.Exclusion {
		lacks("exclusion of scope %s, and there is %s", least.Exclusion, g.Exclusion)
	}
	if g.Fencing < least.Fencing {
		lacks("fencing of scope %s, and there is %s", least.Fencing, g.Fencing)
	}
	if least.FIFO && !g.FIFO {
		lacks("waiting in order (fifo), and there is none")
	}
	if g.Wake < least.Wake {
		lacks("waking by %s, and there is %s", least.Wake, g.Wake)
	}
	if faults := least.Survives &^ g.Survives; faults != 0 {
		lacks("exclusion to survive %s, and it does not", faults)
	}
	return strings.Join(all, "; ")
}

// ParseGuarantees reads the value of the URL parameter require=: words with commas between, each a fault that must be
// survived ("store-restart"), "fifo", or one of exclusion:SCOPE, fencing:SCOPE and wake:HOW.
// For example "exclusion:quorum,fencing:node,store-restart".
func ParseGuarantees(text string) (Guarantees, error) {
	var g Guarantees
	for word := range strings.SplitSeq(text, ",") {
		word = strings.TrimSpace(word)
		key, value, _ := strings.Cut(word, ":")
		var names []string
		switch key {
		case "fifo":
			g.FIFO = true
			continue
		case "exclusion", "fencing":
			names = scopeNames
		case "wake":
			names = wakeNames
		default:
			i := slices.Index(faultNames, word)
			if i < 0 {
				known := append([]string{"fifo", "exclusion:SCOPE", "fencing:SCOPE", "wake:HOW"}, faultNames...)
				return g, Invalidf("require: %q is not known%s; known are %s", word, suggest(word, known), strings.Join(known, ", "))
			}
			g.Survives |= 1 << i
			continue
		}
		i := slices.Index(names, value)
		if value == "" {
			return g, Invalidf("require: %s needs to say which, such as %s:%s; it is one of %s", key, key, names[len(names)-1], strings.Join(names, ", "))
		}
		if i < 0 {
			return g, Invalidf("require: %s:%s is not known%s; it is one of %s", key, value, suggest(value, names), strings.Join(names, ", "))
		}
		switch key {
		case "exclusion":
			g.Exclusion = Scope(i)
		case "fencing":
			g.Fencing = Scope(i)
		case "wake":
			g.Wake = Wake(i)
		}
	}
	return g, nil
}

func nameOf(names []string, i int) string {
	if i < 0 || i >= len(names) {
		return fmt.Sprintf("unknown(%d)", i)
	}
	return names[i]
}
