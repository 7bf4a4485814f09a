package conformance

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/backend/memory"
)

func plainSuite(t *testing.T) *suite {
	t.Helper()
	store := memory.NewStore(anylock.WakeNotify)
	s, err := newSuite(t.Context(), Harness{
		TTL:  100 * time.Millisecond,
		Open: func(context.Context) (Client, error) { return Client{Backend: store.Client()}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSafetyNeedsNoHook(t *testing.T) {
	s := plainSuite(t)
	for _, topic := range topics {
		for _, c := range topic.cases {
			missing := s.missing(c)
			if missing != "" && (topic.name == "exclusion" || topic.name == "batch") {
				t.Errorf("%s/%s is skipped without %s", topic.name, c.name, missing)
			}
		}
	}
}

func TestCasesHaveNamesAndPromises(t *testing.T) {
	seen := map[string]bool{}
	for _, topic := range topics {
		for _, c := range topic.cases {
			name := topic.name + "/" + c.name
			if seen[name] || c.name == "" || strings.ContainsAny(c.name, " /") {
				t.Errorf("%q: the name is taken or has odd letters", name)
			}
			seen[name] = true
			if !strings.HasSuffix(c.promise, ".") || len(c.promise) > 130 {
				t.Errorf("%s: the promise is not one short sentence: %q", name, c.promise)
			}
		}
	}
}

func TestFailuresAreCollected(t *testing.T) {
	s := plainSuite(t)
	for what, check := range map[string]func(*tester){
		"one of many": func(t *tester) {
			t.parallel(4, func(i int) {
				if i == 2 {
					t.Fatalf("broken here")
				}
			})
		},
		"panic": func(*tester) { panic("broken here") },
		"wants": func(t *tester) { t.wants(nil, anylock.ErrHeld) },
		"leak":  func(t *tester) { go func() { <-time.After(20 * time.Second) }() },
		"in vain": func(t *tester) {
			t.peer().refused(t.name("n"), "nobody has it")
		},
	} {
		r, _ := s.runOnce(testCase{name: "x", check: check})
		if len(r.failures) == 0 {
			t.Errorf("%s: not noticed", what)
		}
	}
}

// What a backend says of itself is checked once, and not by each case.
func TestDescriptionIsChecked(t *testing.T) {
	for name, change := range map[string]func(*anylock.Description){
		"no name":      func(d *anylock.Description) { d.Name = "" },
		"no least TTL": func(d *anylock.Description) { d.MinTTL = 0 },
		"no MaxTTL":    func(d *anylock.Description) { d.MaxTTL = 0 },
		"no MaxBatch":  func(d *anylock.Description) { d.MaxBatch = 0 },
		"no limit":     func(d *anylock.Description) { d.MaxRequests = -1 },
	} {
		h := memoryHarness(anylock.WakeQueue, false, func(b anylock.Backend) anylock.Backend { return describes{b, change} })
		if _, err := newSuite(t.Context(), h); err == nil {
			t.Errorf("%s is not noticed", name)
		}
	}
}

type describes struct {
	anylock.Backend
	change func(*anylock.Description)
}

func (b describes) Describe() anylock.Description {
	d := b.Backend.Describe()
	b.change(&d)
	return d
}

func TestMissingHookSkipsByName(t *testing.T) {
	r := plainSuite(t).run(testCase{name: "x", needs: []need{needRestart, needSteal}, check: func(t *tester) { t.Errorf("ran") }})
	if len(r.failures) > 0 || r.skipped != "needs Harness.Kill and Start; Harness.Steal" {
		t.Errorf("%+v", r)
	}
}
