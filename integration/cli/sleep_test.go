package cli

import (
	"fmt"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testproc"
)

// A laptop sleeps in its process's grace period while that writes 50 MiB: the process waits for it, and the
// laptop gets all.
func TestRun_Asleep_LosesNothing(t *testing.T) {
	const size = 50 << 20
	server := harness.NewServer(t, nil)
	s, network := harness.NewScenario(t, server, harness.TCPTransport), harness.NewProxy(t, "tcp", server.Address(harness.TCPTransport))
	laptop := harness.NewCommand(append([]string{"run", "--server", network.URL(), "--id", "build", "--grace", "10m", "--"},
		harness.Program("flood", "-bytes", fmt.Sprint(size))...)...)
	output := &verified{verifier: testproc.StdoutPattern.NewVerifier()}
	laptop.Stdout = output
	laptop.Launch(t)
	harness.Eventually(t, "output arrives", func() bool { return output.bytes() > 0 })
	laptop.Send(t, unix.SIGSTOP)
	network.SetStalled(true)
	network.Cut()
	s.AwaitOwned("build", false)
	before := s.Get("build")
	harness.Eventually(t, "it writes no more", func() bool {
		last := before.GetLastSeq()
		before = s.Get("build")
		return before.GetLastSeq() == last
	})
	if before.GetState() != execwirev1.ProcessState_PROCESS_STATE_RUNNING {
		t.Errorf("while the laptop sleeps, it is %v", before.GetState())
	}
	network.SetStalled(false)
	laptop.Send(t, unix.SIGCONT)
	if code := laptop.Await(t); code != 0 || output.bytes() != size {
		t.Errorf("it ended with %d after %d bytes: %s", code, output.bytes(), laptop.Errors.String())
	}
}

// verified is output that is compared with its pattern.
type verified struct {
	mu       sync.Mutex
	verifier *testproc.Verifier // guarded by mu
}

func (v *verified) Write(data []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.verifier.Write(data)
}

func (v *verified) bytes() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.verifier.Offset()
}
