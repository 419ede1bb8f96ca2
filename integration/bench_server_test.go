package integration

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/internal/testproc"
)

// benchTransports are the transports that a row is measured over, which are the
// keys of a peer's addresses.
var benchTransports = []string{"unix", "TCP"}

// benchPeer is a separate process that serves: execwire, or the floor that it is
// compared with.
type benchPeer struct {
	benchProcess
	// guardian is its parent, or the same process if it has none.
	guardian benchProcess
	// urls is where it listens, by transport.
	urls map[string]string
}

// startServer runs `execwire serve` with settings of the form NAME=VALUE and
// ends it with the benchmark.
func (b *bench) startServer(settings ...string) *benchPeer {
	b.Helper()
	socket := filepath.Join(b.TempDir(), "s")
	settings = append(settings, "EXECWIRE_SHUTDOWN_GRACE_PERIOD=0s") // processes that still run are to go
	return b.startPeer(settings, execwire, "serve", "--log-level", "warn",
		"--listen", "unix://"+socket, "--listen", "grpc://127.0.0.1:0")
}

// startBare runs the floor: a gRPC server that has nothing behind it.
func (b *bench) startBare() *benchPeer {
	b.Helper()
	argv := testproc.Argv("bench-bare", filepath.Join(b.TempDir(), "s"))
	return b.startPeer(nil, argv[0], argv[1:]...)
}

// said reports whether a server has said all of where it listens: the two
// transports of gRPC, a websocket, or where a hub does.
func (p *benchPeer) said() bool {
	return p.urls[jsonRPC] != "" || p.urls[throughHub] != "" || len(p.urls) == len(benchTransports)
}

// startPeer runs a server that prints the URLs of its listeners, and waits until
// it has.
func (b *bench) startPeer(settings []string, program string, arguments ...string) *benchPeer {
	b.Helper()
	cmd := exec.Command(program, arguments...)
	cmd.Env = append(os.Environ(), settings...)
	cmd.Stderr = os.Stderr
	output, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { stopPeer(b, cmd) })
	p := &benchPeer{guardian: benchProcess{tb: b, pid: cmd.Process.Pid}, urls: map[string]string{}}
	lines := bufio.NewScanner(output)
	for !p.said() && lines.Scan() {
		switch url := lines.Text(); {
		case strings.HasPrefix(url, "ws:"):
			p.urls[jsonRPC] = url
		case strings.HasPrefix(url, "http:"):
			p.urls[throughHub] = url
		case strings.HasPrefix(url, "unix:"):
			p.urls["unix"] = url
		case strings.HasPrefix(url, "grpc:"):
			p.urls["TCP"] = url
		}
	}
	if !p.said() {
		b.Fatalf("%s did not say where it listens", program)
	}
	p.benchProcess = p.guardian
	if server, guarded := serverOf(p.guardian.pid); guarded {
		p.benchProcess.pid = server
	}
	return p
}

// stopPeer ends a server the way an operator does.
func stopPeer(b *bench, cmd *exec.Cmd) {
	_ = cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	if err := cmd.Wait(); err != nil {
		b.Errorf("%s ended badly: %v", cmd.Path, err)
	}
}

// dial connects to a server over a transport until the benchmark ends.
func (b *bench) dial(p *benchPeer, transport string) *client.Client {
	b.Helper()
	c, err := client.Dial(b.ctx, p.urls[transport])
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
