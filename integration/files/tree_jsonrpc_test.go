package files

import (
	"bytes"
	"encoding/json"
	"errors"
	"github.com/execwire/execwire/integration/harness"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// rpcFiles is a JSON-RPC client of files that reconnects, resumes its session and repeats
// requests without a response whenever the connection breaks.
type rpcFiles struct {
	testing.TB
	address string
	session string

	link        *harness.WebsocketConn
	connections int
	lastID      int
}

func newRPCFiles(t testing.TB, address string) *rpcFiles {
	r := &rpcFiles{TB: t, address: address}
	t.Cleanup(r.drop)
	return r
}

func (r *rpcFiles) drop() {
	if r.link != nil {
		r.link.Drop()
		r.link = nil
	}
}

// call repeats a request until it has a response.
func (r *rpcFiles) call(method string, params harness.RPCParams) harness.RPCContent {
	r.Helper()
	for deadline := time.Now().Add(harness.StepTimeout); ; {
		answer, err := r.try(method, params)
		if err == nil {
			return answer
		}
		r.drop()
		if time.Now().After(deadline) {
			r.Fatalf("%s has no answer: %v", method, err)
		}
	}
}

// result is call with expected success; into may be nil.
func (r *rpcFiles) result(method string, params harness.RPCParams, into any) {
	r.Helper()
	answer := r.call(method, params)
	if answer.Error != nil {
		r.Fatalf("%s was refused with %+v", method, answer.Error)
	}
	if into != nil {
		if err := json.Unmarshal(answer.Result, into); err != nil {
			r.Fatal(err)
		}
	}
}

// try sends a request, over a new connection if there is none.
func (r *rpcFiles) try(method string, params harness.RPCParams) (harness.RPCContent, error) {
	if r.link == nil {
		if err := r.connect(); err != nil {
			return harness.RPCContent{}, err
		}
	}
	return r.exchange(method, params)
}

func (r *rpcFiles) connect() (err error) {
	if r.link, err = harness.Upgrade(r.address, nil); err != nil {
		return err
	}
	hello := harness.RPCParams{"clientName": "files"}
	if r.session != "" {
		hello["resumeSessionId"] = r.session
	}
	answer, err := r.exchange("initialize", hello)
	switch {
	case err != nil:
		return err
	case answer.Error != nil && answer.Error.Code != -32010: // which still belongs to the connection that broke
		r.Fatalf("the session could not be resumed: %+v", answer.Error)
	case answer.Error != nil:
		return errors.New(answer.Error.Message)
	}
	var told struct{ SessionID string }
	if err := json.Unmarshal(answer.Result, &told); err != nil {
		return err
	}
	r.session = told.SessionID
	r.connections++
	return r.link.Send([]byte(`{"method":"initialized"}`))
}

// exchange sends a request and waits for its response.
func (r *rpcFiles) exchange(method string, params harness.RPCParams) (harness.RPCContent, error) {
	r.lastID++
	if err := r.link.Send([]byte(harness.RequestText(r.lastID, method, params))); err != nil {
		return harness.RPCContent{}, err
	}
	for {
		frame, err := r.link.Receive()
		if err != nil {
			return harness.RPCContent{}, err
		}
		if frame.Kind != "text" {
			continue
		}
		if err := frame.Parse(); err != nil {
			return harness.RPCContent{}, err
		}
		if frame.Method == "" && string(frame.ID) == harness.MustJSON(r.lastID) {
			return frame.RPCContent, nil
		}
	}
}

// blockFile is the size from which files are transferred in blocks.
const blockFile = 100_000

// put writes a file, a large one with a handle. Handles belong to a connection, so the file is
// begun again after a cut.
func (r *rpcFiles) put(path string, content []byte) {
	r.Helper()
	if len(content) < blockFile {
		r.result("fs/writeFile", harness.RPCParams{"path": path, "dataBase64": inBase64(content)}, nil)
		return
	}
	r.withHandle(path, "replace", func(handle string) bool {
		for offset := 0; offset < len(content); offset += harness.BlockBytes {
			block := content[offset:min(offset+harness.BlockBytes, len(content))]
			if !r.still("fs/writeBlock", harness.RPCParams{"handleId": handle, "offset": offset, "chunk": inBase64(block)}, nil) {
				return false
			}
		}
		return true
	})
}

// get reads a file.
func (r *rpcFiles) get(path string) []byte {
	r.Helper()
	var size struct{ Size int64 }
	r.result("fs/getMetadata", harness.RPCParams{"path": path}, &size)
	if size.Size < blockFile {
		var whole struct{ DataBase64 []byte }
		r.result("fs/readFile", harness.RPCParams{"path": path}, &whole)
		return whole.DataBase64
	}
	var content bytes.Buffer
	r.withHandle(path, "read", func(handle string) bool {
		content.Reset()
		for {
			var block struct {
				Chunk []byte
				EOF   bool
			}
			if !r.still("fs/readBlock", harness.RPCParams{"handleId": handle, "offset": content.Len(), "len": 300_000}, &block) {
				return false
			}
			content.Write(block.Chunk)
			if block.EOF {
				return true
			}
		}
	})
	return content.Bytes()
}

// withHandle opens a file and calls a function, again if the connection broke meanwhile.
func (r *rpcFiles) withHandle(path, mode string, do func(handle string) (done bool)) {
	r.Helper()
	for {
		handle := harness.ProcessID()
		answer := r.call("fs/open", harness.RPCParams{"handleId": handle, "path": path, "mode": mode})
		if answer.Error != nil {
			r.Fatalf("fs/open of %s was refused with %+v", path, answer.Error)
		}
		if do(handle) {
			r.result("fs/close", harness.RPCParams{"handleId": handle}, nil)
			return
		}
	}
}

// still is result for a request with a handle. It reports whether the handle still existed: it
// is closed with its connection.
func (r *rpcFiles) still(method string, params harness.RPCParams, into any) bool {
	r.Helper()
	before := r.connections
	answer := r.call(method, params)
	switch {
	case answer.Error == nil && into == nil:
		return true
	case answer.Error == nil:
		if err := json.Unmarshal(answer.Result, into); err != nil {
			r.Fatal(err)
		}
		return true
	case answer.Error.Code == -32004 && r.connections > before:
		return false
	}
	r.Fatalf("%s was refused with %+v", method, answer.Error)
	return false
}

// walk lists what is below a directory: relative paths, by whether they are files.
func (r *rpcFiles) walk(dir string) map[string]bool {
	r.Helper()
	var walked struct {
		Entries   []struct{ Path, Kind string }
		Errors    []any
		Truncated bool
	}
	r.result("fs/walk", harness.RPCParams{"path": dir, "options": harness.RPCParams{"maxDepth": 20, "maxDirectories": 5000, "maxEntries": 20_000}}, &walked)
	if walked.Truncated || len(walked.Errors) > 0 {
		r.Fatalf("the walk has the errors %v and is truncated: %t", walked.Errors, walked.Truncated)
	}
	found := map[string]bool{}
	for _, e := range walked.Entries {
		name, err := filepath.Rel(dir, e.Path)
		if err != nil {
			r.Fatal(err)
		}
		found[name] = e.Kind == "file"
	}
	return found
}

// sync makes a directory of the server equal to a tree. The snapshot has what the directory is
// known to contain.
func (r *rpcFiles) sync(tree, dir string, known treeSnapshot) treeSnapshot {
	r.Helper()
	r.result("fs/createDirectory", harness.RPCParams{"path": dir}, nil)
	want := snapshotTree(r, tree, false)
	for name, isFile := range r.walk(dir) {
		if what, there := want[name]; !there || isFile == (len(what) < 64) {
			r.result("fs/remove", harness.RPCParams{"path": filepath.Join(dir, name)}, nil)
		}
	}
	for _, name := range want.filesOf(false) {
		r.result("fs/createDirectory", harness.RPCParams{"path": filepath.Join(dir, name)}, nil)
	}
	for _, name := range want.filesOf(true) {
		if known[name] == want[name] {
			continue
		}
		content, err := os.ReadFile(filepath.Join(tree, name))
		if err != nil {
			r.Fatal(err)
		}
		r.put(filepath.Join(dir, name), content)
	}
	return want
}

// fetch creates a new tree from a directory of the server.
func (r *rpcFiles) fetch(dir, tree string) {
	r.Helper()
	found := r.walk(dir)
	names := make([]string, 0, len(found))
	for name := range found {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		path := filepath.Join(tree, name)
		var err error
		if found[name] {
			err = os.WriteFile(path, r.get(filepath.Join(dir, name)), 0o644)
		} else {
			err = os.MkdirAll(path, 0o755)
		}
		if err != nil {
			r.Fatal(err)
		}
	}
}

// A real source tree is uploaded, changed, synced and downloaded over JSON-RPC, and is equal at
// each end: without cuts, and with repeated cuts after which the client resumes its session and
// repeats requests without a response.
func TestSourceTree_JSONRPC(t *testing.T) {
	harness.Slow(t)
	for _, cuts := range cutsOfTrees() {
		t.Run(map[bool]string{false: "whole", true: "cut"}[cuts > 0], func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("the seed is %d", seed)
			random := rand.New(rand.NewPCG(seed, 0))
			server := harness.NewServer(t, nil)
			wire := harness.NewProxy(t, "tcp", server.Address(harness.WebsocketTransport))
			if cuts > 0 {
				// The largest file takes 7 MiB, which a whole connection lets pass.
				wire.CutAfter(func() int64 { return 8<<20 + random.Int64N(1<<20) })
			}
			r := newRPCFiles(t, wire.Listener.Addr().String())
			source, there := realTree(t), filepath.Join(harness.ShortDir(t), "there")

			known := r.sync(source, there, nil)
			known.expect(t, "uploaded", there, false)
			changeTree(t, source, random)
			snapshots := snapshotTree(t, source, false)
			if changed := len(snapshots.differences(known)); changed < 30 {
				t.Errorf("only %d paths were changed", changed)
			}
			known = r.sync(source, there, known)
			known.expect(t, "synced", there, false)
			for done := false; !done || wire.CutCount() < cuts; done = true {
				back := filepath.Join(harness.ShortDir(t), "back")
				if err := os.Mkdir(back, 0o755); err != nil {
					t.Fatal(err)
				}
				r.fetch(there, back)
				known.expect(t, "downloaded", back, false)
			}
			t.Logf("%d cuts, %d connections", wire.CutCount(), r.connections)
		})
	}
}
