package gateway

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/execwire/execwire/gateway/call"
	"github.com/execwire/execwire/gateway/files"
)

const (
	unknownH = "-32004 unknown file handle `h`"
	readSize = "-32600 file read block length must be between 1 and 1048576"
	size     = "-32600 file write block length must be between 1 and 1048576"
	badFile  = "-32603 Bad file descriptor (os error 9)"
)

func TestFileHandles(t *testing.T) {
	long := strings.Repeat("x", 33)
	checkCalls(t, func(dir string) {
		do(t, os.WriteFile(dir+"/f", []byte("0123456789"), 0o644), os.Mkdir(dir+"/d", 0o755), syscall.Mkfifo(dir+"/fifo", 0o644), os.Symlink("f", dir+"/lf"))
	}, []literalCall{
		{"fs/open", `{"handleId":"h","path":"T/lf","sandbox":null}`, `{"handleId":"h"}`},
		{"fs/open", `{"handleId":"h","path":"T/none"}`, "-32600 file handle `h` already exists"},
		{"fs/readBlock", `{"handleId":"h","offset":0,"len":4}`, `{"eof":false,"chunk":"MDEyMw=="}`},
		{"fs/readBlock", `{"handleId":"h","offset":8,"len":4}`, `{"eof":true,"chunk":"ODk="}`},
		{"fs/readBlock", `{"handleId":"h","offset":99,"len":4}`, `{"eof":true,"chunk":""}`},
		{"fs/readBlock", `{"handleId":"h","offset":0,"len":1048576}`, `{"eof":true,"chunk":"MDEyMzQ1Njc4OQ=="}`},
		{"fs/readBlock", `{"handleId":"h","offset":0,"len":0}`, readSize},
		{"fs/readBlock", `{"handleId":"h","offset":0,"len":1048577}`, readSize},
		{"fs/readBlock", `{"handleId":"h","len":1}`, "-32602 missing field `offset`"},
		{"fs/writeBlock", `{"handleId":"h","offset":0,"chunk":"eA=="}`, badFile},
		{"fs/close", `{"handleId":"h"}`, `{}`},
		{"fs/close", `{"handleId":"h"}`, `{}`},
		{"fs/readBlock", `{"handleId":"h","offset":0,"len":1}`, unknownH},
		{"fs/writeBlock", `{"handleId":"h","offset":0,"chunk":"eA=="}`, unknownH},
		{"fs/open", `{"handleId":"","path":"T/f","mode":"read"}`, `{"handleId":""}`},
		{"fs/readBlock", `{"handleId":"","offset":9,"len":1}`, `{"eof":false,"chunk":"OQ=="}`},

		{"fs/open", `{"handleId":"w","path":"T/out","mode":"replace"}`, `{"handleId":"w"}`},
		{"fs/writeBlock", `{"handleId":"w","offset":0,"chunk":"YWJj"}`, `{}`},
		{"fs/writeBlock", `{"handleId":"w","offset":5,"chunk":"eA=="}`, `{}`},
		{"fs/writeBlock", `{"handleId":"w","offset":3,"chunk":"ZGU="}`, `{}`},
		{"fs/writeBlock", `{"handleId":"w","offset":3,"chunk":""}`, size},
		{"fs/writeBlock", `{"handleId":"w"}`, "-32602 missing field `offset`"},
		{"fs/readBlock", `{"handleId":"w","offset":0,"len":1}`, badFile},
		{"fs/close", `{"handleId":"w"}`, `{}`},
		{"fs/readFile", `{"path":"T/out"}`, `{"dataBase64":"YWJjZGV4"}`},

		{"fs/open", `{"handleId":"h","path":"T/d"}`, "-32600 path `DIR/d` is not a file"},
		{"fs/open", `{"handleId":"h","path":"T/fifo","mode":"replace"}`, "-32600 path `DIR/fifo` is not a file"},
		{"fs/open", `{"handleId":"h","path":"/dev/null"}`, "-32600 path `/dev/null` is not a file"},
		{"fs/open", `{"handleId":"h","path":"T/none"}`, missing},
		{"fs/open", `{"handleId":"h","path":"T/none/x","mode":"replace"}`, missing},
		{"fs/open", `{"handleId":"h","path":"f"}`, "-32602 invalid URI: relative URL without a base"},
		{"fs/open", `{"handleId":"h","path":"T/f","mode":"write"}`, "-32602 unknown variant `write`, expected `read` or `replace`"},
		{"fs/open", `{"handleId":"` + long + `","path":"T/f"}`, "-32600 file handle id must be at most 32 bytes"},
		{"fs/open", `{"handleId":"` + long[1:] + `","path":"T/f"}`, `{"handleId":"` + long[1:] + `"}`},
		{"fs/open", `{"path":"T/f"}`, "-32602 missing field `handleId`"},

		{"fs/open", `{"handleId":"h","path":"/proc/self/mem"}`, `{"handleId":"h"}`},
		{"fs/readBlock", `{"handleId":"h","offset":0,"len":1}`, "-32603 I/O error (os error 5)"},
		{"fs/readBlock", `{"handleId":"h","offset":0,"len":1}`, unknownH},
		{"fs/open", `{"handleId":"h","path":"T/f"}`, `{"handleId":"h"}`},
	})
}

func openOf(id, path string, members ...any) map[string]any {
	return with(map[string]any{"handleId": id, "path": path}, members...)
}

