package harness

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Raw reports a figure as it was measured. Benchmarks print it, because the framework
// truncates their logs.
func Raw(tb testing.TB, format string, args ...any) {
	tb.Helper()
	if _, ok := tb.(*testing.B); ok {
		fmt.Printf("    "+format+"\n", args...)
		return
	}
	tb.Logf(format, args...)
}

// JSONRPC is the key of the URL of a peer's websocket.
const JSONRPC = "JSON-RPC"

// StartSocketServer runs `execwire serve` with the websocket listener alone.
func StartSocketServer(b testing.TB, settings ...string) *Peer {
	b.Helper()
	settings = append(settings, "EXECWIRE_SHUTDOWN_GRACE_PERIOD=0s")
	return StartPeer(b, settings, Execwire, "serve", "--log-level", "warn", "--listen", "ws://127.0.0.1:0")
}

var processNumber atomic.Int64

// ProcessID returns a process ID that was not used before.
func ProcessID() string { return fmt.Sprintf("p%d", processNumber.Add(1)) }

// StartTrue runs the shortest process from start to closed.
func StartTrue(b testing.TB, c *RawRPC) {
	id := ProcessID()
	events, end := c.Follow(id)
	defer end()
	answer := c.Request("process/start", StartParams(id, `,"tty":false`, TrueCommand))
	exited := false
	for m := range events {
		switch m.Method {
		case "process/exited":
			exited = m.Params.ExitCode != nil && *m.Params.ExitCode == 0
		case "process/closed":
			if started := <-answer; started.Result == nil || !exited {
				b.Errorf("a process was answered %s and had a good exit: %t", started.Error, exited)
			}
			return
		}
	}
}

// ThroughHub is the transport of executors behind a hub.
const ThroughHub = "hub"

// PeerTransports are the transports of gRPC that are measured, and the keys of their
// URLs.
var PeerTransports = []string{"unix", "TCP"}

// Peer is a server in a process of its own: execwire, or the bare server that it is
// compared with.
type Peer struct {
	ProcStat
	// guardian is its parent, or the same process if it has none.
	Guardian ProcStat
	// URLs has the URLs of its listeners, by transport.
	URLs map[string]string
}

// listening reports whether a server has printed all its URLs: both of gRPC, that of
// the websocket, or that of the hub.
func (p *Peer) listening() bool {
	return p.URLs[JSONRPC] != "" || p.URLs[ThroughHub] != "" || len(p.URLs) == len(PeerTransports)
}

// StartPeer runs a server that prints the URLs of its listeners, and waits until
// it has.
func StartPeer(b testing.TB, settings []string, program string, arguments ...string) *Peer {
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
	b.Cleanup(func() { StopPeer(b, cmd) })
	p := &Peer{Guardian: ProcStat{Tb: b, Pid: cmd.Process.Pid}, URLs: map[string]string{}}
	lines := bufio.NewScanner(output)
	for !p.listening() && lines.Scan() {
		switch url := lines.Text(); {
		case strings.HasPrefix(url, "ws:"):
			p.URLs[JSONRPC] = url
		case strings.HasPrefix(url, "http:"):
			p.URLs[ThroughHub] = url
		case strings.HasPrefix(url, "unix:"):
			p.URLs["unix"] = url
		case strings.HasPrefix(url, "tcp:"), strings.HasPrefix(url, "grpc:"):
			p.URLs["TCP"] = url
		}
	}
	if !p.listening() {
		b.Fatalf("%s did not say where it listens", program)
	}
	p.ProcStat = p.Guardian
	if server, guarded := ServerOf(p.Guardian.Pid); guarded {
		p.ProcStat.Pid = server
	}
	return p
}

// StopPeer ends a server the way an operator does.
func StopPeer(b testing.TB, cmd *exec.Cmd) {
	_ = cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(StepTimeout, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	if err := cmd.Wait(); err != nil {
		b.Errorf("%s ended badly: %v", cmd.Path, err)
	}
}

// TrueCommand is a program that exits at once.
const TrueCommand = "/bin/true"
