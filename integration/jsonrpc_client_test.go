package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// rpcLink carries the messages of one JSON-RPC connection. Only its reader may
// block in receive.
type rpcLink interface {
	send(message []byte) error
	// receive returns the next frame as it came; an error is the end.
	receive() (rpcFrame, error)
	// drop ends the connection without a word.
	drop()
}

// rpcClient is a client as they are written for the reference, with a record of
// every frame that came. Its methods are for the goroutine of the test.
type rpcClient struct {
	testing.TB
	link    rpcLink
	session string
	lastID  int

	// taken, if not nil, gets every frame instead of the record. It runs on the
	// reader and may keep the message, not the frame's data.
	taken func(rpcFrame)

	reading sync.WaitGroup
	mu      sync.Mutex
	frames  []rpcFrame    // guarded by mu
	ended   error         // guarded by mu; why nothing more comes
	changed chan struct{} // guarded by mu; closed when one of the above changes
	gate    chan struct{} // guarded by mu; closed while the client reads
}

// newRPCClient begins to read the link.
func newRPCClient(t testing.TB, link rpcLink, taken func(rpcFrame)) *rpcClient {
	reads := make(chan struct{})
	close(reads)
	c := &rpcClient{TB: t, link: link, taken: taken, changed: make(chan struct{}), gate: reads}
	c.reading.Go(c.read)
	t.Cleanup(c.drop)
	return c
}

func (c *rpcClient) read() {
	for {
		c.mu.Lock()
		gate := c.gate
		c.mu.Unlock()
		<-gate
		frame, err := c.link.receive()
		if err == nil && frame.kind == "text" {
			err = frame.parse()
		}
		if err == nil && c.taken != nil {
			c.taken(frame)
			continue
		}
		c.mu.Lock()
		if err != nil {
			c.ended = err
		} else {
			c.frames = append(c.frames, frame)
		}
		close(c.changed)
		c.changed = make(chan struct{})
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// stall stops the reader before the next frame; go on with proceed.
func (c *rpcClient) stall() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gate = make(chan struct{})
}

// proceed lets a stalled reader go on.
func (c *rpcClient) proceed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.gate:
	default:
		close(c.gate)
	}
}

// drop breaks the connection and waits for the reader.
func (c *rpcClient) drop() {
	c.link.drop()
	c.proceed()
	c.reading.Wait()
}

// until waits until holds does of the frames so far. It fails the test when the
// connection ended before.
func (c *rpcClient) until(what string, holds func(frames []rpcFrame) bool) {
	c.Helper()
	if !c.settle(what, holds) {
		c.Fatalf("the connection ended with %v before %s; it said:\n%s", c.end(), what, c.said())
	}
}

// settle waits until holds does, and tells if it did before the connection
// ended.
func (c *rpcClient) settle(what string, holds func(frames []rpcFrame) bool) bool {
	c.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		c.mu.Lock()
		held, ended, changed := holds(c.frames), c.ended, c.changed
		c.mu.Unlock()
		if held || ended != nil {
			return held
		}
		select {
		case <-changed:
		case <-deadline.C:
			c.Fatalf("waited in vain until %s; the server said:\n%s", what, c.said())
		}
	}
}

// end is why nothing more comes; nil while something may.
func (c *rpcClient) end() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// awaitEnd waits until the connection has ended.
func (c *rpcClient) awaitEnd() {
	c.Helper()
	if c.settle("the connection ends", func([]rpcFrame) bool { return false }) {
		c.Fatal("unreachable")
	}
}

// record is all that came so far.
func (c *rpcClient) record() []rpcFrame {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]rpcFrame(nil), c.frames...)
}

// said shows the end of the record, for messages.
func (c *rpcClient) said() string {
	frames := c.record()
	var b strings.Builder
	for _, frame := range frames[max(0, len(frames)-20):] {
		fmt.Fprintf(&b, "\t%s %.300s\n", frame.kind, frame.data)
	}
	return b.String()
}

// send sends text as one message.
func (c *rpcClient) send(text string) {
	c.Helper()
	if err := c.link.send([]byte(text)); err != nil {
		c.Fatalf("failed to send %.200s: %v", text, err)
	}
}

// post sends a request and returns its id. A nil params is absent.
func (c *rpcClient) post(method string, params any) int {
	c.Helper()
	c.lastID++
	c.send(requestText(c.lastID, method, params))
	return c.lastID
}

// reply waits for the answer to the request.
func (c *rpcClient) reply(id int) rpcContent {
	c.Helper()
	var found rpcContent
	c.until(fmt.Sprintf("request %d is answered", id), func(frames []rpcFrame) bool {
		i := replyTo(frames, id)
		if i >= 0 {
			found = frames[i].rpcContent
		}
		return i >= 0
	})
	return found
}

// call sends a request and waits for its answer.
func (c *rpcClient) call(method string, params any) rpcContent {
	c.Helper()
	return c.reply(c.post(method, params))
}

// result wants a call to succeed and decodes its result; into may be nil.
func (c *rpcClient) result(method string, params, into any) {
	c.Helper()
	c.decode(method, c.call(method, params), into)
}

func (c *rpcClient) decode(method string, answer rpcContent, into any) {
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

// refused wants a call to be refused with the code.
func (c *rpcClient) refused(method string, params any, code int) *rpcError {
	c.Helper()
	answer := c.call(method, params)
	if answer.Error == nil || answer.Error.Code != code {
		c.Fatalf("%s was answered %s, %+v; want the error %d", method, answer.Result, answer.Error, code)
	}
	return answer.Error
}

// notify sends a notification.
func (c *rpcClient) notify(method string, params any) {
	c.Helper()
	message := map[string]any{"method": method}
	if params != nil {
		message["params"] = params
	}
	c.send(mustJSON(message))
}

// initialize shakes hands; resume is a session to take up again, or empty.
func (c *rpcClient) initialize(resume string) *rpcClient {
	c.Helper()
	params := rpcParams{"clientName": "integration"}
	if resume != "" {
		params["resumeSessionId"] = resume
	}
	c.decodeSession(c.call("initialize", params))
	c.notify("initialized", rpcParams{})
	return c
}

// decodeSession takes the session from the answer to initialize.
func (c *rpcClient) decodeSession(answer rpcContent) {
	c.Helper()
	var hello struct{ SessionID string }
	c.decode("initialize", answer, &hello)
	c.session = hello.SessionID
}
