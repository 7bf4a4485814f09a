package conformance

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anylock/anylock"
)

// Span says that somebody held a lock for some time. All times are of one local monotonic clock.
type Span struct {
	Name  string        // the lock
	Who   string        // the holder, for people
	Token anylock.Token // its fencing token
	Call  time.Time     // just before Acquire was called
	From  time.Time     // just after it returned: from here on the holder trusted the lease
	Until time.Time     // up to here: it called Release, or the trust window ended
}

// trusted reports whether there was a moment at which the lease could be acted upon.
func (s Span) trusted() bool { return s.From.Before(s.Until) }

// History is a record of who held which lock when. Its methods may be called concurrently.
type History struct {
	mu    sync.Mutex
	spans []Span
}

// Add records a span that is over.
func (h *History) Add(s Span) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.spans = append(h.spans, s)
}

// Len is the number of spans so far.
func (h *History) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.spans)
}

// Overlaps returns an error with a timeline if two holders of one lock trusted it at the same time.
func (h *History) Overlaps() error {
	return h.each(func(name string, spans []Span) error {
		spans = slices.DeleteFunc(spans, func(s Span) bool { return !s.trusted() })
		if len(spans) == 0 {
			return nil
		}
		last := 0 // the span that reaches furthest so far
		for i := 1; i < len(spans); i++ {
			if spans[i].From.Before(spans[last].Until) {
				return fmt.Errorf("lock %q has two holders at once: %s (token %d) and %s (token %d) for %v\n%s", name,
					spans[last].Who, spans[last].Token, spans[i].Who, spans[i].Token,
					earlier(spans[i].Until, spans[last].Until).Sub(spans[i].From), draw(spans, last, i))
			}
			if spans[i].Until.After(spans[last].Until) {
				last = i
			}
		}
		return nil
	})
}

// Disorder returns an error with a timeline if a grant that certainly came later has a token that is not greater.
func (h *History) Disorder() error {
	return h.each(func(name string, spans []Span) error {
		highest := -1 // the greatest token whose grant is certainly before the one that is looked at
		byReturn := make([]int, len(spans))
		for i := range byReturn {
			byReturn[i] = i
		}
		byCall := slices.Clone(byReturn)
		slices.SortFunc(byReturn, func(a, b int) int { return spans[a].From.Compare(spans[b].From) })
		slices.SortFunc(byCall, func(a, b int) int { return spans[a].Call.Compare(spans[b].Call) })
		check := func(before, after int) error {
			if spans[before].Token < spans[after].Token {
				return nil
			}
			return fmt.Errorf("lock %q: token %d of %s came before token %d of %s\n%s", name,
				spans[before].Token, spans[before].Who, spans[after].Token, spans[after].Who, draw(spans, before, after))
		}
		next := 0
		for _, i := range byCall {
			for next < len(byReturn) && spans[byReturn[next]].From.Before(spans[i].Call) {
				if j := byReturn[next]; highest < 0 || spans[j].Token > spans[highest].Token {
					highest = j
				}
				next++
			}
			if highest >= 0 {
				if err := check(highest, i); err != nil {
					return err
				}
			}
		}
		// Trusted spans that do not overlap were granted in the order in which they were trusted.
		before := -1
		for i, s := range spans {
			if !s.trusted() {
				continue
			}
			if before >= 0 && !s.From.Before(spans[before].Until) {
				if err := check(before, i); err != nil {
					return err
				}
			}
			before = i
		}
		return nil
	})
}

// each calls check with the spans of each lock, in the order in which they began.
func (h *History) each(check func(name string, spans []Span) error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	byName := make(map[string][]Span)
	for _, s := range h.spans {
		byName[s.Name] = append(byName[s.Name], s)
	}
	for name, spans := range byName {
		slices.SortFunc(spans, func(a, b Span) int {
			return cmp.Or(a.From.Compare(b.From), a.Until.Compare(b.Until))
		})
		if err := check(name, spans); err != nil {
			return err
		}
	}
	return nil
}

// draw shows two spans and their neighbours as a timeline: "." while Acquire runs, "=" while the lease is trusted.
func draw(spans []Span, i, j int) string {
	const width, around = 64, 2
	first, last := max(min(i, j)-around, 0), min(max(i, j)+around+1, len(spans))
	shown := spans[first:last]
	if len(shown) > 12 { // the two are far apart
		shown = []Span{spans[i], spans[j]}
	}
	start := shown[0].From
	end := shown[0].From
	for _, s := range shown {
		start = earlier(start, s.From)
		for _, at := range []time.Time{s.From, s.Until} {
			if at.After(end) {
				end = at
			}
		}
	}
	total := max(end.Sub(start), 1)
	start = start.Add(-total / 16)
	total += total / 16
	column := func(at time.Time) int {
		return min(max(int(int64(at.Sub(start))*(width-1)/int64(total)), 0), width-1)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "  %-14s %-20s |0%*s|\n", "holder", "token", width-1, total.Round(time.Microsecond))
	for _, s := range shown {
		line := []byte(strings.Repeat(" ", width))
		for c := column(s.Call); c <= column(s.From); c++ {
			line[c] = '.'
		}
		if s.trusted() {
			for c := column(s.From); c <= column(s.Until); c++ {
				line[c] = '='
			}
		} else {
			line[column(s.From)] = 'x' // it came too late to be trusted
		}
		mark := " "
		if s == spans[i] || s == spans[j] {
			mark = ">"
		}
		fmt.Fprintf(&b, "%s %-14.14s %-20d |%s|\n", mark, s.Who, s.Token, line)
	}
	return b.String()
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
