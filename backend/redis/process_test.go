package redis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/anylock/anylock"
)

// TestMain turns this program into the holder when it is started with this set to the server's URL.
const holderVariable = "ANYLOCK_TEST_HOLDER"

const holderTTL = time.Second

// holdUntilLost is another process that holds a lock and looks at it all the time. It prints what the first look said
// after the process had stood still for more than a TTL.
func holdUntilLost(url string) {
	ctx := context.Background()
	l, err := anylock.Open(ctx, url, anylock.WithTTL(holderTTL), anylock.WithLogger(nil))
	if err != nil {
		fmt.Println(err)
		return
	}
	lease, err := l.Acquire(ctx, "stopped")
	if err != nil {
		fmt.Println(err)
		return
	}
	inside, cancel := lease.Context(ctx)
	defer cancel()
	last := time.Now()
	fmt.Println("held")
	for {
		now := time.Now()
		err, contextErr := lease.Err(), inside.Err()
		if now.Sub(last) > holderTTL {
			fmt.Println("lost:", errors.Is(err, anylock.ErrLost), "context ended:", contextErr != nil)
			return
		}
		if err != nil {
			fmt.Println("ended before it was stopped:", err)
			return
		}
		last = now
		time.Sleep(time.Millisecond)
	}
}

func TestStoppedProcessSeesItsLossAtTheFirstLook(t *testing.T) {
	s := shared(t)
	other := newLocker(t, rawClient(t, s))
	for range 3 {
		holder := exec.CommandContext(t.Context(), os.Args[0])
		holder.Env = append(os.Environ(), holderVariable+"="+s.URL())
		out, err := holder.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := holder.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		if !lines.Scan() || lines.Text() != "held" {
			t.Fatalf("the holder says %q", lines.Text())
		}
		if err := holder.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		stopped := time.Now()
		lease := mustLock(t, other, "stopped")
		if waited := time.Since(stopped); waited > holderTTL+2*time.Second {
			t.Errorf("another client got the lock %v after its holder had stopped", waited)
		}
		time.Sleep(time.Until(stopped.Add(2 * holderTTL)))
		if err := holder.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		lines.Scan()
		if got := strings.TrimSpace(lines.Text()); got != "lost: true context ended: true" {
			t.Errorf("the first look after SIGCONT said %q", got)
		}
		if err := holder.Wait(); err != nil {
			t.Error(err)
		}
		mustUnlock(t, lease)
	}
}
