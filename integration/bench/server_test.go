package bench

import (
	"path/filepath"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/integration/harness"
)

// startServer runs `execwire serve` with settings of the form NAME=VALUE and
// ends it with the benchmark.
func (b *bench) startServer(settings ...string) *harness.Peer {
	b.Helper()
	socket := filepath.Join(b.TempDir(), "s")
	settings = append(settings, "EXECWIRE_SHUTDOWN_GRACE_PERIOD=0s") // processes that still run are to go
	return harness.StartPeer(b, settings, harness.Execwire, "serve", "--log-level", "warn",
		"--listen", "unix://"+socket, "--listen", "tcp://127.0.0.1:0")
}

// dial connects to a server over a transport until the benchmark ends.
func (b *bench) dial(p *harness.Peer, transport string) *client.Client {
	b.Helper()
	c, err := client.Dial(b.ctx, p.URLs[transport])
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	return c
}

// discardCounter counts what is written and forgets it.
type discardCounter struct{ n int64 }

func (d *discardCounter) Write(p []byte) (int, error) {
	d.n += int64(len(p))
	return len(p), nil
}
