package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/testproc"
)

// Connections are cut at any point, during the handshake and inside frames, under load in both
// directions. A client that resumes like those of the reference receives everything exactly
// once, and its writes are applied once.
func TestResume_Cuts_LosesNothing(t *testing.T) {
	cuts := 600
	if testing.Short() {
		cuts = 40
	}
	seed := rand.Uint64()
	t.Logf("the seed is %d", seed)
	server := harness.NewServer(t, func(cfg *config.Config) { cfg.RetainedOutput = 64 << 10 })
	const clients = 4
	var working sync.WaitGroup
	for i := range clients {
		working.Go(func() {
			r := &rpcResumer{TB: t, server: server, wire: harness.NewProxy(t, "tcp", server.Address(harness.WebsocketTransport)),
				random: rand.New(rand.NewPCG(seed, uint64(i)))}
			r.work(cuts / clients)
		})
	}
	working.Wait()
}

// rpcResumer is a client that resumes its session whenever its connection breaks.
type rpcResumer struct {
	testing.TB
	server *harness.Server
	wire   *harness.Proxy
	random *rand.Rand

	session   string
	followers map[string]*rpcFollower
	started   map[string]bool

	written, acknowledged int // writes to the process echo, and those with an answer

	link         *harness.WebsocketConn
	lastID       int
	got          map[int]harness.RPCContent // answers on this connection
	lastNotified map[string]uint64          // the last number notified on this connection
}

// echoWrite is the size of a write to the process echo.
const echoWrite = 700

var errCut = errors.New("the connection was cut")

func (r *rpcResumer) work(cuts int) {
	r.followers, r.started = map[string]*rpcFollower{}, map[string]bool{}
	for _, id := range []string{"big", "small", "echo"} {
		r.followers[id] = followFlood(id)
	}
	r.wire.CutAfter(func() int64 {
		if r.random.IntN(4) == 0 {
			return r.random.Int64N(2000) // in the handshake or soon after it
		}
		return r.random.Int64N(300_000)
	})
	for r.wire.CutCount() < cuts {
		if err := r.connect(r.stir); !errors.Is(err, errCut) {
			r.Errorf("after %d cuts: %v", r.wire.CutCount(), err)
			return
		}
	}
	r.wire.CutAfter(func() int64 { return -1 })
	if err := r.connect(r.finish); err != nil {
		r.Errorf("after the cuts: %v", err)
	}
}

// connect resumes the session and runs a function until the connection breaks.
func (r *rpcResumer) connect(do func() error) error {
	link, err := harness.Upgrade(r.wire.Listener.Addr().String(), nil)
	if err != nil {
		return errCut
	}
	defer link.Drop()
	r.link, r.got, r.lastNotified = link, map[int]harness.RPCContent{}, map[string]uint64{}
	params := harness.RPCParams{"clientName": "resumer"}
	if r.session != "" {
		params["resumeSessionId"] = r.session
	}
	answer, err := r.call("initialize", params)
	switch {
	case err != nil:
		return err
	case answer.Error != nil && answer.Error.Code == -32010:
		return errCut // the server still waits for an answer of the connection before
	case answer.Error != nil:
		return fmt.Errorf("initialize was refused with %+v", answer.Error)
	}
	var hello struct{ SessionID string }
	if err := json.Unmarshal(answer.Result, &hello); err != nil {
		return err
	}
	r.session = hello.SessionID
	if err := r.send(`{"method":"initialized"}`); err != nil {
		return err
	}
	if err := r.startAll(); err != nil {
		return err
	}
	for _, f := range r.followers {
		after := f.last
		answer, err := r.call("process/read", harness.RPCParams{"processId": f.id, "afterSeq": after})
		if err != nil {
			return err
		}
		var read harness.RPCRead
		if answer.Error != nil {
			return fmt.Errorf("process/read of %s was refused with %+v", f.id, answer.Error)
		}
		if err := json.Unmarshal(answer.Result, &read); err != nil {
			return err
		}
		if err := f.takeRead(after, read); err != nil {
			return err
		}
	}
	return do()
}

// startAll starts what is not started yet. If the response to a start was lost, the second
// start is rejected.
func (r *rpcResumer) startAll() error {
	for id, argv := range map[string][]string{
		"big":   harness.Program("flood", "-bytes", fmt.Sprint(uint64(1)<<50), "-stderr", fmt.Sprint(uint64(1)<<50)),
		"small": harness.Program("flood", "-bytes", fmt.Sprint(uint64(1)<<50), "-chunk", "100"),
		"echo":  harness.Program("echo"),
	} {
		if r.started[id] {
			continue
		}
		answer, err := r.call("process/start", harness.StartOf(id, argv, harness.RPCParams{"pipeStdin": id == "echo"}))
		if err != nil {
			return err
		}
		if answer.Error != nil && answer.Error.Code != -32600 {
			return fmt.Errorf("starting %s was refused with %+v", id, answer.Error)
		}
		r.started[id] = true
	}
	return nil
}

// stir writes and receives until the connection breaks.
func (r *rpcResumer) stir() error {
	for {
		if err := r.writeOn(); err != nil {
			return err
		}
	}
}

// writeOn writes the next piece of the pattern to the process echo, or the same one with the
// same id if its response was lost.
func (r *rpcResumer) writeOn() error {
	piece := make([]byte, echoWrite)
	testproc.StdoutPattern.Fill(piece, uint64(r.acknowledged*echoWrite))
	params := harness.WriteOf("echo", string(piece))
	params["writeId"] = fmt.Sprint("w", r.acknowledged)
	r.written = r.acknowledged + 1
	answer, err := r.call("process/write", params)
	if err != nil {
		return err
	}
	if answer.Error != nil || string(answer.Result) != `{"status":"accepted"}` {
		return fmt.Errorf("write %d was answered %s, %+v", r.acknowledged, answer.Result, answer.Error)
	}
	r.acknowledged++
	return nil
}

