package harness

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/notify"
)

// CountReplies returns how many responses have the id, which is JSON.
func CountReplies(frames []RPCFrame, id string) int {
	n := 0
	for _, frame := range frames {
		if frame.Kind == "text" && frame.Method == "" && (string(frame.ID) == id || MustJSON(DecodeAny(frame.ID)) == id) {
			n++
		}
	}
	return n
}

// Forget drops the record, which would grow without bound.
func (r *RPCReceiver) Forget() {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.Frames = nil
}

// rpcConn carries the messages of one JSON-RPC connection. Only its reader may
// block in Receive.
type rpcConn interface {
	Send(message []byte) error
	// Receive returns the next frame; an error is the end.
	Receive() (RPCFrame, error)
	// Drop ends the connection without a close frame.
	Drop()
}

// RPCClient is a JSON-RPC client like those of the reference, with a record of every
// frame received. Its methods are for the goroutine of the test.
type RPCClient struct {
	testing.TB
	RPCReceiver
	Session string
	LastID  int
}

// RPCReceiver reads a JSON-RPC connection and records every frame.
type RPCReceiver struct {
	Conn rpcConn

	// onFrame, if not nil, gets every frame instead of the record. It runs on the
	// reader and may keep the message, not the frame's data.
	onFrame func(RPCFrame)

	reading sync.WaitGroup
	Mu      sync.Mutex
	Frames  []RPCFrame    // guarded by Mu
	Ended   error         // guarded by Mu; the error that ended the connection
	Changed chan struct{} // guarded by Mu; closed when one of the above changes
	gate    chan struct{} // guarded by Mu; closed while the client reads
}

// NewRPCClient starts to read the connection.
func NewRPCClient(t testing.TB, link rpcConn, taken func(RPCFrame)) *RPCClient {
	reads := make(chan struct{})
	close(reads)
	c := &RPCClient{TB: t, RPCReceiver: RPCReceiver{Conn: link, onFrame: taken, Changed: make(chan struct{}), gate: reads}}
	c.reading.Go(c.read)
	t.Cleanup(c.Drop)
	return c
}

