package conformance

import (
	"testing"
	"time"

	"github.com/anylock/anylock"
)

func TestHistory(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	span := func(who string, token anylock.Token, call, from, until int) Span {
		return Span{Name: "n", Who: who, Token: token, Call: at(call), From: at(from), Until: at(until)}
	}
	other := span("c", 1, 0, 0, 100)
	other.Name = "another lock"
	for _, c := range []struct {
		what              string
		spans             []Span
		overlap, disorder bool
	}{
		{"nothing", nil, false, false},
		{"one after the other", []Span{span("a", 1, 0, 1, 10), span("b", 2, 0, 10, 20), span("a", 3, 11, 21, 30)}, false, false},
		{"recorded in another order", []Span{span("b", 2, 0, 10, 20), span("a", 1, 0, 1, 10)}, false, false},
		{"another lock", []Span{span("a", 1, 0, 1, 10), other}, false, false},
		{"overlap", []Span{span("a", 1, 0, 1, 10), span("b", 2, 0, 9, 20)}, true, false},
		{"one inside the other", []Span{span("a", 1, 0, 1, 100), span("b", 2, 5, 10, 20), span("c", 3, 21, 30, 40)}, true, false},
		{"overlap with an earlier one that lasts", []Span{span("a", 1, 0, 1, 50), span("x", 2, 2, 3, 3), span("b", 3, 2, 49, 60)}, true, false},
		{"a grant that came too late is not trusted", []Span{span("a", 1, 0, 50, 40), span("b", 2, 0, 45, 60)}, false, false},
		{"equal tokens", []Span{span("a", 7, 0, 1, 10), span("b", 7, 0, 11, 20)}, false, true},
		{"falling tokens of calls one after the other", []Span{span("a", 7, 0, 1, 1), span("b", 6, 2, 3, 3)}, false, true},
		{"tokens of calls at once", []Span{span("a", 7, 0, 5, 5), span("b", 6, 2, 6, 6)}, false, false},
		{"highest long ago", []Span{span("a", 9, 0, 1, 2), span("b", 10, 3, 4, 5), span("c", 9, 6, 7, 8)}, false, true},
	} {
		h := new(History)
		for _, s := range c.spans {
			h.Add(s)
		}
		if err := h.Overlaps(); (err != nil) != c.overlap {
			t.Errorf("%s: Overlaps: %v", c.what, err)
		}
		if err := h.Disorder(); (err != nil) != c.disorder {
			t.Errorf("%s: Disorder: %v", c.what, err)
		}
		if h.Len() != len(c.spans) {
			t.Errorf("%s: %d spans", c.what, h.Len())
		}
	}
}

func TestTimeline(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	h := new(History)
	h.Add(Span{Name: "n", Who: "p1", Token: 41, Call: at(-20), From: at(0), Until: at(50)})
	h.Add(Span{Name: "n", Who: "p2", Token: 42, Call: at(10), From: at(60), Until: at(140)})
	h.Add(Span{Name: "n", Who: "p3", Token: 43, Call: at(30), From: at(120), Until: at(150)})
	want := `
lock "n" has two holders at once: p2 (token 42) and p3 (token 43) for 20ms
  holder         token                |0                                                      159.375ms|
  p1             41                   |...=====================                                        |
> p2             42                   |       ....................=================================    |
> p3             43                   |               ....................................=============|
`
	got := "\n" + h.Overlaps().Error()
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
