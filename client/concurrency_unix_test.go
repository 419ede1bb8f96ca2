//go:build unix

package client_test

import (
	"cmp"
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/daemon"
)

// BenchmarkConcurrentRuns measures runs of echo at once on one client, beside
// bench/concurrency.py and scripts/bench.mjs of the other SDKs: the time until all have
// ended, and the processor time of this program. EXECWIRE_SERVER is the URL of the server;
// the default is one inside this program, whose processor time counts too.
func BenchmarkConcurrentRuns(b *testing.B) {
	c, err := daemon.Open(b.Context(), cmp.Or(os.Getenv("EXECWIRE_SERVER"), daemon.LocalURL), daemon.OpenOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	used := func() time.Duration {
		var usage syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
			b.Fatal(err)
		}
		return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	for _, count := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			before := used()
			for b.Loop() {
				var runs sync.WaitGroup
				for i := range count {
					runs.Go(func() {
						want := fmt.Sprintln(i)
						if got, err := c.Output(b.Context(), client.Command{Argv: []string{"echo", fmt.Sprint(i)}}); err != nil || string(got) != want {
							b.Errorf("%q, %v, want %q", got, err, want)
						}
					})
				}
				runs.Wait()
			}
			b.ReportMetric((used()-before).Seconds()/float64(b.N), "cpu-s/op")
		})
	}
}
