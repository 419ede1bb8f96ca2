package bench

import (
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// measureFirstAnswer times the way from the start of a server to its first answer. Beside it
// stands the same program that only prints its version.
func measureFirstAnswer(b *bench) []line {
	times := b.alternate(b.sizes.starts, 0.5,
		timed("execwire version", b.sayVersion), way{"execwire serve to first answer", b.firstAnswer})
	return []line{within("first answer after start, beside `execwire version`, p50", times[0], times[1], 0.025, showSeconds)}
}

func (b *bench) sayVersion() {
	out, err := exec.Command(harness.Execwire, "version").Output()
	if err != nil || !strings.Contains(string(out), "execwire") {
		b.Fatalf("the version is %q: %v", out, err)
	}
}

// firstAnswer starts a server, asks it one thing, and ends it.
func (b *bench) firstAnswer() time.Duration {
	b.Helper()
	cmd := exec.Command(harness.Execwire, "serve", "--listen", "unix://"+filepath.Join(b.TempDir(), "s"))
	output, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	var c *client.Client
	took := harness.Timed(func() {
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		var url [256]byte
		n, err := output.Read(url[:])
		if err != nil && err != io.EOF {
			b.Fatal(err)
		}
		if c, err = client.Dial(b.ctx, strings.TrimSpace(string(url[:n]))); err != nil {
			b.Fatal(err)
		}
		if _, err := c.Processes().ListProcesses(b.ctx, &execwirev1.ListProcessesRequest{}); err != nil {
			b.Fatal(err)
		}
	})
	_ = c.Close()
	harness.StopPeer(b, cmd)
	return took
}
