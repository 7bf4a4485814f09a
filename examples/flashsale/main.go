// Flashsale sells 100 phones to 5,000 buyers who all come at once, from 10 pods, out of a stock that is read and written
// in two steps. It does so twice: without a lock, which sells phones that do not exist, and with anylock.
//
//	go run ./examples/flashsale
//	go run ./examples/flashsale -lock redis://localhost:6379 -stock redis://localhost:6379
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"text/tabwriter"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "flashsale:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	var s sale
	flags := flag.NewFlagSet("flashsale", flag.ContinueOnError)
	flags.SetOutput(progress)
	flags.StringVar(&s.lockURL, "lock", "memory://flashsale", "`URL` of the lock store, such as redis://localhost:6379")
	flags.StringVar(&s.stockURL, "stock", "memory://", "`URL` of the stock: memory:// or a Redis")
	flags.IntVar(&s.phones, "phones", 100, "phones in stock")
	flags.IntVar(&s.buyers, "buyers", 5000, "buyers who come at once")
	flags.IntVar(&s.pods, "pods", 10, "pods, each a client of the lock store of its own")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || s.phones < 0 || s.buyers < 1 || s.pods < 1 {
		return errors.New("there must be no arguments, no negative number of phones, and at least one buyer and one pod; see -help")
	}
	fmt.Fprintf(out, "%d phones, %d buyers at once, %d pods; lock: %s, stock: %s\n\n",
		s.phones, s.buyers, s.pods, scheme(s.lockURL), scheme(s.stockURL))

	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\tsold\toversold\trefused\ttime\torders/s\t")
	var after []result
	for _, locked := range []bool{false, true} {
		r, err := s.run(ctx, locked, progress)
		if err != nil {
			return err
		}
		after = append(after, r)
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%v\t%.0f\t\n", r.title, r.sold, r.oversold(s.phones), r.refused,
			r.took.Round(time.Millisecond), float64(s.buyers)/r.took.Seconds())
	}
	if err := table.Flush(); err != nil {
		return err
	}
	with := after[1]
	fmt.Fprintf(out, "\nwith anylock: sold %d, oversold %d\n", with.sold, with.oversold(s.phones))
	if with.sold != min(s.phones, s.buyers) {
		return fmt.Errorf("sold %d of %d phones under the lock", with.sold, s.phones)
	}
	return nil
}
