package integration

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
)

// rpcFrame is what a server said, in the order in which it came.
type rpcFrame struct {
	kind string // "text", "binary", "ping", "pong" or "close"
	data []byte
	rpcContent
	news *rpcEvent // nil if the frame is not about a process
}

// rpcContent is the content of a text frame. Every member is nil or empty that
// the frame did not have.
type rpcContent struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *rpcError       `json:"error"`
}

// rpcError is a refusal.
type rpcError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

// rpcParams are the members of parameters, or of the result of a call.
type rpcParams map[string]any

// rpcEvent is a notification about a process.
type rpcEvent struct {
	ProcessID string `json:"processId"`
	Seq       uint64 `json:"seq"`
	Stream    string `json:"stream"`
	Chunk     []byte `json:"chunk"`
	ExitCode  int    `json:"exitCode"`

	method string
}

// rpcRead is the result of process/read.
type rpcRead struct {
	Chunks   []rpcEvent `json:"chunks"`
	NextSeq  uint64     `json:"nextSeq"`
	Exited   bool       `json:"exited"`
	ExitCode *int       `json:"exitCode"`
	Closed   bool       `json:"closed"`
	Failure  *string    `json:"failure"`
}

// requestText is a request as it goes over the wire.
func requestText(id int, method string, params any) string {
	request := map[string]any{"id": id, "method": method}
	if params != nil {
		request["params"] = params
	}
	return mustJSON(request)
}

// mustJSON is v in JSON; v is made by the test and can be encoded.
func mustJSON(v any) string {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		panic(err)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// replyTo is where the answer to the request is among frames, or -1.
func replyTo(frames []rpcFrame, id int) int {
	want := fmt.Sprint(id)
	for i, frame := range frames {
		if frame.Method == "" && string(frame.ID) == want {
			return i
		}
	}
	return -1
}

// startOf are the parameters of process/start.
func startOf(id string, argv []string, more rpcParams) rpcParams {
	params := rpcParams{"processId": id, "argv": argv, "cwd": "/", "env": environment(), "tty": false, "arg0": nil}
	for name, value := range more {
		params[name] = value
	}
	return params
}

// writeOf are the parameters of process/write.
func writeOf(id, data string) rpcParams {
	return rpcParams{"processId": id, "chunk": base64.StdEncoding.EncodeToString([]byte(data))}
}

// parse reads the content of a text frame.
func (f *rpcFrame) parse() error {
	err := json.Unmarshal(f.data, &f.rpcContent)
	if err == nil && f.ID == nil && (strings.HasPrefix(f.Method, "process/") || strings.HasPrefix(f.Method, "command/exec/")) {
		f.news = &rpcEvent{method: f.Method}
		err = json.Unmarshal(f.Params, f.news)
	}
	if err != nil {
		return fmt.Errorf("failed to parse %.300q: %w", f.data, err)
	}
	return nil
}

// eventsOf are the notifications about a process, in the order they came.
func eventsOf(frames []rpcFrame, id string) []rpcEvent {
	var events []rpcEvent
	for _, frame := range frames {
		if frame.news != nil && frame.news.ProcessID == id {
			events = append(events, *frame.news)
		}
	}
	return events
}

// outputOf joins what a process said on a stream.
func outputOf(frames []rpcFrame, id, stream string) string {
	var b strings.Builder
	for _, e := range eventsOf(frames, id) {
		if (e.method == "process/output" || e.method == "command/exec/outputDelta") && e.Stream == stream {
			b.Write(e.Chunk)
		}
	}
	return b.String()
}
