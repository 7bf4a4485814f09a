package redis

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/anylock/anylock"
)

var oddNames = []string{"plain", "{a}b", "a{b}c{d}", "{}x", "}{", "a{", "a}b", "{", "}", "{}", "{{a}}", "a}{b}", "{}{a}", "{Test}:id:key", "ü/ ", "a:b"}

func TestSlotsAreThoseOfRedis(t *testing.T) {
	if crc16("123456789") != 0x31C3 {
		t.Fatal("not the CRC that the Cluster specification names")
	}
	// As CLUSTER KEYSLOT answers, see TestClusterKeySlots for more.
	for key, want := range map[string]uint16{"foo": 12182, "{foo}bar": 12182, "bar{foo}{x}": 12182, "": 0} {
		if got := slotOf(key); got != want {
			t.Errorf("slot of %q is %d, want %d", key, got, want)
		}
	}
}

func TestTagForEverySlot(t *testing.T) {
	for slot := range uint16(slotCount) {
		if got := slotOf("\x00{" + tagFor(slot) + "}x"); got != slot {
			t.Fatalf("tag %q has slot %d, want %d", tagFor(slot), got, slot)
		}
	}
}

func TestKeysOfOneLockShareSlotAndPrefix(t *testing.T) {
	for _, prefix := range []string{"lock:", "", "{app}:", "x{app}"} {
		for _, name := range append(randomNames(2000), oddNames...) {
			k := keysFor(prefix, name)
			for _, key := range []string{k.counter, k.probeKey()} {
				if slotOf(key) != slotOf(k.lock) {
					t.Errorf("%q is in slot %d, the lock %q in %d", key, slotOf(key), k.lock, slotOf(k.lock))
				}
				if !strings.HasPrefix(key, prefix) {
					t.Errorf("%q does not begin with %q", key, prefix)
				}
			}
			if !strings.HasPrefix(k.channel, prefix) {
				t.Errorf("channel %q does not begin with %q", k.channel, prefix)
			}
		}
	}
}

func TestKeysOfDifferentLocksDiffer(t *testing.T) {
	for _, prefix := range []string{"lock:", "", "{app}:"} {
		seen := map[string]string{}
		for _, name := range append(randomNames(5000), oddNames...) {
			k := keysFor(prefix, name)
			for _, key := range []string{k.lock, k.counter, k.probeKey(), "channel " + k.channel} {
				if other, taken := seen[key]; taken && other != name {
					t.Fatalf("%q and %q both have %q", name, other, key)
				}
				seen[key] = name
			}
		}
	}
}

func FuzzKeys(f *testing.F) {
	for _, name := range oddNames {
		f.Add(name, "x")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == "" || b == "" || a == b || strings.ContainsRune(a+b, 0) {
			t.Skip()
		}
		ka, kb := keysFor("lock:", a), keysFor("lock:", b)
		if slotOf(ka.lock) != slotOf(ka.counter) {
			t.Errorf("%q: two slots", a)
		}
		if ka.counter == kb.counter || ka.counter == kb.lock || ka.channel == kb.channel {
			t.Errorf("%q and %q meet", a, b)
		}
	})
}

// randomNames are short and full of braces, so that they come close to each other.
func randomNames(n int) []string {
	const letters = "{}ab:0token"
	r := rand.New(rand.NewPCG(1, 2))
	names := make([]string, n)
	for i := range names {
		name := make([]byte, 1+r.IntN(8))
		for j := range name {
			name[j] = letters[r.IntN(len(letters))]
		}
		names[i] = string(name)
	}
	return names
}

func TestPrefixes(t *testing.T) {
	for _, prefix := range []string{"", "lock:", "{app}", "a{b}:"} {
		if err := checkPrefix(prefix); err != nil {
			t.Errorf("%q: %v", prefix, err)
		}
	}
	for _, prefix := range []string{"{", "}", "{}", "a{b", "{}{a}", "a}b", "\x00", "\xff", strings.Repeat("x", 257)} {
		if err := checkPrefix(prefix); !errors.Is(err, anylock.ErrInvalid) {
			t.Errorf("%q: %v, want ErrInvalid", prefix, err)
		}
	}
}

func BenchmarkKeys(b *testing.B) {
	keysFor("lock:", "warm")
	b.ReportAllocs()
	for b.Loop() {
		keysFor("lock:", "orders/4711")
	}
}
