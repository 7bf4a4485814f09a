package conformance

// Scenario is a fault that was seen in the wild, and what checks that it does not happen here.
type Scenario struct {
	ID    string   // its number in the collection
	Seen  string   // where it was reported
	Fault string   // what went wrong there, in a few words
	Cases []string // of this suite, as topic/case
	Else  string   // what else checks it, or why nothing does
}

const (
	ownRedis     = "own test of backend/redis"
	ownRedlock   = "own test of backend/redlock"
	ownEtcd      = "own test of backend/etcd"
	ownZooKeeper = "own test of backend/zookeeper"
	ownPostgres  = "own test of backend/postgres"
)

// Scenarios returns all faults of the collection.
func Scenarios() []Scenario {
	return []Scenario{
		{"B02", "redis/go-redis#2985", "a retried SET NX is refused by its own lock", []string{"fencing/repeat-keeps-token", "cancellation/repeat-finds-its-own", "cancellation/unknown-is-undone", "faults/reply-lost-on-acquire"}, ownRedis},
		{"B04", "etcd-io/etcd#22082", "a repeated unlock deletes a newer lock of the same session", []string{"faults/reply-lost-on-release", "batch/whole-id"}, ""},
		{"B06", "apache/curator#1193", "after a failed release every later acquire fails", []string{"faults/reply-lost-on-release", "faults/returns-after-a-cut"}, ""},
		{"B08", "leandromoreira/redlock-rb#5", "a failed quorum leaves its keys", []string{"cancellation/unknown-is-undone", "faults/reply-lost-on-acquire"}, ownRedlock},
		{"B10", "apache/curator#600", "an interrupted acquire leaves an orphan", []string{"cancellation/storm-on-a-free-lock", "cancellation/unknown-is-undone"}, ""},
		{"B11", "go-redsync/redsync#68", "a cancel is ignored while the waiter sleeps", []string{"waiting/wait-ends-with-context", "cancellation/black-hole", "cancellation/keeps-deadlines"}, ""},
		{"B13", "redisson/redisson#2714", "an interrupted acquire is renewed for ever", []string{"cancellation/late-request-is-refused", "cancellation/late-answer-is-undone", "cancellation/storm-on-a-free-lock", "cancellation/storm-on-a-slow-store"}, ""},
		{"B15", "matrixorigin/matrixone#25790", "a context that has ended acquires a free lock", []string{"cancellation/dead-context-takes-nothing"}, ""},
		{"B17", "projecteru2/core#399", "each failed acquire leaks a session", []string{"cancellation/storm-on-a-held-lock"}, ownEtcd},
		{"B19", "redisson/redisson#4197", "a try says no and the key stays", []string{"cancellation/late-request-is-refused", "cancellation/late-answer-is-undone", "cancellation/storm-on-a-free-lock", "cancellation/storm-on-a-slow-store", "faults/reply-lost-on-acquire"}, ""},
		{"B20", "laravel/framework#26213", "an overrun holder deletes the next holder's lock", []string{"lifetime/stale-release-frees-nothing", "lifetime/stale-lease", "exclusion/race-of-overstayers"}, ""},
		{"B22", "mike-marcacci/node-redlock#313", "the release of an expired lock is retried for ever", []string{"lifetime/stale-lease"}, ""},
		{"B24", "jefferyjob/go-redislock#26", "equal tokens let several in", []string{"exclusion/race", "batch/whole-id"}, "IDs have 130 random bits: test of the core"},
		{"B26", "bsm/redislock#81", "attaching by token re-creates an expired lock", []string{"lifetime/renew-never-resurrects"}, "leases cannot be exported"},
		{"B27", "redisson/redisson#7272", "a lock is renewed for ever after its release", []string{"lifetime/renewals-cease"}, ""},
		{"B29", "spring-projects/spring-integration#10446", "release and renewal race", []string{"lifetime/release-by-many", "faults/storm"}, ""},
		{"B31", "redisson/redisson#2037", "renewal goes on although the key is gone", []string{"lifetime/steal-is-loss", "lifetime/refused-renewal-is-loss", "faults/steal"}, ""},
		{"B33", "cirello-io/pglock#40", "one failed renewal gives up the lock", []string{"lifetime/one-failed-renewal", "faults/reply-lost-on-renew"}, ""},
		{"B35", "etcd-io/etcd#10821", "a stalled process does not notice that its lease is over", []string{"lifetime/err-looks-at-the-clock"}, "SIGSTOP: test of the core and examples"},
		{"B37", "sibson/redbeat#127", "extending adds to the remaining time", []string{"lifetime/renew-sets-the-time"}, ""},
		{"B39", "etcd-io/etcd#22291", "a lease that nobody has is kept alive for ever", nil, ownEtcd},
		{"B41", "redisson/redisson#7254", "nobody is told of a failed renewal", []string{"lifetime/hooks-hold-up-nothing", "lifetime/one-failed-renewal"}, ""},
		{"B42", "go-redsync/redsync#61", "extend and unlock of an expired lock report success", []string{"lifetime/stale-renew-refused", "lifetime/stale-release-frees-nothing", "lifetime/renew-never-resurrects"}, ""},
		{"B44", "phpredis/phpredis#640", "a TTL of zero sets a key without expiry", []string{"values/invalid-ttls"}, ""},
		{"B45", "docker/libkv#73", "the renewal interval is in the wrong unit", []string{"lifetime/renewal-rate", "lifetime/long-ttl-few-renewals"}, ""},
		{"B48", "redis/redis#6800", "a huge TTL overflows and the key is gone at once", []string{"values/extreme-ttls", "values/invalid-ttls"}, ""},
		{"B49", "etcd-io/etcd#14857", "the TTL granted is not the one asked for", []string{"values/odd-ttls", "values/invalid-ttls", "lifetime/window-within-grant"}, ""},
		{"B51", "mike-marcacci/node-redlock#296", "a lock is returned that has expired", []string{"lifetime/window-after-waiting", "faults/slow-store"}, ""},
		{"B53", "redisson/redisson#2172", "wait and lease times mixed up let several in", []string{"exclusion/race"}, ownRedlock},
		{"B54", "rancher/rancher#1383", "a name with slashes gives an invalid path", []string{"values/odd-names", "values/invalid-names"}, ""},
		{"B57", "spring-projects/spring-integration#10546", "the keys of one lock are in different slots", []string{"values/odd-names"}, ownRedis},
		{"B59", "lukas-krecan/ShedLock#345", "a long name looks like a lock that is held", []string{"values/long-names", "values/invalid-names", "errors/contention-is-held"}, ""},
		{"B61", "hashicorp/terraform#22833", "locks of different applications meet", nil, ownPostgres},
		{"B63", "python-zk/kazoo#170", "waiters deadlock after a short reconnect", []string{"faults/waiter-survives-a-cut", "faults/waiter-survives-a-restart", "faults/returns-after-a-cut", "faults/restart"}, ""},
		{"B65", "samuel/go-zookeeper#20", "nobody learns that a held lock is lost", []string{"lifetime/steal-is-loss", "lifetime/lost-before-the-next-grant", "lifetime/backend-tells-loss", "lifetime/told-loss-ends-lease"}, ""},
		{"B67", "hashicorp/vault#3511", "a dead session is used until restart", []string{"faults/returns-after-a-cut", "faults/restart"}, "own tests of backend/etcd and backend/zookeeper"},
		{"B69", "etcd-io/etcd#13675", "a session ends just after it was made", nil, ownEtcd},
		{"B71", "redisson/redisson#1763", "the wake-up comes before the subscription", []string{"waiting/wakes-watchers", "waiting/missed-wake-up", "waiting/looks-after-listening", "waiting/failed-watch", "faults/waiter-survives-a-cut", "faults/waiter-survives-a-restart"}, ownRedis},
		{"B73", "python-zk/kazoo#760", "a try during a short reconnect leaves a contender", []string{"cancellation/refused-leaves-nothing", "cancellation/queued-wait-ends"}, ownZooKeeper},
		{"B75", "JasperFx/wolverine#2602", "two leaders after a backend was terminated", []string{"lifetime/lost-before-the-next-grant"}, ownPostgres},
		{"B76", "apache/curator#701", "the parent of a node is removed during an acquire", nil, ownZooKeeper},
		{"B78", "apache/curator#827", "the own node is missing from the list", []string{"lifetime/steal-is-loss"}, ownZooKeeper},
		{"B80", "apache/curator#955", "the parent was made in another mode", nil, ownZooKeeper},
		{"B82", "redis/rueidis#602", "waiting burns a processor", []string{"waiting/no-herd"}, ""},
		{"B84", "golang-migrate/migrate#269", "a wait does not end in time", []string{"waiting/wait-ends-with-context", "cancellation/storm-on-a-held-lock", "cancellation/queued-wait-ends"}, ownPostgres},
		{"B87", "ClosureTree/with_advisory_lock#45", "a pooled connection re-enters a held lock", []string{"exclusion/held-by-one", "exclusion/sessions-do-not-reenter"}, ""},
		{"B89", "python-zk/kazoo#315", "half re-entrant: an inner release frees the outer lock", []string{"exclusion/held-by-one", "exclusion/sessions-do-not-reenter"}, ""},
		{"B90", "leandromoreira/redlock-rb#27", "scripts are forgotten after a restart", []string{"faults/restart"}, ownRedis},
		{"B92", "mike-marcacci/node-redlock#11", "a release that the server refuses is reported as done", []string{"cancellation/silent-store-is-bounded"}, ownRedis},
		{"B94", "redisson/redisson#5439", "rights suffice to lock and not to unlock", []string{"errors/refusal-is-final"}, ownRedis},
		{"B96", "redis-rb/redis-client#274", "a connection that failed to log in is used again", nil, ownRedis},
		{"B98", "redisson/redisson#1636", "one dead node slows each lock", nil, ownRedlock},
		{"B100", "valkey-io/valkey#2599", "a call without a deadline never returns", []string{"cancellation/silent-store-is-bounded", "cancellation/black-hole", "cancellation/keeps-deadlines", "errors/outage-is-not-held"}, ""},
		{"B101", "cirello-io/pglock#29", "serialization errors reach callers", nil, ownPostgres},
		{"B104", "goauthentik/authentik#23876", "a pooler moves the session", nil, ownPostgres},
		{"B106", "skypilot-org/skypilot#10251", "holders idle in a transaction are ended", nil, ownPostgres},
		{"B108", "jackc/pgx#1269", "a refused try leaves its transaction open", []string{"cancellation/refused-leaves-nothing"}, ownPostgres},
		{"B110", "lukas-krecan/ShedLock#753", "a missing table looks like a lock that is held", []string{"errors/refusal-is-final"}, ownPostgres},
		{"B112", "vgarvardt/gue#202", "a read-only node after a failover", []string{"errors/outage-is-not-held", "faults/promotion"}, ownPostgres},
		{"B114", "hangfire-postgres/Hangfire.PostgreSql#271", "contention floods the server's log", nil, ownPostgres},
		{"B116", "apache/apisix-dashboard#2742", "a lock call panics when the login has lapsed", nil, ownEtcd},
		{"B118", "etcd-io/etcd#14631", "an acquire hangs with the leader stopped", []string{"cancellation/black-hole", "cancellation/silent-store-is-bounded", "faults/paused-store"}, ownEtcd},
		{"B120", "etcd-io/etcd#8382", "the client sticks to an endpoint that is gone", []string{"faults/returns-after-a-cut"}, ownEtcd},
		{"B122", "openconfig/gnmic#944", "locks stay after a shutdown", []string{"lifetime/close-releases-all", "waiting/lock-of-a-closed-process"}, ""},
		{"B124", "etcd-io/etcd#17470", "a lock lives on with a process that hangs", []string{"lifetime/max-hold"}, ""},
		{"B126", "etcd-io/etcd#720", "panic: close of a closed channel", []string{"faults/storm", "batch/concurrent"}, ""},
		{"B128", "spring-projects/spring-integration#9401", "a failed try's result is used", []string{"values/nil-lease"}, ""},
		{"B130", "mike-marcacci/node-redlock#43", "busy, broken and lost give the same error", []string{"errors/contention-is-held", "errors/outage-is-not-held", "errors/driver-error-reachable"}, ""},
		{"B132", "redis/redis-py#1095", "loss has no type of its own", []string{"errors/lost-is-not-unavailable", "lifetime/stale-renew-refused", "errors/driver-error-reachable"}, ""},
		{"B134", "Ericsson/ecchronos#58", "contention is logged as an error", []string{"errors/quiet-contention", "errors/quiet-outage", "errors/no-secrets"}, ""},
		{"B136", "lukas-krecan/ShedLock#231", "clocks of clients that differ let two in", []string{"faults/store-clock-step"}, ownPostgres},
		{"B139", "zoolutions/sidekiq-unique-jobs#821", "bookkeeping grows for ever", []string{"lifetime/renewals-cease"}, "own test of each backend, with names that come and go"},
		{"B141", "spring-projects/spring-integration#11044", "held locks are dropped from a local registry", nil, "there is no registry with a limit"},
		{"B142", "go-co-op/gocron#841", "short jobs run on every instance", nil, "there is no minimum hold time; see docs/choosing.md on schedulers"},
	}
}
