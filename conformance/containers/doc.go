// Package containers gives tests real servers to run against, and the means to hurt them.
//
// A server is a container on the local engine; nothing has to be set by hand. Without an engine or an image the test
// skips with one line that says what to install, unless ANYLOCK_TEST_CONTAINERS=require, which makes it fail instead.
// An address in the environment is used in place of a container:
//
//	ANYLOCK_TEST_REDIS=host:port
//	ANYLOCK_TEST_POSTGRES=user:password@host:port/database
//	ANYLOCK_TEST_VALKEY=host:port
//	ANYLOCK_TEST_REDIS_CLUSTER=host:port,host:port,...
//	ANYLOCK_TEST_REDIS_SENTINEL=master@host:port,...
//
// Node faults ([Server.Pause], [Server.Kill], [Node.Kill], [Sentinel.Failover] ...) act on the servers, wire faults
// ([Network]) on the way of one client to them. Both are undone when the test ends.
//
// This is the only package outside of tests that may import testcontainers.
package containers
