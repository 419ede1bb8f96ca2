package bench

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/creack/pty"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// The child only keeps the terminal open: the echo is the kernel's.
var terminalChild = []string{"/bin/sleep", "600"}

// measureTerminal times one key from its write to its echo.
func measureTerminal(b *bench) []line {
	server, bare := b.startServer(), b.startBare()
	terminal := b.openTerminal()
	var lines []line
	for _, transport := range harness.PeerTransports {
		trip := b.bareRoundTrip(b.dialBare(bare, transport))
		key, end := b.runTerminal(b.dial(server, transport))
		ownKey, ownEnd := b.ownTerminal(b.dial(server, transport))
		floor, trips, ours, own := harness.Samples[time.Duration]{}, harness.Samples[time.Duration]{}, harness.Samples[time.Duration]{}, harness.Samples[time.Duration]{}
		for range b.sizes.echoes {
			floor = append(floor, harness.Timed(terminal))
			trips = append(trips, harness.Timed(trip))
			ours = append(ours, harness.Timed(key))
			own = append(own, harness.Timed(ownKey))
		}
		end()
		ownEnd()
		b.rawTimes("terminal in Go", floor)
		b.rawTimes("bare round trip, "+transport, trips)
		b.rawTimes("write → echo, "+transport, ours)
		b.rawTimes("write → echo by OwnProcess, "+transport, own)
		lines = append(lines, echoLine("write → echo through a terminal, "+transport+", p50", floor, trips, ours),
			echoLine("the same by `OwnProcess` and `WriteStdin`, "+transport+", p50", floor, trips, own))
	}
	return lines
}

func echoLine(what string, floor, trips, ours harness.Samples[time.Duration]) line {
	const extra = 30 * time.Microsecond
	limit := floor.Median() + trips.Median() + extra
	return line{
		what: what, ours: harness.ShowTime(ours.Median()),
		floor:  fmt.Sprintf("%s terminal + %s round trip", harness.ShowTime(floor.Median()), harness.ShowTime(trips.Median())),
		ratio:  "+ " + harness.ShowTime(ours.Median()-floor.Median()-trips.Median()),
		budget: fmt.Sprintf("floor + %s", harness.ShowTime(extra)), met: ours.Median() <= limit,
	}
}

// openTerminal opens a terminal in this process and returns one key's way.
func (b *bench) openTerminal() func() {
	b.Helper()
	master, end, err := startTerminal()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(end)
	buf := make([]byte, 16)
	return func() {
		if _, err := master.Write([]byte("x")); err != nil {
			b.Fatal(err)
		}
		if n, err := master.Read(buf); err != nil || n != 1 || buf[0] != 'x' {
			b.Fatalf("the terminal echoed %q: %v", buf[:n], err)
		}
	}
}

// startTerminal starts a program at a terminal, which end ends.
func startTerminal() (master *os.File, end func(), err error) {
	cmd := exec.Command(terminalChild[0], terminalChild[1:]...)
	if master, err = pty.Start(cmd); err != nil {
		return nil, nil, err
	}
	return master, func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // returns that it was killed
		_ = master.Close()
	}, nil
}

func terminalRequest() *execwirev1.StartProcessRequest {
	request := benchCommand(terminalChild...)
	request.Io = &execwirev1.ProcessIo{Io: &execwirev1.ProcessIo_Terminal{Terminal: &execwirev1.TerminalIo{}}}
	return request
}

// runTerminal opens a terminal on the server and returns one key's way, and
// what ends it.
func (b *bench) runTerminal(c *client.Client) (key, end func()) {
	b.Helper()
	request := terminalRequest()
	keys, input := io.Pipe()
	echoes := make(chan string, 1)
	terminate := make(chan *execwirev1.Termination, 1)
	started, ended := make(chan struct{}), make(chan client.Exit, 1)
	go func() {
		exit, err := c.Run(b.ctx, client.RunOptions{Process: request, Stdin: keys, Stdout: chanWriter(echoes),
			Terminate: terminate, OnStarted: func(*execwirev1.Process) { close(started) }})
		if err != nil {
			b.Error(err)
		}
		ended <- exit
	}()
	<-started
	key = func() {
		if _, err := input.Write([]byte("x")); err != nil {
			b.Fatal(err)
		}
		if echo := <-echoes; echo != "x" {
			b.Fatalf("the terminal echoed %q", echo)
		}
	}
	return key, func() {
		terminate <- killed
		if exit := <-ended; exit.Signal == 0 {
			b.Errorf("the terminal ended with %+v", exit)
		}
		_ = input.Close()
	}
}

// chanWriter passes what is written on as one value.
type chanWriter chan<- string

func (w chanWriter) Write(p []byte) (int, error) {
	w <- string(p)
	return len(p), nil
}

var _ io.Writer = chanWriter(nil)
