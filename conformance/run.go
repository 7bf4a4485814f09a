package conformance

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Run checks the backend that h opens, one subtest for each case. Cases run one after the other.
func Run(t *testing.T, h Harness) {
	t.Helper()
	s, err := newSuite(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range topics {
		t.Run(topic.name, func(t *testing.T) {
			for _, c := range topic.cases {
				t.Run(c.name, func(t *testing.T) {
					r := s.run(c)
					for _, line := range r.logs {
						t.Log(line)
					}
					switch {
					case len(r.failures) > 0:
						t.Errorf("broken promise: %s\n%s", c.promise, strings.Join(r.failures, "\n"))
					case r.skipped != "":
						t.Skip(r.skipped)
					}
				})
			}
		})
	}
}

// testCase is one promise and how to check it.
type testCase struct {
	name    string
	promise string // one sentence, printed when it is broken
	needs   []need
	check   func(*tester)
}

type topic struct {
	name  string
	cases []testCase
}

var topics = []topic{
	{"exclusion", exclusionCases},
	{"fencing", fencingCases},
	{"lifetime", lifetimeCases},
	{"waiting", waitingCases},
	{"cancellation", cancellationCases},
	{"values", valueCases},
	{"errors", errorCases},
	{"faults", faultCases},
	{"batch", batchCases},
}

// result is how a case went.
type result struct {
	failures []string
	logs     []string
	skipped  string // why, if it was
}

// run runs a case. One that fails while the machine stood still for longer than a lease may, or had more to do than it
// could, is run again: such a pause, of this process or of the store, ends leases, rightly.
func (s *suite) run(c testCase) result {
	if missing := s.missing(c); missing != "" {
		return result{skipped: "needs " + missing}
	}
	var noted []string
	for try := 1; ; try++ {
		r, excuse := s.runOnce(c)
		if len(r.failures) == 0 || excuse == "" || try == 3 {
			r.logs = append(noted, r.logs...)
			return r
		}
		noted = append(noted, fmt.Sprintf("failed while %s, run again: %s", excuse, r.failures[0]))
	}
}

func (s *suite) runOnce(c testCase) (r result, excuse string) {
	before := goleak.IgnoreCurrent()
	limit := time.Minute + 30*s.TTL
	t := newT(s, c, limit)
	go t.main()
	watchdog := time.NewTimer(limit + 10*time.Second)
	defer watchdog.Stop()
	select {
	case <-t.ended:
	case <-watchdog.C:
		t.Errorf("%s hangs; all goroutines:\n%s", c.name, stacks())
		return t.result(), ""
	}
	if t.failed() { // what a failed case leaves behind says nothing
		return t.result(), t.excuse()
	}
	if err := s.leaked(before); err != nil {
		t.Errorf("goroutines are left although all clients are closed: %v", err)
	}
	return t.result(), t.excuse()
}

// leaked waits for the goroutines that a case has started, and tells which do not end.
func (s *suite) leaked(before goleak.Option) error {
	opts := []goleak.Option{before, goleak.IgnoreAnyFunction("testing.(*T).Run")}
	for _, name := range slices.Concat(s.IgnoreGoroutines, harnessGoroutines) {
		opts = append(opts, goleak.IgnoreAnyFunction(name))
	}
	var err error
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		if err = goleak.Find(opts...); err == nil {
			return nil
		}
	}
	return err
}

// harnessGoroutines belong to clients that tests use to break things, such as the one of a container engine.
var harnessGoroutines = []string{
	"net/http.(*persistConn).readLoop",
	"net/http.(*persistConn).writeLoop",
}

func stacks() string {
	buf := make([]byte, 1<<20)
	return string(buf[:runtime.Stack(buf, true)])
}

func (t *tester) main() {
	defer close(t.ended)
	defer t.cleanup()
	defer t.contain("the case")
	t.check(t)
}

// contain turns a panic into a failure.
func (t *tester) contain(what string) {
	if p := recover(); p != nil {
		buf := make([]byte, 1<<16)
		t.Errorf("%s panicked: %v\n%s", what, p, buf[:runtime.Stack(buf, false)])
	}
}

// background is for what must be done although the case's time is over.
func background(limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), limit)
}
