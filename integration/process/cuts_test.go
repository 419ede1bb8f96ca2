package process

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testproc"
	"github.com/execwire/execwire/internal/testrace"
)

// Every byte of a flood arrives once and in order, and so does the exit code, however often
// the connection is cut. The memory of the server stays bounded.
func TestOutput_FloodWithCuts_IsComplete(t *testing.T) {
	stdoutBytes, stderrBytes := uint64(192<<20+3), uint64(64<<20+1)
	if testing.Short() {
		stdoutBytes, stderrBytes = 12<<20+3, 4<<20+1
	}
	harness.WithConnectionCuts(t, int64(stdoutBytes/12), func(t *testing.T, ctx context.Context, c *client.Client, s *harness.Command, cut func()) {
		before := s.ResidentBytes(t, "VmHWM")
		stdout, stderr := testproc.StdoutPattern.NewVerifier(), testproc.StderrPattern.NewVerifier()
		exit, err := c.Run(ctx, client.RunOptions{
			Process: harness.Direct(harness.ThenExit(37, harness.Program("flood", "-bytes", fmt.Sprint(stdoutBytes), "-stderr", fmt.Sprint(stderrBytes)))...),
			Stdout:  stdout, Stderr: stderr,
			OnStarted: func(*execwirev1.Process) { cut() }, // a start that never reaches the server is not repeated
		})
		if err != nil || exit.Code != 37 || exit.Signal != 0 {
			t.Errorf("Run = %+v, %v; want exit code 37", exit, err)
		}
		if stdout.Offset() != stdoutBytes || stderr.Offset() != stderrBytes || exit.DroppedBytes != 0 {
			t.Errorf("%d of %d bytes of stdout and %d of %d of stderr were received, %d were dropped",
				stdout.Offset(), stdoutBytes, stderr.Offset(), stderrBytes, exit.DroppedBytes)
		}
		t.Logf("taken up %d times", exit.Resumed)
		expectBounded(s, t, before)
	})
}

// The memory that a server may use during a flood. At the peak this includes garbage up to the
// next collection and data in flight; soon after, only what it retains.
const (
	retainedBytes  = 4 << 20
	collectorBytes = 32 << 20
	onTheWayBytes  = 28 << 20
	leftBytes      = 8 << 20
)

// expectBounded bounds the server's memory during a flood and after it. The race detector
// multiplies memory, so nothing is compared with it.
func expectBounded(c *harness.Command, t *testing.T, before int64) {
	t.Helper()
	if testrace.Enabled {
		return
	}
	most := c.ResidentBytes(t, "VmHWM") - before
	if most > retainedBytes+collectorBytes+onTheWayBytes {
		t.Errorf("resident memory grew by up to %d KiB, want at most %d", most>>10, (retainedBytes+collectorBytes+onTheWayBytes)>>10)
	}
	var left int64
	harness.Eventually(t, "most of the server's memory is given back", func() bool {
		left = c.ResidentBytes(t, "VmRSS") - before
		return left <= retainedBytes+leftBytes
	})
	t.Logf("resident memory grew by up to %d KiB, of which %d are left", most>>10, left>>10)
}

// Input is applied once and in order, and is echoed so.
func TestStdin_Cuts_IsComplete(t *testing.T) {
	harness.Waits(t)
	size := int64(6<<20 + 5)
	if testing.Short() {
		size = 3<<20 + 5
	}
	harness.WithConnectionCuts(t, size/5, func(t *testing.T, ctx context.Context, c *client.Client, _ *harness.Command, cut func()) {
		echoed := testproc.StdoutPattern.NewVerifier()
		var stderr bytes.Buffer
		exit, err := c.Run(ctx, client.RunOptions{
			Process: harness.Direct(harness.ThenExit(41, harness.Program("echo"))...),
			Stdin:   testproc.StdoutPattern.Reader(size),
			Stdout:  echoed, Stderr: &stderr,
			OnStarted: func(*execwirev1.Process) { cut() },
		})
		if err != nil || exit.Code != 41 {
			t.Errorf("Run = %+v, %v; want exit code 41", exit, err)
		}
		if echoed.Offset() != uint64(size) || stderr.String() != "end of input\n" {
			t.Errorf("received %d of %d bytes back, and %q", echoed.Offset(), size, stderr.String())
		}
		t.Logf("taken up %d times", exit.Resumed)
	})
}
