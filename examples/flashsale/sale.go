package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anylock/anylock"
	_ "github.com/anylock/anylock/backend/memory"
	_ "github.com/anylock/anylock/backend/redis"
)

// lockName is the name that every pod locks.
const lockName = "flashsale/phone-15"

type sale struct {
	lockURL, stockURL    string
	phones, buyers, pods int
}

type result struct {
	title         string
	sold, refused int
	took          time.Duration
}

func (r result) oversold(phones int) int { return max(r.sold-phones, 0) }

// run lets all buyers in at once.
func (s *sale) run(ctx context.Context, locked bool, progress io.Writer) (result, error) {
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	stock, err := openStock(ctx, s.stockURL)
	if err != nil {
		return result{}, err
	}
	defer stock.Close()
	if err := stock.Write(ctx, s.phones); err != nil {
		return result{}, fmt.Errorf("fill the stock: %w", err)
	}
	pods := make([]pod, s.pods)
	r := result{title: "without a lock"}
	if locked {
		r.title = "with anylock"
		for i := range pods {
			l, err := anylock.Open(ctx, s.lockURL, anylock.WithHolder(fmt.Sprintf("pod-%d", i+1)), anylock.WithTTL(10*time.Second))
			if err != nil {
				return r, err
			}
			defer l.Close(context.WithoutCancel(ctx))
			pods[i].locker = l
		}
	}

	var sold, refused atomic.Int64
	stopProgress := showProgress(progress, r.title, s.buyers, func() int64 { return sold.Load() + refused.Load() })
	var buyers sync.WaitGroup
	open := make(chan struct{})
	for i := range s.buyers {
		buyers.Go(func() {
			<-open
			switch bought, err := pods[i%s.pods].buy(ctx, stock); {
			case err != nil:
				giveUp(err)
			case bought:
				sold.Add(1)
			default:
				refused.Add(1)
			}
		})
	}
	start := time.Now()
	close(open)
	buyers.Wait()
	r.took = time.Since(start)
	stopProgress()
	r.sold, r.refused = int(sold.Load()), int(refused.Load())
	return r, context.Cause(ctx)
}

// pod is one process of the shop. Without a locker it sells without a lock.
type pod struct{ locker *anylock.Locker }

// buy sells one phone to one buyer if there is one.
func (p pod) buy(ctx context.Context, stock stock) (bought bool, err error) {
	if p.locker == nil {
		return sell(ctx, stock)
	}
	err = p.locker.Do(ctx, lockName, func(ctx context.Context, _ *anylock.Lease) error {
		bought, err = sell(ctx, stock)
		return err
	})
	return bought && err == nil, err
}

// sell reads the stock and writes it back: right as long as nobody else does so in between.
func sell(ctx context.Context, stock stock) (bool, error) {
	left, err := stock.Read(ctx)
	if err != nil || left == 0 {
		return false, err
	}
	if err := stock.Write(ctx, left-1); err != nil {
		return false, err
	}
	return true, nil
}

// showProgress says every now and then how far it is, until the function that it returns is called. On a terminal it
// keeps to one line.
func showProgress(w io.Writer, title string, of int, served func() int64) (stop func()) {
	every, begin, end := time.Second, "", "\n"
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			every, begin, end = 100*time.Millisecond, "\r", ""
		}
	}
	done := make(chan struct{})
	var gone sync.WaitGroup
	gone.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				fmt.Fprintf(w, "%s%s: %d of %d buyers served%s", begin, title, served(), of, end)
			case <-done:
				if begin != "" {
					fmt.Fprintf(w, "\r%s\r", strings.Repeat(" ", 60))
				}
				return
			}
		}
	})
	return func() { close(done); gone.Wait() }
}

// scheme is all of a URL that may be shown.
func scheme(url string) string {
	scheme, _, _ := strings.Cut(url, ":")
	return scheme
}

var errStock = errors.New("the stock must be memory:// or a Redis URL")
