package bench

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/creack/pty"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// The child only keeps the terminal open: the echo is the kernel's.
var terminalChild = []string{"/bin/sleep", "600"}

// echoRatio is the budget of a key beside the shortest server with a terminal.
const echoRatio = 1.4

// measureTerminal times one key from its write to its echo.
func measureTerminal(b *bench) []line {
	server, socketServer, floor := b.startServer(), harness.StartSocketServer(b), b.startFloor()
	key, end := b.runTerminal(b.dial(server, "TCP"))
	times := b.alternate(b.sizes.echoes, 0.5,
		timed("terminal, floor, gRPC", b.exchangeFloor(b.channel(floor, tuned()...), "Terminal")),
		timed("write → echo, RunProcess", key),
		timed("terminal, floor, websocket", b.floorKey(floor)),
		timed("write → echo, JSON-RPC", b.keyJSON(socketServer)))
	end()
	return []line{
		atMost("write → echo through a terminal, `RunProcess`, p50", times[0], times[1], echoRatio, showSeconds),
		atMost("write → echo through a terminal, JSON-RPC, p50", times[2], times[3], echoRatio, showSeconds),
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

// runTerminal opens a terminal on the server and returns one key's way, and
// what ends it.
func (b *bench) runTerminal(c *client.Client) (key, end func()) {
	b.Helper()
	request := benchCommand(terminalChild...)
	request.Io = &execwirev1.ProcessIo{Io: &execwirev1.ProcessIo_Terminal{Terminal: &execwirev1.TerminalIo{}}}
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

// floorKey opens a terminal on the floor and returns one key's way.
func (b *bench) floorKey(floor *harness.Peer) func() {
	socket := b.floorSocket(floor, "terminal")
	return func() {
		socket.Send(harness.OpText, []byte("x"))
		b.expectEcho(socket)
	}
}

// keyJSON opens a terminal through JSON-RPC and returns one key's way.
func (b *bench) keyJSON(server *harness.Peer) func() {
	c := harness.DialRPCUnread(b, server.URLs[harness.JSONRPC])
	c.Send(harness.OpText, fmt.Appendf(nil, `{"id":1,"method":"process/start","params":%s}`, harness.StartParams("p", `,"tty":true`, terminalChild...)))
	if m, err := c.Next(); err != nil || !bytes.Contains(m, []byte(`"result"`)) {
		b.Fatalf("the start was answered %s: %v", m, err)
	}
	writes := 0
	return func() {
		writes++
		c.Send(harness.OpText, fmt.Appendf(nil, `{"id":1,"method":"process/write","params":{"processId":"p","chunk":"eA==","writeId":"%d"}}`, writes))
		b.expectEcho(c.RawSocket)
	}
}

// expectEcho receives the answer to a key, and its echo.
func (b *bench) expectEcho(s *harness.RawSocket) {
	for _, part := range []string{`"accepted"`, `"chunk":"eA=="`} {
		if m, err := s.Next(); err != nil || !bytes.Contains(m, []byte(part)) {
			b.Fatalf("got %s in place of %s: %v", m, part, err)
		}
	}
}

var _ io.Writer = chanWriter(nil)
