// Package memory is a lock store inside this process: for tests, for programs of one process, and as the reference of
// what every backend must do.
//
// A [Store] is the server, and each [Backend] that [Store.Client] returns is a client of it. All clients of one Store
// exclude each other. It uses the process's monotonic clock and is deterministic under testing/synctest.
//
// As a URL it is memory://NAME: all that open the same NAME in this process, which may be empty, share one Store.
// The parameter wake=queue, notify or poll chooses how waiters are woken, as different kinds of servers do it; the first
// to open a NAME decides.
//
// Guarantees: exclusion and fencing within the process, first in first out with wake=queue. A lease costs a map entry.
package memory
