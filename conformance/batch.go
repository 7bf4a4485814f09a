package conformance

import (
	"fmt"
	"slices"
	"time"

	"github.com/anylock/anylock"
)

var batchCases = []testCase{
	{
		name:    "renew-in-order",
		promise: "Renew answers for each grant of a batch, in order: nil for what lives and ErrLost for what does not.",
		check: func(t *tester) {
			c := t.client()
			grants, fates := t.mixed(c)
			before := time.Now()
			renewals := c.Backend.Renew(t.bounded(), slices.Clone(grants))
			if len(renewals) != len(grants) {
				t.Fatalf("%d answers for %d grants", len(renewals), len(grants))
			}
			for i, r := range renewals {
				if fates[i] == alive {
					t.must(r.Err, fmt.Sprintf("renewal %d, of a grant that is held", i))
					if r.From.Before(before) || r.From.After(time.Now()) || r.TTL < t.TTL {
						t.Errorf("renewal %d: from %v after the call, for %v", i, r.From.Sub(before), r.TTL)
					}
				} else if r.Err == nil {
					t.Errorf("renewal %d, of a grant that is gone: no error", i)
				} else {
					t.wants(r.Err, anylock.ErrLost)
				}
			}
			t.endAll(c, grants)
		},
	},
	{
		name:    "release-in-order",
		promise: "Release answers for each grant of a batch, in order, and ends exactly those that it names.",
		check: func(t *tester) {
			c, other := t.client(), t.client()
			grants, fates := t.mixed(c)
			errs := c.Backend.Release(t.bounded(), slices.Clone(grants))
			if len(errs) != len(grants) {
				t.Fatalf("%d answers for %d grants", len(errs), len(grants))
			}
			for i, err := range errs {
				switch {
				case fates[i] == alive:
					t.must(err, fmt.Sprintf("release %d, of a grant that is held", i))
					t.freed(other, grants[i].Name, 0, fmt.Sprintf("release %d", i))
				case err == nil && fates[i] == never:
					t.Errorf("release %d, of a grant that never was: no error", i)
				case err != nil:
					t.wants(err, anylock.ErrLost)
				}
			}
		},
	},
	{
		name:    "whole-id", // B04 B24
		promise: "An ID that is not exactly the holder's is granted nothing, renews nothing and releases nothing.",
		check: func(t *tester) {
			c, other, name := t.client(), t.client(), t.name("n")
			g := t.grant(c, t.request(name, t.long))
			for what, id := range map[string]string{
				"another last letter":  g.ID[:len(g.ID)-1] + next(g.ID[len(g.ID)-1]),
				"another first letter": next(g.ID[0]) + g.ID[1:],
				"a fresh ID":           t.request(name, t.TTL).ID,
			} {
				request := t.request(name, t.long)
				request.ID = id
				if _, err := other.Backend.Acquire(t.bounded(), request); err == nil {
					t.Fatalf("granted to %s while it is held", what)
				} else {
					t.wants(err, anylock.ErrHeld)
				}
				wrong := g
				wrong.ID, wrong.State = id, nil
				for _, by := range []Client{c, other} {
					t.wants(t.renewal(by, wrong).Err, anylock.ErrLost)
					t.wants(t.end(by, wrong), anylock.ErrLost)
				}
				t.heldByOther(other, name, "after a release with "+what)
			}
			t.must(t.renewal(c, g).Err, "the holder's renewal")
			t.must(t.end(c, g), "the holder's release")
		},
	},
	{
		name:    "whole-name",
		promise: "A grant of one name renews and releases nothing under another, even with the same ID.",
		check: func(t *tester) {
			c, other := t.client(), t.client()
			g := t.grant(c, t.request(t.name("n"), t.long))
			wrong := anylock.Grant{Name: t.name("n2"), ID: g.ID}
			t.wants(t.renewal(c, wrong).Err, anylock.ErrLost)
			t.wants(t.end(c, wrong), anylock.ErrLost)
			t.heldByOther(other, g.Name, "after a release under another name")
			t.must(t.end(c, g), "Release")
		},
	},
	{
		name:    "release-by-name-and-id",
		promise: "Name and ID are enough to release: the core also releases what it never got an answer for.",
		check: func(t *tester) {
			c, other, name := t.client(), t.client(), t.name("n")
			g := t.grant(c, t.request(name, t.long))
			t.must(c.Backend.Release(t.bounded(), bare(g))[0], "Release with name and ID")
			t.freed(other, name, 0, "after a release with name and ID")
			if err := c.Backend.Release(t.bounded(), bare(g))[0]; err != nil {
				t.wants(err, anylock.ErrLost) // a store need not remember what it has released
			}
			never := t.request(t.name("never"), t.TTL)
			err := c.Backend.Release(t.bounded(), []anylock.Grant{{Name: never.Name, ID: never.ID}})[0]
			t.wants(err, anylock.ErrLost)
		},
	},
	{
		name:    "empty",
		promise: "An empty batch does nothing.",
		check: func(t *tester) {
			c := t.client()
			if n := len(c.Backend.Renew(t.bounded(), nil)); n != 0 {
				t.Errorf("%d renewals of nothing", n)
			}
			if n := len(c.Backend.Release(t.bounded(), nil)); n != 0 {
				t.Errorf("%d releases of nothing", n)
			}
		},
	},
	{
		name:    "concurrent", // B126
		promise: "All methods of a backend may be called at once, for many names and for one.",
		check: func(t *tester) {
			c := t.client()
			n := min(16, t.MaxHolds)
			t.parallel(n, func(i int) {
				for round := range 10 {
					g, err := c.Backend.Acquire(t.bounded(), t.request(t.name(fmt.Sprint(i)), t.long))
					if err != nil {
						t.Errorf("Acquire %d of goroutine %d: %v", round, i, err)
						return
					}
					if _, err := c.Backend.Acquire(t.bounded(), t.request(t.name(fmt.Sprint(i)), t.long)); err == nil {
						t.Errorf("a second grant of one name")
					}
					if err := t.renewal(c, g).Err; err != nil {
						t.Errorf("Renew: %v", err)
					}
					if err := t.end(c, g); err != nil {
						t.Errorf("Release: %v", err)
					}
				}
			})
		},
	},
}

// fate is what has become of a grant.
type fate int

const (
	alive fate = iota
	never      // it never was given
	released
)

// mixed makes a batch of grants of all fates, in turns.
func (t *tester) mixed(c Client) (grants []anylock.Grant, fates []fate) {
	n := min(t.desc.MaxBatch, 12, t.MaxHolds-1)
	for i := range n {
		r := t.request(t.name(fmt.Sprint(i)), t.long)
		g := anylock.Grant{Name: r.Name, ID: r.ID, TTL: r.TTL}
		f := fate(i % 3)
		if f != never {
			g = t.grant(c, r)
		}
		if f == released {
			t.must(t.end(c, g), "Release")
		}
		grants, fates = append(grants, g), append(fates, f)
	}
	return grants, fates
}

func (t *tester) endAll(c Client, grants []anylock.Grant) { c.Backend.Release(t.bounded(), grants) }

// bare is g with only what every backend must be able to release by.
func bare(g anylock.Grant) []anylock.Grant { return []anylock.Grant{{Name: g.Name, ID: g.ID}} }

// next is another letter of an ID.
func next(letter byte) string {
	if letter == 'A' {
		return "B"
	}
	return "A"
}
