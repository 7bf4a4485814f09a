package redis

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/anylock/anylock"
)

// refusals are the answers of a server that will be the same next time, and what to do about them. All others may pass.
// Old servers wrap the error of a command in a script, so a code is looked for after a colon, too.
var refusals = []struct{ words, advice string }{
	{"WRONGPASS", "the user or the password is wrong"},
	{"NOAUTH", "the server asks for a password, write it into the URL as USER:PASSWORD@ or :PASSWORD@"},
	{"ERR invalid password", "the password is wrong"},
	{"ERR Client sent AUTH, but no password is set", "the server has no password, leave it out"},
	{"NOPERM", noRights},
	{"ACL failure in script", noRights}, // Redis 8 and Valkey; the next three are older
	{"can't run this command", noRights},
	{"can't access at least one of the keys", noRights},
	{"can't publish to the channel", noRights},
	{"WRONGTYPE", "something else than a lock is stored at this key, choose another name or prefix"},
	{"CROSSSLOT", "the keys of one lock are in different hash slots, which is a bug of anylock or of a proxy"},
	{"unknown command 'sentinel'", "this server is not a sentinel; name the sentinels' own addresses, or leave out sentinel="},
	{"unknown command", "the server does not know a command that is needed, EVAL and EVALSHA among them"},
	{"Unknown Redis command called from script", "the server does not know a command that is needed"},
	{"DENIED", "the server is in protected mode"},
	{"cluster support disabled", "the server is not a cluster, leave out cluster=true"},
	{"SELECT is not allowed in cluster mode", "a cluster has one database only, leave it out"},
	{"DB index is out of range", "the server does not have this database"},
}

const noRights = "the user lacks a right, the package documentation has the ACL line"

// classify gives an error of go-redis its class, and takes out of its text what nobody should read.
func classify(err error, cluster bool) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, anylock.ErrInvalid), errors.Is(err, anylock.ErrUnavailable), errors.Is(err, anylock.ErrClosed):
		return err
	case errors.Is(err, redis.ErrClosed):
		return fmt.Errorf("%w: the Redis client below it was closed", anylock.ErrClosed)
	case errors.Is(err, redis.ErrPoolTimeout):
		return anylock.Unavailable(fmt.Errorf("all connections of the client's pool are in use, see PoolSize: %w", err))
	}
	if certificate := (*tls.CertificateVerificationError)(nil); errors.As(err, &certificate) {
		return anylock.Invalid(err, "the server's certificate is not trusted, see the parameters ca= and servername=")
	}
	if record := (tls.RecordHeaderError{}); errors.As(err, &record) {
		return anylock.Invalid(err, "the server does not speak TLS at this port, write redis:// or use its TLS port")
	}
	if answer := redis.Error(nil); !errors.As(err, &answer) {
		return anylock.Unavailable(err)
	}
	err = redact(err)
	text := err.Error()
	if strings.HasPrefix(text, "MOVED ") && !cluster {
		return anylock.Invalid(err, "the server is part of a cluster, write cluster=true")
	}
	for _, r := range refusals {
		if strings.HasPrefix(text, r.words) || strings.Contains(text, ": "+r.words) || strings.Contains(text, ": -"+r.words) ||
			strings.Contains(r.words, " ") && strings.Contains(text, r.words) {
			return anylock.Invalid(err, r.advice)
		}
	}
	return anylock.Unavailable(err)
}

// redact cuts the arguments, with IDs and passwords among them, that the server repeats when it does not know a command.
func redact(err error) error {
	text, _, found := strings.Cut(err.Error(), ", with args beginning with")
	if !found {
		return err
	}
	return redacted(text)
}

// redacted is a server's error of which the driver's own must not be reached, since it says too much.
type redacted string

func (e redacted) Error() string { return string(e) }

// RedisError makes it a redis.Error.
func (redacted) RedisError() {}