func (r *RPCReceiver) read() {
	for {
		r.Mu.Lock()
		gate := r.gate
		r.Mu.Unlock()
		<-gate
		frame, err := r.Conn.Receive()
		if err == nil && frame.Kind == "text" {
			err = frame.Parse()
		}
		if err == nil && r.onFrame != nil {
			r.onFrame(frame)
			continue
		}
		r.Mu.Lock()
		if err != nil {
			r.Ended = err
		} else {
			r.Frames = append(r.Frames, frame)
		}
		close(r.Changed)
		r.Changed = make(chan struct{})
		r.Mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Stall stops the reader before the next frame, until Proceed.
func (r *RPCReceiver) Stall() {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.gate = make(chan struct{})
}

// Proceed resumes a stalled reader.
func (r *RPCReceiver) Proceed() {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if !notify.IsClosed(r.gate) {
		close(r.gate)
	}
}

// Drop breaks the connection and waits for the reader.
func (r *RPCReceiver) Drop() {
	r.Conn.Drop()
	r.Proceed()
	r.reading.Wait()
}

// Until waits until holds is true for the frames so far. It fails the test if the
// connection ends before.
func (c *RPCClient) Until(what string, holds func(frames []RPCFrame) bool) {
	c.Helper()
	if !c.settle(what, holds) {
		c.Fatalf("the connection ended with %v before %s; the server sent:\n%s", c.End(), what, c.LastFrames())
	}
}

// settle waits until holds is true, and returns false if the connection ends before.
func (c *RPCClient) settle(what string, holds func(frames []RPCFrame) bool) bool {
	c.Helper()
	deadline := time.NewTimer(StepTimeout)
	defer deadline.Stop()
	for {
		c.Mu.Lock()
		held, ended, changed := holds(c.Frames), c.Ended, c.Changed
		c.Mu.Unlock()
		if held || ended != nil {
			return held
		}
		select {
		case <-changed:
		case <-deadline.C:
			c.Fatalf("timeout waiting until %s; the server sent:\n%s", what, c.LastFrames())
		}
	}
}

// End returns the error that ended the connection; nil if it is open.
func (r *RPCReceiver) End() error {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	return r.Ended
}

// AwaitEnd waits until the connection has ended.
func (c *RPCClient) AwaitEnd() {
	c.Helper()
	if c.settle("the connection ends", func([]RPCFrame) bool { return false }) {
		c.Fatal("unreachable")
	}
}

// Record returns all frames so far.
func (r *RPCReceiver) Record() []RPCFrame {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	return append([]RPCFrame(nil), r.Frames...)
}

// LastFrames formats the end of the record, for error messages.
func (r *RPCReceiver) LastFrames() string {
	frames := r.Record()
	var b strings.Builder
	for _, frame := range frames[max(0, len(frames)-20):] {
		fmt.Fprintf(&b, "\t%s %.300s\n", frame.Kind, frame.Data)
	}
	return b.String()
}

// Send sends text as one message.
func (c *RPCClient) Send(text string) {
	c.Helper()
	if err := c.Conn.Send([]byte(text)); err != nil {
		c.Fatalf("failed to send %.200s: %v", text, err)
	}
}

// Post sends a request and returns its id. A nil params is absent.
func (c *RPCClient) Post(method string, params any) int {
	c.Helper()
	c.LastID++
	c.Send(RequestText(c.LastID, method, params))
	return c.LastID
}

// Reply waits for the response to the request.
func (c *RPCClient) Reply(id int) RPCContent {
	c.Helper()
	var found RPCContent
	c.Until(fmt.Sprintf("request %d is answered", id), func(frames []RPCFrame) bool {
		i := ReplyTo(frames, id)
		if i >= 0 {
			found = frames[i].RPCContent
		}
		return i >= 0
	})
	return found
}

// Call sends a request and waits for its response.
func (c *RPCClient) Call(method string, params any) RPCContent {
	c.Helper()
	return c.Reply(c.Post(method, params))
}

// Result calls a method, expects success, and decodes the result; into may be nil.
func (c *RPCClient) Result(method string, params, into any) {
	c.Helper()
	c.Decode(method, c.Call(method, params), into)
}

// Decode decodes a result, and fails the test if the call was refused.
func (c *RPCClient) Decode(method string, answer RPCContent, into any) {
	c.Helper()
	if answer.Error != nil {
		c.Fatalf("%s was refused with %+v", method, answer.Error)
	}
	if into == nil {
		return
	}
	if err := json.Unmarshal(answer.Result, into); err != nil {
		c.Fatalf("failed to parse the result of %s, %s: %v", method, answer.Result, err)
	}
}

// Refused calls a method and expects an error with the code.
func (c *RPCClient) Refused(method string, params any, code int) *RPCError {
	c.Helper()
	answer := c.Call(method, params)
	if answer.Error == nil || answer.Error.Code != code {
		c.Fatalf("%s was answered %s, %+v; want the error %d", method, answer.Result, answer.Error, code)
	}
	return answer.Error
}

// Notify sends a notification.
func (c *RPCClient) Notify(method string, params any) {
	c.Helper()
	message := map[string]any{"method": method}
	if params != nil {
		message["params"] = params
	}
	c.Send(MustJSON(message))
}

// Initialize initializes the connection; resume is a session to resume, or empty.
func (c *RPCClient) Initialize(resume string) *RPCClient {
	c.Helper()
	params := RPCParams{"clientName": "integration"}
	if resume != "" {
		params["resumeSessionId"] = resume
	}
	c.DecodeSession(c.Call("initialize", params))
	c.Notify("initialized", RPCParams{})
	return c
}

// DecodeSession sets the session from the response to initialize.
func (c *RPCClient) DecodeSession(answer RPCContent) {
	c.Helper()
	var hello struct{ SessionID string }
	c.Decode("initialize", answer, &hello)
	c.Session = hello.SessionID
}

// Start starts a process.
func (c *RPCClient) Start(id string, argv []string, more RPCParams) {
	c.Helper()
	c.Result("process/start", StartOf(id, argv, more), nil)
}

// Write writes to the stdin of a process and expects this status.
func (c *RPCClient) Write(id, data, want string) {
	c.Helper()
	var result struct{ Status string }
	c.Result("process/write", WriteOf(id, data), &result)
	if result.Status != want {
		c.Fatalf("writing to %s has the status %q, want %q", id, result.Status, want)
	}
}

// ReadProcess calls process/read.
func (c *RPCClient) ReadProcess(id string, more RPCParams) RPCRead {
	c.Helper()
	params := RPCParams{"processId": id}
	maps.Copy(params, more)
	var result RPCRead
	c.Result("process/read", params, &result)
	return result
}

// Terminate terminates a process and reports whether it was running.
func (c *RPCClient) Terminate(id string) bool {
	c.Helper()
	var result struct{ Running bool }
	c.Result("process/terminate", RPCParams{"processId": id}, &result)
	return result.Running
}

// AwaitOutput waits until the output of a process on a stream is this.
func (c *RPCClient) AwaitOutput(id, stream, want string) {
	c.Helper()
	c.Until(fmt.Sprintf("%s says %q", id, want), func(frames []RPCFrame) bool {
		return len(OutputOf(frames, id, stream)) >= len(want)
	})
	if got := OutputOf(c.Record(), id, stream); got != want {
		c.Fatalf("%s wrote %q on %s, want %q", id, got, stream, want)
	}
}

// AwaitEvent waits for the notification about the process.
func (c *RPCClient) AwaitEvent(method, id string) RPCEvent {
	c.Helper()
	var found RPCEvent
	c.Until(method+" of "+id, func(frames []RPCFrame) bool {
		for _, e := range EventsOf(frames, id) {
			if e.Method == method {
				found = e
				return true
			}
		}
		return false
	})
	return found
}

// ExpectEnd waits for the end of a process and expects this exit code, and sequence
// numbers without a gap.
func (c *RPCClient) ExpectEnd(id string, code int) {
	c.Helper()
	closed := c.AwaitEvent("process/closed", id)
	if exited := c.AwaitEvent("process/exited", id); exited.ExitCode != code {
		c.Errorf("%s exited with %d, want %d", id, exited.ExitCode, code)
	}
	events := EventsOf(c.Record(), id)
	for i, e := range events {
		if e.Seq != uint64(i+1) {
			c.Errorf("event %d of %s has the sequence number %d", i+1, id, e.Seq)
		}
	}
	if closed.Seq != uint64(len(events)) {
		c.Errorf("%s closed with %d, after %d events", id, closed.Seq, len(events))
	}
}

// AwaitDeath waits until a process is gone.
func (c *RPCClient) AwaitDeath(pid int32) {
	c.Helper()
	Eventually(c, fmt.Sprintf("process %d is gone", pid), func() bool { return !ProcessAlive(pid) })
}

// ResumeOf returns the parameters that resume a session.
func ResumeOf(session string) RPCParams {
	return RPCParams{"clientName": "integration", "resumeSessionId": session}
}