// finish ends the processes and checks all their output. A few cuts may come before any write.
func (r *rpcResumer) finish() error {
	for r.acknowledged < max(r.written, 1) {
		if err := r.writeOn(); err != nil {
			return err
		}
	}
	for r.followers["echo"].streams["stdout"].Offset() < uint64(r.written*echoWrite) {
		if err := r.step(); err != nil {
			return err
		}
	}
	for id := range r.followers {
		if _, err := r.call("process/terminate", harness.RPCParams{"processId": id}); err != nil {
			return err
		}
	}
	for id, f := range r.followers {
		for !f.closed {
			if err := r.step(); err != nil {
				return fmt.Errorf("waiting for the end of %s, which has number %d: %w", id, f.last, err)
			}
		}
		if *f.exit != 128+9 {
			return fmt.Errorf("%s exited with %d", id, *f.exit)
		}
	}
	return r.compareTotals()
}

// compareTotals compares the received totals with those of the core.
func (r *rpcResumer) compareTotals() error {
	processes := execwirev1.NewProcessServiceClient(r.server.Core(r))
	for id, f := range r.followers {
		response, err := processes.GetProcess(harness.Context(r), &execwirev1.GetProcessRequest{SessionId: r.session, ProcessId: id})
		if err != nil {
			return err
		}
		if seq := response.GetProcess().GetLastSeq(); seq != f.last {
			return fmt.Errorf("%s has number %d, and the client received %d", id, seq, f.last)
		}
	}
	if got := r.followers["echo"].streams["stdout"].Offset(); got != uint64(r.written*echoWrite) {
		return fmt.Errorf("%d bytes were written to echo, and it wrote %d", r.written*echoWrite, got)
	}
	return nil
}

// call sends a request and receives everything up to its response.
func (r *rpcResumer) call(method string, params any) (harness.RPCContent, error) {
	r.lastID++
	id := r.lastID
	if err := r.send(harness.RequestText(id, method, params)); err != nil {
		return harness.RPCContent{}, err
	}
	for {
		if answer, there := r.got[id]; there {
			delete(r.got, id)
			return answer, nil
		}
		if err := r.step(); err != nil {
			return harness.RPCContent{}, err
		}
	}
}

func (r *rpcResumer) send(text string) error {
	if r.link.Send([]byte(text)) != nil {
		return errCut
	}
	return nil
}

// step receives one frame.
func (r *rpcResumer) step() error {
	frame, err := r.link.Receive()
	if err != nil {
		return errCut
	}
	if frame.Kind != "text" {
		return nil
	}
	if err := frame.Parse(); err != nil {
		return err
	}
	if e := frame.Event; e != nil {
		if before := r.lastNotified[e.ProcessID]; before > 0 && e.Seq != before+1 {
			return fmt.Errorf("number %d of %s came after %d", e.Seq, e.ProcessID, before)
		}
		r.lastNotified[e.ProcessID] = e.Seq
		return r.followers[e.ProcessID].take(*e)
	}
	var id int
	if err := json.Unmarshal(frame.ID, &id); err != nil {
		return fmt.Errorf("answer without a number: %s", frame.Data)
	}
	r.got[id] = frame.RPCContent
	return nil
}

// Notifications that a client has not read for ten seconds count as received. Time in which
// the server itself was suspended does not count.
func TestResume_StoppedServer_LosesNothing(t *testing.T) {
	harness.Waits(t)
	s := harness.Serve(t, "EXECWIRE_RETAINED_OUTPUT_BYTES_PER_PROCESS=64KiB")
	r := &rpcResumer{TB: t, wire: harness.NewProxy(t, "tcp", s.Address(harness.WebsocketTransport)), started: map[string]bool{},
		followers: map[string]*rpcFollower{"big": followFlood("big"), "small": followFlood("small"), "echo": followFlood("echo")}}
	err := r.connect(func() (err error) {
		for err == nil && (r.followers["big"].last < 3 || r.followers["small"].last < 3) {
			err = r.writeOn()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	r.resumeWithoutReading()
	server := s.ServerPID(t)
	if err := unix.Kill(server, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(12 * time.Second)
	if err := unix.Kill(server, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for begun := time.Now(); time.Since(begun) < time.Second; { // in which it would go on without what was not read
		if _, err := r.call("environment/status", harness.RPCParams{}); err != nil {
			t.Fatal(err)
		}
	}
	r.link.Drop()
	harness.Eventually(t, "all is read", func() bool {
		err := r.connect(r.writeOn)
		if err != nil && !errors.Is(err, errCut) {
			t.Fatal(err)
		}
		return err == nil
	})
}

// resumeWithoutReading resumes the session, and confirms that to the server.
func (r *rpcResumer) resumeWithoutReading() {
	r.Helper()
	harness.Eventually(r, "the session is given away", func() bool {
		link, err := harness.Upgrade(r.wire.Listener.Addr().String(), nil)
		if err != nil {
			r.Fatal(err)
		}
		r.link, r.got, r.lastNotified = link, map[int]harness.RPCContent{}, map[string]uint64{}
		answer, err := r.call("initialize", harness.RPCParams{"clientName": "resumer", "resumeSessionId": r.session})
		if err == nil && answer.Error == nil {
			return true
		}
		link.Drop()
		return false
	})
	if err := r.send(`{"method":"initialized"}`); err != nil {
		r.Fatal(err)
	}
	if _, err := r.call("environment/status", harness.RPCParams{}); err != nil { // the connection works
		r.Fatal(err)
	}
}
