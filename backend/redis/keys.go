package redis

import (
	"strings"
	"unicode/utf8"

	"github.com/anylock/anylock"
)

// keys are what belongs to one lock in Redis. All begin with the prefix, so that one ACL pattern covers them; both keys
// are in one hash slot; and since names have no NUL, a helper is never the lock of another name.
type keys struct {
	lock    string // the plain place where any SET NX code would put it
	counter string // the last token
	channel string // where releases are published
}

func keysFor(prefix, name string) keys {
	lock := prefix + name
	k := keys{lock: lock, channel: lock + "\x00free"}
	if hashTag(lock) != "" {
		k.counter = lock + "\x00token" // has the same tag
	} else {
		k.counter = prefix + "\x00{" + tagFor(slotOf(lock)) + "}" + name
	}
	return k
}

// probeKey is a key and a channel that no lock uses, in the slot of the lock.
func (k keys) probeKey() string {
	if strings.HasSuffix(k.counter, "\x00token") {
		return strings.TrimSuffix(k.counter, "token") + "probe"
	}
	return k.counter + "\x00probe"
}

func checkPrefix(prefix string) error {
	const most = 256
	switch {
	case len(prefix) > most:
		return anylock.Invalidf("the prefix is %d bytes long; %d are allowed", len(prefix), most)
	case !utf8.ValidString(prefix) || strings.ContainsRune(prefix, 0):
		return anylock.Invalidf("the prefix %q must be valid UTF-8 without NUL", prefix)
	case strings.ContainsAny(prefix, "{}") && hashTag(prefix) == "":
		return anylock.Invalidf(`the prefix %q has braces, but no complete hash tag such as "{app}"`, prefix)
	}
	return nil
}