func TestOpen_TooManyHandles_Fails(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	path := t.TempDir() + "/f"
	do(t, os.WriteFile(path, []byte("content"), 0o644))
	for i := range 128 {
		cl.must("fs/open", openOf(fmt.Sprint(i), path))
	}
	cl.refused("fs/open", openOf("0", path), -32600, "file handle `0` already exists")
	cl.refused("fs/open", openOf("more", path), -32600, "at most 128 file handles may be open per connection")
	cl.must("fs/close", map[string]any{"handleId": "5"})
	cl.must("fs/open", openOf("more", path))
}

// Calls of a client that does not wait for responses have the same effects as if it
// did.
func TestFileHandles_PipelinedCalls_KeepOrder(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	path := t.TempDir() + "/f"
	for round := range 20 {
		cl.ask("fs/open", openOf("h", path, "mode", "replace"))
		for i := range 40 {
			cl.ask("fs/writeBlock", map[string]any{"handleId": "h", "offset": 0, "chunk": base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%02d-%02d", round, i))})
		}
		cl.ask("fs/close", map[string]any{"handleId": "h"})
		cl.ask("fs/open", openOf("h", path))
		read := cl.ask("fs/readBlock", map[string]any{"handleId": "h", "offset": 0, "len": 100})
		closed := cl.ask("fs/close", map[string]any{"handleId": "h"})
		want := fmt.Sprintf(`{"eof":true,"chunk":%q}`, base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%02d-39", round)))
		if got := string(cl.reply(read).Result); got != want {
			t.Fatalf("round %d: %s, want %s", round, got, want)
		}
		if f := cl.reply(closed); f.Error != nil {
			t.Fatal(f.Error)
		}
	}
}

func TestFileHandles_LargeBlocks(t *testing.T) {
	for _, wire := range []bool{false, true} {
		cl, _ := newTestServer(t, func(s *serverSettings) { s.wire = wire }).attach("")
		path := t.TempDir() + "/f"
		want := bytes.Repeat([]byte("0123456789abcdef"), (5<<20)/32) // two and a half blocks
		cl.must("fs/open", openOf("w", path, "mode", "replace"))
		for at := 0; at < len(want); at += 1 << 20 {
			block := want[at:min(at+1<<20, len(want))]
			cl.must("fs/writeBlock", map[string]any{"handleId": "w", "offset": at, "chunk": block})
		}
		cl.must("fs/open", openOf("r", path))
		var got []byte
		for eof := false; !eof; {
			var block struct {
				Chunk []byte
				EOF   bool `json:"eof"`
			}
			cl.decode(cl.must("fs/readBlock", map[string]any{"handleId": "r", "offset": len(got), "len": 1 << 20}), &block)
			got, eof = append(got, block.Chunk...), block.EOF
		}
		if !bytes.Equal(got, want) {
			t.Errorf("got %d bytes of %d", len(got), len(want))
		}
	}
}

// descriptorsOf counts the descriptors of this process for a path.
func descriptorsOf(t *testing.T, path string) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if target, _ := os.Readlink("/proc/self/fd/" + e.Name()); target == path {
			n++
		}
	}
	return n
}

// The session outlives its connection; open handles do not.
func TestFileHandles_Disconnect_AreClosed(t *testing.T) {
	srv := newTestServer(t)
	cl, session := srv.attach("")
	path := t.TempDir() + "/f"
	do(t, os.WriteFile(path, []byte("content"), 0o644))
	cl.must("fs/open", openOf("h", path))
	cl.drop()
	next, _ := srv.attach(session)
	next.refused("fs/readBlock", map[string]any{"handleId": "h", "offset": 0, "len": 1}, -32004, "unknown file handle `h`")
	next.must("fs/open", openOf("h", path))
	if n := descriptorsOf(t, path); n != 1 {
		t.Errorf("%d descriptors are open, want only that of the second connection", n)
	}
	next.must("fs/readBlock", map[string]any{"handleId": "h", "offset": 0, "len": 1})
}

// Blocks in reused memory have the content of their part of the file, also when
// many are requested at once.
func TestReadBlock_ReusedBuffers_KeepContent(t *testing.T) {
	cl, _ := newTestServer(t).attach("")
	content := make([]byte, 3*files.MaxBlockBytes+files.MinPooledBlock)
	for i := range content {
		content[i] = byte(i >> 8)
	}
	path := t.TempDir() + "/f"
	do(t, os.WriteFile(path, content, 0o644))
	cl.must("fs/open", openOf("h", path))
	lengths := []int{files.MaxBlockBytes, files.MinPooledBlock, files.MinPooledBlock - 1, call.MaxWholeData + 1, 100}
	var asked []string
	for range 8 {
		for i, length := range lengths {
			asked = append(asked, cl.ask("fs/readBlock", map[string]any{"handleId": "h", "offset": i * files.MinPooledBlock * 12, "len": length}))
		}
	}
	for i, id := range asked {
		var block struct {
			Chunk []byte `json:"chunk"`
			EOF   bool   `json:"eof"`
		}
		cl.decode(cl.reply(id).Result, &block)
		from := i % len(lengths) * files.MinPooledBlock * 12
		want := content[from:min(from+lengths[i%len(lengths)], len(content))]
		if !bytes.Equal(block.Chunk, want) || block.EOF != (len(want) < lengths[i%len(lengths)]) {
			t.Errorf("block %d has %d bytes of %d, or a different content", i, len(block.Chunk), len(want))
		}
	}
}
