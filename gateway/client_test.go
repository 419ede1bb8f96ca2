package gateway

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// client is a JSON-RPC client of a gateway. It records the messages that it
// reads, and reads all the time unless it is stopped.
type client struct {
	t    testing.TB
	pipe *pipe
	ctx  context.Context
	// served receives the result of Serve.
	served  chan error
	reading sync.WaitGroup // the reading goroutine

	mu      sync.Mutex
	changed sync.Cond
	frames  []frame
	gate    chan struct{} // closed while the reader may read the next message
	quota   int           // notifications that may be read before a response is awaited; below 0: no limit
	awaited int           // responses that are awaited; above 0 the quota does not apply
	isCut   bool
	ids     int
}

// frame is one received message.
type frame struct {
	raw    []byte
	ID     json.RawMessage
	Method string
	Params event
	Result json.RawMessage
	Error  *wireError
}

type wireError struct {
	Code    int
	Message string
	Data    map[string]any
}

type event struct {
	ProcessID string `json:"processId"`
	Seq       uint64
	Stream    string
	Chunk     []byte
	ExitCode  *int
	Gap       *struct{ FirstAvailableSeq, DroppedBytes uint64 }

	SandboxDenied bool
}

func (cl *client) initialize(resume string) string {
	cl.t.Helper()
	params := map[string]any{"clientName": "test"}
	if resume != "" {
		params["resumeSessionId"] = resume
	}
	var result struct{ SessionID string }
	cl.decode(cl.must("initialize", params), &result)
	cl.notify("initialized", nil)
	return result.SessionID
}

func (cl *client) read() {
	for {
		cl.mu.Lock()
		gate := cl.gate
		cl.mu.Unlock()
		<-gate
		cl.awaitQuota()
		raw := cl.pipe.next()
		if raw == nil {
			cl.mu.Lock()
			cl.changed.Broadcast()
			cl.mu.Unlock()
			return
		}
		f, err := parseFrame(raw)
		if err != nil {
			cl.t.Errorf("a frame is malformed: %v: %.300s", err, raw)
		}
		cl.mu.Lock()
		if f.Method != "" && cl.quota > 0 {
			cl.quota--
		}
		cl.frames = append(cl.frames, f)
		cl.changed.Broadcast()
		cl.mu.Unlock()
	}
}

// parseFrame decodes a frame. It leaves a large result to the decode of the test: with the race
// detector, decoding megabytes twice takes a third of the time of all tests.
func parseFrame(raw []byte) (frame, error) {
	f := frame{raw: raw}
	head, result, isResult := bytes.Cut(raw, []byte(`,"result":`))
	if len(raw) < 16<<10 || !isResult || len(head) > 100 || !bytes.HasPrefix(head, []byte(`{"id":`)) {
		return f, json.Unmarshal(raw, &f)
	}
	f.Result = bytes.TrimSuffix(result, []byte("}"))
	return f, json.Unmarshal(append(bytes.Clone(head), '}'), &f)
}

// awaitQuota waits until another message may be read.
func (cl *client) awaitQuota() {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	for cl.quota == 0 && cl.awaited == 0 && !cl.isCut {
		cl.changed.Wait()
	}
}

// cut breaks the connection.
func (cl *client) cut() {
	cl.mu.Lock()
	cl.isCut = true
	cl.changed.Broadcast()
	cl.mu.Unlock()
	cl.pipe.drop()
}

// stopReading stops the client after the next message.
func (cl *client) stopReading() {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.gate = make(chan struct{})
}

func (cl *client) resumeReading() {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	select {
	case <-cl.gate:
	default:
		close(cl.gate)
	}
}

// send sends raw text.
func (cl *client) send(text string) {
	cl.t.Helper()
	select {
	case cl.pipe.in <- []byte(text):
	case <-time.After(patience):
		cl.t.Fatal("the gateway does not receive")
	case <-cl.pipe.lost:
		cl.t.Fatalf("the connection was lost before %.200s", text)
	}
}

func (cl *client) notify(method string, params any) {
	cl.t.Helper()
	m := map[string]any{"method": method}
	if params != nil {
		m["params"] = params
	}
	cl.send(toJSON(m))
}

// ask sends a request and returns its id without waiting for the response.
func (cl *client) ask(method string, params any) string {
	cl.t.Helper()
	cl.mu.Lock()
	cl.ids++
	id := fmt.Sprint(cl.ids)
	cl.mu.Unlock()
	m := map[string]any{"id": json.RawMessage(id), "method": method}
	if params != nil {
		m["params"] = params
	}
	cl.send(toJSON(m))
	return id
}

func toJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// wait waits for the first frame that is wanted and returns it and its index.
func (cl *client) wait(what string, wanted func(frame) bool) (frame, int) {
	cl.t.Helper()
	late := time.AfterFunc(patience, func() {
		cl.mu.Lock()
		defer cl.mu.Unlock()
		cl.changed.Broadcast()
	})
	defer late.Stop()
	begun := time.Now()
	cl.mu.Lock()
	defer cl.mu.Unlock()
	for seen := 0; ; cl.changed.Wait() {
		for ; seen < len(cl.frames); seen++ {
			if wanted(cl.frames[seen]) {
				return cl.frames[seen], seen
			}
		}
		if time.Since(begun) >= patience {
			cl.t.Fatalf("no %s received; got %s", what, summary(cl.frames))
		}
	}
}

