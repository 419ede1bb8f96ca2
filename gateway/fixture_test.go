package gateway

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/inproc"
	coreprocess "github.com/execwire/execwire/internal/process"
	coresession "github.com/execwire/execwire/internal/session"
	"github.com/execwire/execwire/server"
)

// patience is how long a test waits for what must happen.
const patience = 60 * time.Second

// core is a server in this process.
type core struct {
	t       *testing.T
	channel grpc.ClientConnInterface
}

// coreSettings are what tests change of a core.
type coreSettings struct {
	limits   server.Limits
	sessions coresession.Config
}

func newCore(t *testing.T, change ...func(*coreSettings)) *core {
	t.Helper()
	set := coreSettings{
		limits: server.Limits{
			RetainedOutput: 1 << 20, RetainedEvents: 50_000, Snapshot: 64 << 10, Readers: 64,
			StdinWrite: 1 << 20, StdinQueue: 1 << 20, Message: 4 << 20, MaxWait: time.Minute,
		},
		sessions: coresession.Config{DefaultGrace: 30 * time.Second, MaxGrace: time.Hour, ClosedRetention: 30 * time.Second},
	}
	for _, f := range change {
		f(&set)
	}
	supervisor := coreprocess.NewSupervisor(coreprocess.Config{StdinQueueBytes: set.limits.StdinQueue, MaxWriteBytes: set.limits.StdinWrite})
	sessions := coresession.NewRegistry(supervisor, set.sessions)
	srv := server.New(server.Config{
		Sessions:     sessions,
		Limits:       set.limits,
		Authenticate: func(context.Context) (auth.Caller, error) { return auth.Unrestricted(auth.InProcess), nil },
		Version:      "test",
		KillMethod:   supervisor.KillMethod(),
		Environ:      []string{"PATH=/usr/bin:/bin", "HOME=/home/test", "API_TOKEN=hidden"},
	})
	channel := inproc.New(inproc.WithUnaryInterceptors(srv.UnaryInterceptors()...), inproc.WithStreamInterceptors(srv.StreamInterceptors()...))
	srv.Register(channel)
	t.Cleanup(func() {
		if err := sessions.Close(context.Background()); err != nil {
			t.Errorf("closing the sessions: %v", err)
		}
		channel.Close()
		srv.Close()
	})
	return &core{t: t, channel: channel}
}

// client is a JSON-RPC client of a gateway. It reads all the time unless it is
// told not to, and records what it reads.
type client struct {
	t    *testing.T
	pipe *pipe
	ctx  context.Context
	// served gets what Serve returned.
	served chan error

	mu      sync.Mutex
	changed sync.Cond
	frames  []frame
	gate    chan struct{} // what the reader waits for before each message
	ids     int
}

// frame is one message as it came.
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
}

// connect serves a client that has said nothing yet.
func (c *core) connect(change ...func(*pipe, *Config)) *client {
	c.t.Helper()
	p, config := newPipe(), Config{}
	for _, f := range change {
		f(p, &config)
	}
	gateway, err := New(config)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(c.t.Context())
	cl := &client{t: c.t, pipe: p, ctx: ctx, served: make(chan error, 1), gate: make(chan struct{})}
	cl.changed.L = &cl.mu
	close(cl.gate)
	var running sync.WaitGroup
	running.Go(func() { cl.served <- gateway.Serve(ctx, c.channel, p) })
	running.Go(cl.read)
	c.t.Cleanup(func() {
		cl.resumeReading()
		p.drop()
		cancel(nil)
		running.Wait()
	})
	return cl
}

// attach serves a client that has initialized, with a session to resume unless
// that is empty. It returns the session.
func (c *core) attach(resume string, change ...func(*pipe, *Config)) (*client, string) {
	c.t.Helper()
	cl := c.connect(change...)
	return cl, cl.initialize(resume)
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
		raw := cl.pipe.next()
		if raw == nil {
			cl.mu.Lock()
			cl.changed.Broadcast()
			cl.mu.Unlock()
			return
		}
		f := frame{raw: raw}
		if err := json.Unmarshal(raw, &f); err != nil {
			cl.t.Errorf("a frame is not what was expected: %v: %.300s", err, raw)
		}
		cl.mu.Lock()
		cl.frames = append(cl.frames, f)
		cl.changed.Broadcast()
		cl.mu.Unlock()
	}
}

// stopReading has the client read no more after the next message.
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
		cl.t.Fatalf("the connection is gone before %.200s", text)
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

// ask sends a request and returns its id.
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

// wait waits for the first frame that is wanted and returns where it is.
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
			cl.t.Fatalf("there is no %s; got %s", what, summary(cl.frames))
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

// reply waits for the answer to a request.
func (cl *client) reply(id string) frame {
	cl.t.Helper()
	f, _ := cl.wait("answer to "+id, func(f frame) bool { return string(f.ID) == id && f.Method == "" })
	return f
}

// call asks and waits for the answer.
func (cl *client) call(method string, params any) frame {
	cl.t.Helper()
	return cl.reply(cl.ask(method, params))
}

// must is call for what must not fail.
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

// refused asks for what must be refused.
func (cl *client) refused(method string, params any, code int, text string) *wireError {
	cl.t.Helper()
	f := cl.call(method, params)
	if f.Error == nil || f.Error.Code != code || !strings.Contains(f.Error.Message, text) {
		cl.t.Fatalf("%s %v is answered with %s, want error %d %q", method, params, f.raw, code, text)
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

// all returns what was read so far.
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

// output waits until a process has closed and returns what it said, all streams
// together. The seqs must follow each other from first.
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
			cl.t.Fatalf("seq %d of %s comes where %d should: %s", f.Params.Seq, id, first, summary(cl.all()))
		}
		first++
		b.Write(f.Params.Chunk)
		if f.Params.ExitCode != nil {
			exitCode = *f.Params.ExitCode
		}
	}
	return b.String(), exitCode
}

// startParamsOf are the parameters of a start of a shell command.
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
