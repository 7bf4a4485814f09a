// Package redis keeps locks in Redis or Valkey: one server, a primary found through Sentinel, or a Cluster.
//
//	import _ "github.com/anylock/anylock/backend/redis"
//
//	l, err := anylock.Open(ctx, "redis://:PASSWORD@localhost:6379/0")
//
// or, with a client that you have, anylock.New over [New].
//
// # Guarantees
//
// One holder at a time and growing tokens as long as one server lives and keeps its data. It survives a holder that
// crashes or is cut off. It does not survive the promotion of a replica, nor the restart of a server without its data:
// Redis replicates after it has answered, so a lock can be forgotten and given to somebody else. Nor does it survive a
// step forward of the server's clock, by which keys expire. [WithReplicas] narrows the first gap and does not close it.
// When more is needed, use a backend of scope quorum or consensus, and in any case check the token where the data lives.
//
// Tokens are at least the server's time in microseconds, so they also grow after FLUSHALL and after the counter has
// expired, unless the clock has stepped back by more than the retention (1h, [WithRetention]). When a request has a
// MinToken the time is not used, so that tokens stay close to those of the store that they follow. Hence a fleet that
// mixes requests with and without MinToken depends on the counter alone: set the retention to longer than the mix lasts.
//
// # URL
//
//	redis://[[USER]:PASSWORD@]HOST[:PORT][/DB]             also valkey://; TLS: rediss:// and valkeys://
//	redis://HOST1:6379,HOST2:6379?cluster=true             nodes of a cluster to begin with, one is enough
//	redis://HOST1:26379,HOST2:26379/DB?sentinel=MASTERNAME sentinels
//
//	prefix=TEXT            before each name in its key, "lock:" if absent; may be empty
//	cluster=true           the servers are a Redis Cluster
//	sentinel=NAME          the hosts are sentinels that watch the master NAME
//	sentineluser=, sentinelpassword=   for the sentinels, if they ask for it
//	ca=, cert=, key=       files in PEM form: whom to trust, and how to prove who we are
//	servername=            the name in the server's certificate, if it is not the host
//	wait=N, waittimeout=D  as WithReplicas; D is 500ms if absent
//	retention=D            as WithRetention
//
// # Server settings
//
// maxmemory-policy must be noeviction: any other may drop a held lock. With replicas, min-replicas-to-write 1 and
// min-replicas-max-lag 10 keep a cut-off primary from granting locks for long. Redis 6.2 or later, any Valkey.
//
// With ACLs a user needs this, where "lock:" is the prefix:
//
//	ACL SETUSER locker on >PASSWORD resetkeys ~lock:* resetchannels &lock:* -@all +eval +evalsha +get +set +del +pexpire +pttl +time +publish +subscribe +unsubscribe +ping
//
// and in addition +wait for wait=N, +select for a database other than 0, and +cluster|slots +command for a cluster.
// Whether the rights are there is tried out before the first lock is taken; +subscribe, when somebody waits.
//
// # Keys
//
// The lock of "job" is the string lock:job, with the value ID:TOKEN:HOLDER and an expiry. Code that locks by
// SET key value NX PX at the same key excludes anylock and is excluded by it. Beside it stands one counter key, also
// below the prefix and in the same hash slot, which expires the retention after its last use. Releases are published on
// a channel below the prefix.
//
// # Costs
//
// Acquire and release are one round trip each, and a backend's first acquire one more. Renewing or releasing many is one
// pipeline for 500. Watching takes one connection for all names (in a cluster, one to each master), which is there while
// somebody watches, and one round trip for a name that is new to it. In a cluster every PUBLISH goes to all nodes.
//
// # Clients of your own
//
// A client that is given to [New] should have ContextTimeoutEnabled set, or deadlines are ignored, and a ReadTimeout of
// a few seconds, since nothing else ends a command that a dead server does not answer. It is never closed here.
package redis