func summary(frames []frame) string {
	var lines []string
	for _, f := range frames[max(0, len(frames)-20):] {
		lines = append(lines, fmt.Sprintf("%.300s", f.raw))
	}
	return strings.Join(lines, "\n")
}

// reply waits for the response to a request.
func (cl *client) reply(id string) frame {
	cl.t.Helper()
	cl.await(1)
	defer cl.await(-1)
	f, _ := cl.wait("response to "+id, func(f frame) bool { return string(f.ID) == id && f.Method == "" })
	return f
}

func (cl *client) await(n int) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.awaited += n
	cl.changed.Broadcast()
}

// call sends a request and waits for the response.
func (cl *client) call(method string, params any) frame {
	cl.t.Helper()
	return cl.reply(cl.ask(method, params))
}

// must fails the test unless the call succeeds.
func (cl *client) must(method string, params any) json.RawMessage {
	cl.t.Helper()
	f := cl.call(method, params)
	if f.Error != nil {
		cl.t.Fatalf("%s failed: %+v", method, *f.Error)
	}
	return f.Result
}

func (cl *client) decode(raw json.RawMessage, into any) {
	cl.t.Helper()
	if err := json.Unmarshal(raw, into); err != nil {
		cl.t.Fatalf("%v: %s", err, raw)
	}
}

// refused fails the test unless the call fails with this error.
func (cl *client) refused(method string, params any, code int, text string) *wireError {
	cl.t.Helper()
	f := cl.call(method, params)
	if f.Error == nil || f.Error.Code != code || !strings.Contains(f.Error.Message, text) {
		cl.t.Fatalf("%s %v: got %s, want error %d %q", method, params, f.raw, code, text)
	}
	return f.Error
}

// ended waits until Serve has returned, and returns its error.
func (cl *client) ended() error {
	cl.t.Helper()
	select {
	case err := <-cl.served:
		return err
	case <-time.After(patience):
		cl.t.Fatal("Serve does not return")
		return nil
	}
}

// all returns the frames that were read so far.
func (cl *client) all() []frame {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return slices.Clone(cl.frames)
}

// event waits for a notification of a process.
func (cl *client) event(id, method string) frame {
	cl.t.Helper()
	f, _ := cl.wait(method+" of "+id, func(f frame) bool { return f.Method == method && f.Params.ProcessID == id })
	return f
}

// output waits until a process has closed and returns its output, all streams
// together. The seqs must be contiguous from first.
func (cl *client) output(id string, first uint64) (text string, exitCode int) {
	cl.t.Helper()
	cl.event(id, "process/closed")
	var b strings.Builder
	exitCode = -1
	for _, f := range cl.all() {
		if f.Method == "" || f.Params.ProcessID != id {
			continue
		}
		if f.Params.Seq != first {
			cl.t.Fatalf("got seq %d of %s, want %d: %s", f.Params.Seq, id, first, summary(cl.all()))
		}
		first++
		b.Write(f.Params.Chunk)
		if f.Params.ExitCode != nil {
			exitCode = *f.Params.ExitCode
		}
	}
	return b.String(), exitCode
}

// startOf returns the parameters that start a shell command.
func startOf(id, script string, members ...any) map[string]any {
	return with(map[string]any{"processId": id, "argv": []string{"/bin/sh", "-c", script}, "cwd": "/",
		"env": map[string]string{"PATH": "/usr/bin:/bin"}, "tty": false}, members...)
}

// with sets members of parameters.
func with(params map[string]any, members ...any) map[string]any {
	for i := 0; i < len(members); i += 2 {
		params[members[i].(string)] = members[i+1]
	}
	return params
}

func (cl *client) start(id, script string, members ...any) {
	cl.t.Helper()
	cl.must("process/start", with(startOf(id, script), members...))
}

func writeOf(id, text string) map[string]any {
	return map[string]any{"processId": id, "chunk": base64.StdEncoding.EncodeToString([]byte(text))}
}

type readAnswer struct {
	Chunks []struct {
		Seq    uint64
		Stream string
		Chunk  []byte
	}
	NextSeq  uint64
	Exited   bool
	ExitCode *int
	Closed   bool
	Gap      *struct{ FirstAvailableSeq, DroppedBytes uint64 }
}

func (a readAnswer) text() string {
	var b strings.Builder
	for _, c := range a.Chunks {
		b.Write(c.Chunk)
	}
	return b.String()
}

func (cl *client) readOutput(id string, members ...any) readAnswer {
	cl.t.Helper()
	var a readAnswer
	cl.decode(cl.must("process/read", with(map[string]any{"processId": id}, members...)), &a)
	return a
}
