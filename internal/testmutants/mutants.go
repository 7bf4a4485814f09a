package main

// mutant is a fault that somebody could have made, and the test that must notice it.
type mutant struct {
	fault        string
	file         string
	right, wrong string // the text that is replaced, which the file contains once, and what by
	pkg          string
	caught       string // the test's name, with subtests
}

const (
	redisCases    = "TestConformance/"
	leaseCases    = "TestConformanceLease/"
	rowlockCases  = "TestConformanceRowLock/"
	queueCases    = "TestMemory/queue/"
	notifyCases   = "TestMemory/notify/"
	inRedis       = "backend/redis"
	inPostgres    = "backend/postgres"
	inConformance = "conformance"
)

var mutants = []mutant{
	// The core.
	{"a renewal's window is counted from its reply", "lease.go",
		"w := l.windowOf(r.From, r.TTL, slept)", "w := l.windowOf(time.Now(), r.TTL, slept)", ".", "TestRenewedWindowCountsFromItsSending"},
	{"a release does not wait for a renewal under way", "lease.go",
		"if wait := l.renewalsOver(); wait != nil {", "if wait := l.renewalsOver(); false {", ".", "TestReleaseWaitsForTheRenewalUnderWay"},
	{"the end of a lease is told to two hooks", "lease.go", "l.told = true", "l.told = false", ".", "TestEveryLeaseEndsWithOneHook"},
	{"no margin", "lease.go", "end: from.Add(ttl - l.margin)", "end: from.Add(ttl)", ".", "TestLostWhenNotRenewed"},
	{"Err trusts the timer", "lease.go", "if ended == nil && over {", "if ended != nil && over {", inConformance, queueCases + "lifetime/err-looks-at-the-clock"},
	{"WithMaxHold is forgotten", "lease.go", "return !l.cap.IsZero() && !t.Before(l.cap)", "return false", inConformance, queueCases + "lifetime/max-hold"},
	{"the window of an old renewal replaces a later one", "lease.go", "if w.end.After(l.window.end) {", "if !w.end.IsZero() {", ".", "TestRenewalsAnsweredInAnotherOrder"},
	{"an attempt without an answer is not undone", "acquire.go", "if a.unknown {", "if false {", inConformance, queueCases + "cancellation/unknown-is-undone"},
	{"a dead lease is returned", "acquire.go", "if left <= 0 {", "if left <= -time.Hour {", inConformance, queueCases + "faults/slow-store"},
	{"a queue of the store is not used", "acquire.go", "a.desc.Guarantees.Wake == WakeQueue && !queued", "a.desc.Guarantees.Wake == WakeQueue && queued", inConformance, queueCases + "waiting/store-order"},
	{"a refused renewal is taken for a failed one", "renew.go",
		"case errors.Is(errs[i], ErrLost):", "case errors.Is(errs[i], ErrClosed):", inConformance, notifyCases + "lifetime/steal-is-loss"},

	// The memory backend.
	{"a renewal revives what has expired", "backend/memory/backend.go", "k == nil || k.id != g.ID || !k.held()", "k == nil || k.id != g.ID",
		inConformance, queueCases + "lifetime/renewal-after-expiry"},
	{"a release needs no ID", "backend/memory/backend.go", "if k == nil || k.id != g.ID {", "if k == nil {",
		inConformance, queueCases + "lifetime/stale-release-frees-nothing"},
	{"the least token is ignored", "backend/memory/store.go", "max(s.lastToken+1, req.MinToken)", "s.lastToken + 1", inConformance, queueCases + "fencing/min-token"},
	{"a request that comes after its release is granted", "backend/memory/backend.go", "if s.ended[req.ID] {", "if false {",
		"backend/memory", "TestLateRequestIsRefused"},
	{"who gave up stays in the queue", "backend/memory/backend.go", "k.queue.Remove(place)", "_ = place", inConformance, queueCases + "cancellation/queued-wait-ends"},
	{"a release wakes nobody", "backend/memory/store.go", "case wake <- struct{}{}:", "case <-wake:", inConformance, notifyCases + "waiting/wakes-watchers"},
	{"a theft is not told", "backend/memory/store.go", "go k.lost(anylock.ErrLost)", "_ = k.lost", inConformance, queueCases + "lifetime/backend-tells-loss"},
	{"the time that is left is wrong", "backend/memory/backend.go", "RetryAfter: time.Until(k.expires)", "RetryAfter: 2 * time.Until(k.expires)",
		inConformance, notifyCases + "waiting/retry-after"},

	// The scripts of Redis.
	{"IDs are compared by their first letters", "backend/redis/acquire.lua", "if string.sub(held, 1, #id + 1) ~= id .. ':' then",
		"if string.sub(held, 1, 8) ~= string.sub(id, 1, 8) then", inRedis, redisCases + "batch/whole-id"},
	{"a request that comes after its release is granted", "backend/redis/acquire.lua", "if note and string.find(note, id, 1, true) then", "if false then",
		inRedis, redisCases + "cancellation/late-request-is-refused"},
	{"the least token is ignored", "backend/redis/acquire.lua", "local least = tonumber(ARGV[3])", "local least = 0", inRedis, redisCases + "fencing/min-token"},
	{"TTLs are cut to whole seconds", "backend/redis/acquire.lua", "'NX', 'PX', ARGV[2])", "'NX', 'EX', string.format('%d', ARGV[2] / 1000))",
		inRedis, redisCases + "lifetime/store-keeps-its-word"},
	{"a release needs no ID", "backend/redis/release.lua", "if held and string.sub(held, 1, #id + 1) == id .. ':' then", "if held then",
		inRedis, redisCases + "lifetime/stale-release-frees-nothing"},
	{"a release wakes nobody", "backend/redis/release.lua", "redis.pcall('PUBLISH', ARGV[2], 'free')", "0", inRedis, redisCases + "waiting/wakes-watchers"},
	{"a release without a lock is forgotten", "backend/redis/release.lua", "if not string.find(note, '-' .. id, 1, true) then", "if false then",
		inRedis, redisCases + "cancellation/late-request-is-refused"},
	{"a renewal makes the lock anew", "backend/redis/renew.lua", "  redis.call('DEL', KEYS[1]) -- changes nothing, but a replica, whose word does not count, refuses it\n  return {0}",
		"  redis.call('SET', KEYS[1], ARGV[1] .. ':1:', 'PX', ARGV[2])\n  return {1}", inRedis, redisCases + "lifetime/renew-never-resurrects"},
	{"a renewal needs no ID", "backend/redis/renew.lua", "if string.sub(held, 1, #ARGV[1] + 1) ~= ARGV[1] .. ':' then", "if false then",
		inRedis, redisCases + "lifetime/stale-renew-refused"},
	{"a renewal renews nothing", "backend/redis/renew.lua", "return {redis.call('PEXPIRE', KEYS[1], ARGV[2])}", "return {1}",
		inRedis, redisCases + "lifetime/renewed-while-held"},
	{"a renewal adds to the remaining time", "backend/redis/renew.lua", "return {redis.call('PEXPIRE', KEYS[1], ARGV[2])}",
		"return {redis.call('PEXPIRE', KEYS[1], string.format('%d', redis.call('PTTL', KEYS[1]) + ARGV[2]))}", inRedis, redisCases + "lifetime/renew-sets-the-time"},

	// The statements of Postgres.
	{"the lock expires early", "backend/postgres/sql/acquire.sql", "OR expires_at <= clock_timestamp())", "OR expires_at <= clock_timestamp() + interval '300 milliseconds')",
		inPostgres, leaseCases + "lifetime/store-keeps-its-word"},
	{"the least token is ignored", "backend/postgres/sql/acquire.sql", "greatest(version + 1, $5::bigint)", "version + 1", inPostgres, leaseCases + "fencing/min-token"},
	{"a repeated request gets another token", "backend/postgres/sql/acquire.sql", "CASE WHEN id = $2::text THEN version ELSE greatest(version + 1, $5::bigint) END",
		"greatest(version + 1, $5::bigint)", inPostgres, leaseCases + "fencing/repeat-keeps-token"},
	{"a request that comes after its release is granted", "backend/postgres/sql/acquire.sql", "AND strpos(ended, $2::text) = 0", "",
		inPostgres, "TestLateRequestIsRefused"},
	{"TTLs are cut to whole seconds", "backend/postgres/sql/acquire.sql", "		expires_at = clock_timestamp() + $3::bigint * interval '1 microsecond'",
		"		expires_at = clock_timestamp() + $3::bigint / 1000000 * interval '1 second'", inPostgres, leaseCases + "lifetime/store-keeps-its-word"},
	{"TTLs are cut to whole seconds the first time", "backend/postgres/sql/acquire.sql", "$4::text, clock_timestamp() + $3::bigint * interval '1 microsecond'",
		"$4::text, clock_timestamp() + $3::bigint / 1000000 * interval '1 second'", inPostgres, leaseCases + "lifetime/store-keeps-its-word"},
	{"a release needs no ID", "backend/postgres/sql/release.sql", "WHERE l.name = g.name AND l.id = g.id AND", "WHERE l.name = g.name AND",
		inPostgres, leaseCases + "lifetime/stale-release-frees-nothing"},
	{"a release wakes nobody", "backend/postgres/sql/release.sql", "THEN pg_notify('{channel}', to_hex(g.key))", "THEN to_hex(g.key)",
		inPostgres, leaseCases + "waiting/wakes-watchers"},
	{"a renewal revives what has expired", "backend/postgres/sql/renew.sql", "	WHERE l.expires_at > clock_timestamp()\n	FOR UPDATE", "	FOR UPDATE",
		inPostgres, leaseCases + "lifetime/renewal-after-expiry"},
	{"a renewal adds to the remaining time", "backend/postgres/sql/renew.sql", "SET expires_at = clock_timestamp() +", "SET expires_at = l.expires_at +",
		inPostgres, leaseCases + "lifetime/renew-sets-the-time"},
	{"a renewal needs no ID", "backend/postgres/sql/renew.sql", "JOIN asked AS g ON l.name = g.name AND l.id = g.id\n	WHERE", "JOIN asked AS g ON l.name = g.name\n	WHERE",
		inPostgres, leaseCases + "lifetime/stale-renew-refused"},
	{"tokens do not grow", "backend/postgres/sql/token.sql", "version = greatest(l.version + 1, $3::bigint)", "version = greatest(l.version, $3::bigint)",
		inPostgres, rowlockCases + "fencing/grows-over-release"},
	{"a try waits for the holder", "backend/postgres/rowsql.go", `s.try = s.wait + " SKIP LOCKED"`, "s.try = s.wait", inPostgres, rowlockCases + "waiting/try-does-not-wait"},
}
