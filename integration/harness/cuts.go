package harness

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// CutBytes returns the size of files in tests with cuts.
func CutBytes() int {
	if testing.Short() {
		return 12 << 20
	}
	return 20 << 20
}

// MinCuts is how many cuts a test with cuts must have had.
const MinCuts = 8

// WithConnectionCuts runs a test against a server in another process, through a proxy
// that cuts connections at random: after up to most bytes, mostly inside a frame, and
// every few hundred milliseconds, from when the test calls cut. Short tests use one transport.
func WithConnectionCuts(t *testing.T, most int64, run func(t *testing.T, ctx context.Context, c *client.Client, s *Command, cut func())) {
	listeners := []Transport{UnixTransport, TCPTransport}
	if testing.Short() {
		listeners = listeners[1:]
	}
	for _, d := range listeners {
		t.Run(string(d), func(t *testing.T) {
			seed := rand.Uint64()
			defer func() {
				if t.Failed() {
					t.Logf("the seed was %d", seed)
				}
			}()
			server := Serve(t)
			wire := NewProxy(t, d.Network(), server.Address(d))
			ctx, cancel := context.WithTimeoutCause(context.Background(), 2*StepTimeout, ErrTimeout)
			defer cancel()
			c, err := client.Dial(ctx, wire.URL())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			stop := func() {}
			run(t, ctx, c, server, func() { stop = CutConnections(wire, rand.New(rand.NewPCG(seed, 0)), most) })
			stop()
			if cuts := wire.CutCount(); cuts < MinCuts {
				t.Errorf("the connection broke %d times, which shows little", cuts)
			} else {
				t.Logf("the connection broke %d times", cuts)
			}
		})
	}
}

// CutConnections cuts the connections of a proxy until the returned function is called.
func CutConnections(wire *Proxy, random *rand.Rand, most int64) (stop func()) {
	var mu sync.Mutex // random is for one goroutine at a time
	wire.CutAfter(func() int64 {
		mu.Lock()
		defer mu.Unlock()
		return 1 + random.Int64N(most)
	})
	wire.Cut()
	over := make(chan struct{})
	var cutting sync.WaitGroup
	cutting.Go(func() {
		for {
			mu.Lock()
			pause := 100*time.Millisecond + time.Duration(random.Int64N(int64(400*time.Millisecond)))
			mu.Unlock()
			select {
			case <-time.After(pause):
				wire.Cut()
			case <-over:
				return
			}
		}
	})
	return func() { close(over); cutting.Wait() }
}

// Direct returns a request that starts argv.
func Direct(argv ...string) *execwirev1.StartProcessRequest {
	return &execwirev1.StartProcessRequest{Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{
		Direct: &execwirev1.DirectCommand{Argv: argv, WorkingDirectory: "/", Env: Environment()}}}}
}

// ThenExit returns a command line that runs a program and exits with another code.
func ThenExit(code int, argv []string) []string {
	return append([]string{"/bin/sh", "-c", fmt.Sprintf(`"$@" && exit %d`, code), "sh"}, argv...)
}

// ResidentBytes returns a figure of /proc/PID/status of the server, in bytes. What is compared with
// a later VmHWM is an earlier VmHWM: VmRSS is less by the pages of the program that a server gives
// back soon after its start.
func (c *Command) ResidentBytes(t *testing.T, figure string) int64 {
	t.Helper()
	return ProcStat{t, c.ServerPID(t)}.figure("status", figure)
}
