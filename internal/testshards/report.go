package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"
)

// report prints a line of progress, in the form of go test, after all that is known of what failed.
func (o *outcome) report(w io.Writer) {
	verdict := "ok  "
	if !o.ok() {
		verdict = "FAIL"
	}
	_, _ = w.Write(o.log.Bytes())
	fmt.Fprintf(w, "%s\t%-18s\t%.1fs\t%d passed, %d failed, %d skipped", verdict, o.shard, o.took.Seconds(), o.passed, o.failed, o.skips())
	if o.broken != "" {
		fmt.Fprintf(w, " (%s)", o.broken)
	}
	fmt.Fprintln(w)
}

// table prints what each shard has done, and the sum in a line of its own.
func table(out io.Writer, outcomes []*outcome, took time.Duration) (ok bool) {
	ok = true
	passed, failed, skipped := 0, 0, 0
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "shard\tpassed\tfailed\tskipped\tseconds\twhy skipped")
	for _, o := range outcomes {
		ok = ok && o.ok()
		passed += o.passed
		failed += o.failed
		skipped += o.skips()
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%.0f\t", o.shard, o.passed, o.failed, o.skips(), o.took.Seconds())
		notes := o.why()
		if o.broken != "" {
			notes = append([]string{"failed: " + o.broken}, notes...)
		}
		for i, note := range notes {
			if i > 0 {
				fmt.Fprint(w, "\n\t\t\t\t\t")
			}
			fmt.Fprint(w, note)
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush()
	fmt.Fprintf(out, "\nall of it took %.0f s\n%d passed, %d failed, %d skipped\n", took.Seconds(), passed, failed, skipped)
	return ok
}

// why lists the reasons of skips, the most frequent first.
func (o *outcome) why() (reasons []string) {
	frequent := func(a, b string) int { return cmp.Or(cmp.Compare(o.skipped[b], o.skipped[a]), cmp.Compare(a, b)) }
	for _, reason := range slices.SortedFunc(maps.Keys(o.skipped), frequent) {
		reasons = append(reasons, fmt.Sprintf("%d: %s", o.skipped[reason], reason))
	}
	return reasons
}
