package integration

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/testproc"
)

// leastCuts is how often the connection must break for a test under fire to
// have shown anything.
const leastCuts = 8

// underFire runs a test against a server in another process, over wires that
// break at random: after up to most bytes, mostly inside a frame, and every few
// hundred milliseconds. The short tests do so over one kind of connection.
func underFire(t *testing.T, most int64, run func(t *testing.T, ctx context.Context, c *client.Client, s *command)) {
	listeners := []door{unixDoor, tcpDoor}
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
			server := serve(t)
			wire := newProxy(t, d.network(), server.address(d))
			ctx, cancel := context.WithTimeoutCause(context.Background(), 2*patience, errTooLong)
			defer cancel()
			c, err := client.Dial(ctx, wire.url())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			stop := harass(wire, rand.New(rand.NewPCG(seed, 0)), most)
			run(t, ctx, c, server)
			stop()
			if cuts := wire.cutCount(); cuts < leastCuts {
				t.Errorf("the connection broke %d times, which shows little", cuts)
			} else {
				t.Logf("the connection broke %d times", cuts)
			}
		})
	}
}

// harass breaks the connections of a wire until the returned function is called.
func harass(wire *proxy, random *rand.Rand, most int64) (stop func()) {
	var mu sync.Mutex // random is for one goroutine at a time
	wire.cutAfter(func() int64 {
		mu.Lock()
		defer mu.Unlock()
		return 1 + random.Int64N(most)
	})
	wire.cut()
	over := make(chan struct{})
	var cutting sync.WaitGroup
	cutting.Go(func() {
		for {
			mu.Lock()
			pause := 100*time.Millisecond + time.Duration(random.Int64N(int64(400*time.Millisecond)))
			mu.Unlock()
			select {
			case <-time.After(pause):
				wire.cut()
			case <-over:
				return
			}
		}
	})
	return func() { close(over); cutting.Wait() }
}

// direct says what to run under a server in another process.
func direct(argv ...string) *execwirev1.StartProcessRequest {
	return &execwirev1.StartProcessRequest{Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{
		Direct: &execwirev1.DirectCommand{Argv: argv, WorkingDirectory: "/", Env: environment()}}}}
}

// then runs a program and exits with a code that is not the program's.
func then(code int, argv []string) []string {
	return append([]string{"/bin/sh", "-c", fmt.Sprintf(`"$@" && exit %d`, code), "sh"}, argv...)
}

// Every byte of a flood arrives once and in order, and the exit code with it,
// however often the connection breaks; and the server does not hoard meanwhile.
func TestAFloodSurvivesBrokenConnections(t *testing.T) {
	stdoutBytes, stderrBytes := uint64(192<<20+3), uint64(64<<20+1)
	if testing.Short() {
		stdoutBytes, stderrBytes = 12<<20+3, 4<<20+1
	}
	underFire(t, int64(stdoutBytes/12), func(t *testing.T, ctx context.Context, c *client.Client, s *command) {
		before := s.residentBytes(t, "VmRSS")
		stdout, stderr := testproc.StdoutPattern.NewVerifier(), testproc.StderrPattern.NewVerifier()
		exit, err := c.Run(ctx, client.RunOptions{
			Process: direct(then(37, program("flood", "-bytes", fmt.Sprint(stdoutBytes), "-stderr", fmt.Sprint(stderrBytes)))...),
			Stdout:  stdout, Stderr: stderr,
		})
		if err != nil || exit.Code != 37 || exit.Signal != 0 {
			t.Errorf("Run = %+v, %v; want exit code 37", exit, err)
		}
		if stdout.Offset() != stdoutBytes || stderr.Offset() != stderrBytes || exit.DroppedBytes != 0 {
			t.Errorf("%d of %d bytes of stdout and %d of %d of stderr came, %d were dropped",
				stdout.Offset(), stdoutBytes, stderr.Offset(), stderrBytes, exit.DroppedBytes)
		}
		t.Logf("taken up %d times", exit.Resumed)
		s.expectBounded(t, before)
	})
}

// What a server may take for a flood. At its height there is garbage beside
// what it retains: as much as its collector lets pile up, and what is on its
// way. Soon after, only what it retains is left.
const (
	retainedBytes  = 4 << 20
	collectorBytes = 32 << 20
	onTheWayBytes  = 28 << 20
	leftBytes      = 8 << 20
)

// expectBounded bounds the server's memory during a flood and after it. Race
// detection multiplies memory: with it there is nothing to compare.
func (c *command) expectBounded(t *testing.T, before int64) {
	t.Helper()
	if raceEnabled {
		return
	}
	most := c.residentBytes(t, "VmHWM") - before
	if most > retainedBytes+collectorBytes+onTheWayBytes {
		t.Errorf("resident memory grew by up to %d KiB, want at most %d", most>>10, (retainedBytes+collectorBytes+onTheWayBytes)>>10)
	}
	var left int64
	eventually(t, "most of the server's memory is given back", func() bool {
		left = c.residentBytes(t, "VmRSS") - before
		return left <= retainedBytes+leftBytes
	})
	t.Logf("resident memory grew by up to %d KiB, of which %d are left", most>>10, left>>10)
}

// Input is applied once and in order, and comes back so.
func TestInputSurvivesBrokenConnections(t *testing.T) {
	waits(t)
	size := int64(6<<20 + 5)
	if testing.Short() {
		size = 3<<20 + 5
	}
	underFire(t, size/5, func(t *testing.T, ctx context.Context, c *client.Client, _ *command) {
		echoed := testproc.StdoutPattern.NewVerifier()
		var stderr bytes.Buffer
		exit, err := c.Run(ctx, client.RunOptions{
			Process: direct(then(41, program("echo"))...),
			Stdin:   testproc.StdoutPattern.Reader(size),
			Stdout:  echoed, Stderr: &stderr,
		})
		if err != nil || exit.Code != 41 {
			t.Errorf("Run = %+v, %v; want exit code 41", exit, err)
		}
		if echoed.Offset() != uint64(size) || stderr.String() != "end of input\n" {
			t.Errorf("%d of %d bytes came back, and %q", echoed.Offset(), size, stderr.String())
		}
		t.Logf("taken up %d times", exit.Resumed)
	})
}

// residentBytes reads a figure of the server's memory.
func (c *command) residentBytes(t *testing.T, figure string) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.serverPID(t)))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, figure+":"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatalf("there is no %s", figure)
	return 0
}
