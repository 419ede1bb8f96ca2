package harness

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// TranscriptEvent is a line of a transcript.
type TranscriptEvent struct {
	Conn      string          `json:"c"` // "-" is none
	Direction string          `json:"d"` // ">" from the client, "<" from the server, "#" a remark
	Kind      string          `json:"k"` // as in RPCFrame, or "note", "http"
	Value     json.RawMessage `json:"v"`
	Raw       *string         `json:"raw"` // a text that is no JSON
	Hex       string          `json:"hex"` // a binary frame
}

// DecodeAny decodes JSON; nil if it is none.
func DecodeAny(text []byte) any {
	var value any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if decoder.Decode(&value) != nil {
		return nil
	}
	return value
}

// Error implements error.
func (e *RPCError) Error() string { return fmt.Sprintf("%d %s", e.Code, e.Message) }

// RPCFrame is a frame from the server.
type RPCFrame struct {
	Kind string // "text", "binary", "ping", "pong" or "close"
	Data []byte
	RPCContent
	Event *RPCEvent // nil if the frame is not about a process
}

// RPCContent is the content of a text frame. Members that the frame did not have are
// nil or empty.
type RPCContent struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *RPCError       `json:"error"`
}

// RPCError is the error of a response.
type RPCError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

// RPCParams are the members of parameters, or of the result of a call.
type RPCParams map[string]any

// RPCEvent is a notification about a process.
type RPCEvent struct {
	ProcessID string `json:"processId"`
	Seq       uint64 `json:"seq"`
	Stream    string `json:"stream"`
	Chunk     []byte `json:"chunk"`
	ExitCode  int    `json:"exitCode"`

	Method string
}

// RPCRead is the result of process/read.
type RPCRead struct {
	Chunks   []RPCEvent `json:"chunks"`
	NextSeq  uint64     `json:"nextSeq"`
	Exited   bool       `json:"exited"`
	ExitCode *int       `json:"exitCode"`
	Closed   bool       `json:"closed"`
	Failure  *string    `json:"failure"`
}

// RequestText encodes a request.
func RequestText(id int, method string, params any) string {
	request := map[string]any{"id": id, "method": method}
	if params != nil {
		request["params"] = params
	}
	return MustJSON(request)
}

// MustJSON encodes v.
func MustJSON(v any) string {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		panic(err)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// ReplyTo returns the index of the response to the request, or -1.
func ReplyTo(frames []RPCFrame, id int) int {
	want := fmt.Sprint(id)
	for i, frame := range frames {
		if frame.Method == "" && string(frame.ID) == want {
			return i
		}
	}
	return -1
}

// StartOf returns the parameters of process/start.
func StartOf(id string, argv []string, more RPCParams) RPCParams {
	params := RPCParams{"processId": id, "argv": argv, "cwd": "/", "env": Environment(), "tty": false, "arg0": nil}
	maps.Copy(params, more)
	return params
}

// WriteOf returns the parameters of process/write.
func WriteOf(id, data string) RPCParams {
	return RPCParams{"processId": id, "chunk": base64.StdEncoding.EncodeToString([]byte(data))}
}

// Parse reads the content of a text frame.
func (f *RPCFrame) Parse() error {
	err := json.Unmarshal(f.Data, &f.RPCContent)
	if err == nil && f.ID == nil && (strings.HasPrefix(f.Method, "process/") || strings.HasPrefix(f.Method, "command/exec/")) {
		f.Event = &RPCEvent{Method: f.Method}
		err = json.Unmarshal(f.Params, f.Event)
	}
	if err != nil {
		return fmt.Errorf("failed to parse %.300q: %w", f.Data, err)
	}
	return nil
}

// EventsOf returns the notifications about a process in order.
func EventsOf(frames []RPCFrame, id string) []RPCEvent {
	var events []RPCEvent
	for _, frame := range frames {
		if frame.Event != nil && frame.Event.ProcessID == id {
			events = append(events, *frame.Event)
		}
	}
	return events
}

// OutputOf joins the output of a process on a stream.
func OutputOf(frames []RPCFrame, id, stream string) string {
	var b strings.Builder
	for _, e := range EventsOf(frames, id) {
		if (e.Method == "process/output" || e.Method == "command/exec/outputDelta") && e.Stream == stream {
			b.Write(e.Chunk)
		}
	}
	return b.String()
}
