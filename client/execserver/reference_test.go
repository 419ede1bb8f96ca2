package execserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/execwire/execwire/internal/jsonrpc"
)

// referenceMembers are the methods that servers
// of the reference have, and the members that those take. The last ones are newer.
var referenceMembers = map[string][]string{
	"fs/readFile":        {"path", "sandbox"},
	"fs/writeFile":       {"path", "sandbox", "dataBase64"},
	"fs/createDirectory": {"path", "sandbox", "recursive"},
	"fs/getMetadata":     {"path", "sandbox"},
	"fs/readDirectory":   {"path", "sandbox"},
	"fs/remove":          {"path", "sandbox", "recursive", "force"},
	"fs/copy":            {"sourcePath", "destinationPath", "sandbox", "recursive"},
	"process/start":      {"processId", "argv", "cwd", "env", "tty", "pipeStdin", "arg0", "envPolicy"},
	"process/read":       {"processId", "afterSeq", "maxBytes", "waitMs"},
	"process/write":      {"processId", "chunk", "writeId"},
	"process/terminate":  {"processId"},
}

var newerMembers = map[string][]string{
	"fs/canonicalize": {"path", "sandbox"},
	"fs/open":         {"handleId", "path", "sandbox", "mode"},
	"fs/readBlock":    {"handleId", "offset", "len"},
	"fs/writeBlock":   {"handleId", "offset", "chunk"},
	"fs/close":        {"handleId"},
	"process/start":   {"processId", "argv", "cwd", "env", "tty", "pipeStdin", "arg0", "envPolicy", "sandbox"},
	"process/signal":  {"processId", "signal"},
}

// reference is a transport to a gateway that is as a server of the reference: nothing
// else is sent than that takes, and errors have no data.
type reference struct {
	jsonrpc.Transport
	t     testing.TB
	newer bool
}

// asReference has a connection be one to a server of the reference.
func asReference(t testing.TB, newer bool) func(*Options) {
	return func(o *Options) {
		open := o.Open
		o.Open = func(ctx context.Context) (jsonrpc.Transport, error) {
			transport, err := open(ctx)
			if err != nil {
				return nil, err
			}
			return &reference{transport, t, newer}, nil
		}
	}
}

func (r *reference) Send(message []byte) error {
	var sent struct {
		Method string
		Params map[string]json.RawMessage
	}
	if err := json.Unmarshal(message, &sent); err != nil {
		r.t.Errorf("%v: %.300s", err, message)
	}
	members, known := referenceMembers[sent.Method]
	if r.newer && newerMembers[sent.Method] != nil {
		members, known = newerMembers[sent.Method], true
	}
	switch {
	case sent.Method == "initialize", sent.Method == "initialized":
	case !known:
		r.t.Errorf("the reference has no %s", sent.Method)
	}
	for name, value := range sent.Params {
		if known && !slices.Contains(members, name) {
			r.t.Errorf("the reference takes no %s in %s", name, sent.Method)
		}
		if string(value) == `"file:///"` && !r.newer { // how a client finds out
			return r.Transport.Send(bytes.Replace(message, value, []byte(`"relative"`), 1))
		}
		if uri := bytes.HasPrefix(value, []byte(`"file:`)); (name == "path" || name == "sourcePath" || name == "destinationPath") && uri != r.newer {
			r.t.Errorf("the reference takes no path such as %s", value)
		}
	}
	if sent.Method == "fs/copy" && r.leadsTo(sent.Params["sourcePath"]) == r.leadsTo(sent.Params["destinationPath"]) {
		r.t.Errorf("the reference would empty the file of %s", message)
	}
	return r.Transport.Send(message)
}

// leadsTo is the path of a file without links, and a text of its own for anything
// else.
func (r *reference) leadsTo(raw json.RawMessage) string {
	var wire string
	if err := json.Unmarshal(raw, &wire); err != nil {
		r.t.Error(err)
	}
	native, err := nativePath(wire)
	if err != nil {
		r.t.Error(err)
	}
	info, err := os.Lstat(native)
	if err != nil || !info.Mode().IsRegular() {
		return rand.Text()
	}
	if native, err = filepath.EvalSymlinks(native); err != nil {
		r.t.Error(err)
	}
	return native
}

// greeting is the answer to initialize as the reference gives it.
func (r *reference) greeting(message []byte) []byte {
	var answer struct {
		ID     json.RawMessage            `json:"id"`
		Result map[string]json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal(message, &answer); err != nil {
		r.t.Errorf("%v: %.300s", err, message)
	}
	delete(answer.Result, "protocolVersion")
	if !r.newer {
		delete(answer.Result, "environmentInfo")
	}
	text, err := json.Marshal(answer)
	if err != nil {
		r.t.Error(err)
	}
	return text
}

func (r *reference) Receive() ([]byte, error) {
	message, err := r.Transport.Receive()
	if err == nil && bytes.Contains(message[:min(len(message), 200)], []byte(`"protocolVersion"`)) {
		return r.greeting(message), nil
	}
	if err != nil || !bytes.HasPrefix(message, []byte(`{"error"`)) {
		return message, err
	}
	var failed struct {
		ID    json.RawMessage `json:"id"`
		Error struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := json.Unmarshal(message, &failed); err != nil {
		r.t.Errorf("%v: %.300s", err, message)
	}
	return json.Marshal(failed)
}
