package conformance

import (
	"encoding/base64"
	"fmt"
	"github.com/execwire/execwire/integration/harness"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// process/read returns the last MiB of a process's output in whole chunks; notifications have
// all of it.
func TestRead_ReturnsOnlyWhatIsRetained(t *testing.T) {
	harness.Slow(t)
	const limit = 1 << 20
	c := harness.WebsocketClient(t, harness.NewServer(t, nil).Address(harness.WebsocketTransport)).Initialize("")
	for id, argv := range map[string][]string{
		"big": harness.Shell("i=0; while [ $i -lt 640 ]; do head -c 8192 /dev/zero; i=$((i+1)); done"),
		"one": harness.Shell("head -c 3000000 /dev/zero"),
		"two": harness.Shell("head -c 800000 /dev/zero; head -c 800000 /dev/zero >&2"),
	} {
		c.Start(id, argv, nil)
		c.ExpectEnd(id, 0)
		events := harness.EventsOf(c.Record(), id)
		said := 0
		for _, e := range events {
			said += len(e.Chunk)
		}
		if want := map[string]int{"big": 640 * 8192, "one": 3_000_000, "two": 1_600_000}[id]; said != want {
			t.Errorf("received %d bytes of %s, of %d", said, id, want)
		}
		read := c.ReadProcess(id, harness.RPCParams{"afterSeq": nil})
		kept := 0
		for i, chunk := range read.Chunks {
			kept += len(chunk.Chunk)
			if chunk.Seq != read.Chunks[0].Seq+uint64(i) {
				t.Errorf("chunk %d of %s has the number %d, the first %d", i, id, chunk.Seq, read.Chunks[0].Seq)
			}
		}
		if kept > limit || kept < limit-(64<<10) || !read.Closed || read.NextSeq != uint64(len(events)+1) {
			t.Errorf("%d bytes of %s are kept; the next number is %d after %d events", kept, id, read.NextSeq, len(events))
		}
		budget := 65536
		piece := c.ReadProcess(id, harness.RPCParams{"afterSeq": 1, "maxBytes": budget})
		for i, chunk := range piece.Chunks {
			if budget -= len(chunk.Chunk); budget < 0 && i > 0 || chunk.Seq != read.Chunks[i].Seq {
				t.Errorf("chunk %d of a part of %s has the number %d and %d bytes too many", i, id, chunk.Seq, -budget)
			}
		}
		if last := piece.Chunks[len(piece.Chunks)-1].Seq; piece.NextSeq != last+1 {
			t.Errorf("after the part of %s up to %d the next number is %d", id, last, piece.NextSeq)
		}
	}
}

// Writes to a process that does not read wait when its queue is full. The reference does not
// respond to anything else on the connection then.
func TestStdin_Full_DelaysOnlyItself(t *testing.T) {
	c := harness.WebsocketClient(t, harness.NewServer(t, nil).Address(harness.WebsocketTransport)).Initialize("")
	mebibyte := strings.Repeat("a", 1<<20)
	c.Start("count", []string{"/bin/sh", "-c", "head -c 2097152 | wc -c"}, harness.RPCParams{"pipeStdin": true})
	c.Write("count", mebibyte+mebibyte, "accepted")
	c.AwaitOutput("count", "stdout", "2097152\n")
	c.ExpectEnd("count", 0)

	c.Start("sleep", harness.Program("sleep"), harness.RPCParams{"pipeStdin": true})
	var writes []int
	for range 5 {
		writes = append(writes, c.Post("process/write", harness.WriteOf("sleep", mebibyte+mebibyte)))
	}
	for range 300 {
		writes = append(writes, c.Post("process/write", harness.WriteOf("sleep", "b")))
	}
	if read := c.ReadProcess("sleep", nil); read.Exited || read.NextSeq != 1 {
		t.Errorf("process/read returns %+v", read)
	}
	if !c.Terminate("sleep") {
		t.Error("the process was not running")
	}
	c.ExpectEnd("sleep", 128+9)
	for _, write := range writes {
		c.Reply(write) // with any result
	}
}

// A file of up to 512 MiB is read into one message. Larger ones are rejected.
func TestReadFile_UpToTheLimit_IsComplete(t *testing.T) {
	harness.Slow(t)
	dir := harness.ShortDir(t)
	path := filepath.Join(dir, "big")
	size := func(n int64) {
		t.Helper()
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, n); err != nil {
			t.Fatal(err)
		}
	}
	c := harness.WebsocketClient(t, harness.NewServer(t, nil).Address(harness.WebsocketTransport)).Initialize("")
	for _, n := range []int64{8 << 20, 48<<20 + 1} {
		size(n)
		answer := c.Call("fs/readFile", harness.RPCParams{"path": path})
		encoded := base64.StdEncoding.EncodeToString(make([]byte, n))
		if want := fmt.Sprintf(`{"dataBase64":"%s"}`, encoded); string(answer.Result) != want {
			t.Errorf("the result for %d bytes has %d bytes, want %d of zeros: %+v", n, len(answer.Result), len(want), answer.Error)
		}
	}
	size(512<<20 + 1)
	if refused := c.Refused("fs/readFile", harness.RPCParams{"path": path}, -32600); !strings.HasPrefix(refused.Message, "file is too large to read: limit is 536870912 bytes") {
		t.Errorf("the error is %q", refused.Message)
	}
}
