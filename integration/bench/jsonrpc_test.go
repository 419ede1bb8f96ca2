package bench

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/execwire/execwire/integration/harness"
)

func measureSmallRequestJSON(b *bench) []line {
	c := harness.DialRPC(b, harness.StartSocketServer(b).URLs[harness.JSONRPC])
	deaf := b.startStuck(c)
	alone := b.alternate(b.sizes.requests, 0.99, timed("fs/getMetadata alone", func() { b.statJSON(c) }))
	b.stickJSON(c, deaf)
	beside := b.alternate(b.sizes.requests, 0.99, timed("fs/getMetadata beside a long poll and a stuck write", func() { b.statJSON(c) }))
	return []line{within("small request beside a long poll and a stuck write, beside alone, JSON-RPC, p99", alone[0], beside[0], smallRequestLimit, showSeconds)}
}

// startStuck starts a process that neither reads nor writes.
func (b *bench) startStuck(c *harness.RawRPC) string {
	b.Helper()
	id := harness.ProcessID()
	c.Call("process/start", harness.StartParams(id, `,"tty":false,"pipeStdin":true`, "/bin/sleep", "600"))
	return id
}

// stickJSON starts a long poll of a process and a blocked write to its stdin on this
// connection.
func (b *bench) stickJSON(c *harness.RawRPC, id string) {
	b.Helper()
	c.Request("process/read", fmt.Sprintf(`{"processId":%q,"waitMs":600000}`, id))
	chunk := base64.StdEncoding.EncodeToString(make([]byte, 1<<20))
	var answers []<-chan harness.RPCMessage
	for n := range 3 { // pipe and queue together hold less
		answers = append(answers, c.Request("process/write", fmt.Sprintf(`{"processId":%q,"chunk":%q,"writeId":"%d"}`, id, chunk, n)))
	}
	if m := <-answers[0]; m.Result == nil {
		b.Fatalf("the first write was answered %s", m.Error)
	}
}

// statJSON is a small request.
func (b *bench) statJSON(c *harness.RawRPC) {
	if got := c.Call("fs/getMetadata", `{"path":"/"}`); !strings.Contains(string(got), `"isDirectory":true`) {
		b.Fatalf("got %s", got)
	}
}

// measureStalledJSON measures what a server retains for a client that stops reading, and that
// nothing is lost when it continues.
func measureStalledJSON(b *bench) []line {
	server := harness.StartSocketServer(b)
	harness.StartTrue(b, harness.DialRPC(b, server.URLs[harness.JSONRPC]))
	c := harness.DialRPCUnread(b, server.URLs[harness.JSONRPC])
	b.settle()
	before := server.Resident()
	c.Send(harness.OpText, fmt.Appendf(nil, `{"id":1,"method":"process/start","params":%s}`,
		harness.StartParams("p", `,"tty":false`, zeros(b.sizes.stalledBytes)...)))
	if _, err := c.Next(); err != nil {
		b.Fatal(err)
	}
	peak := before
	for deadline := time.Now().Add(b.sizes.idle); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		peak = max(peak, server.Resident())
	}
	var received, last int64
	for {
		m, err := c.Next()
		if err != nil {
			b.Fatal(err)
		}
		if n := chunkBytes(m); n >= 0 {
			received += int64(n)
			continue
		}
		var end harness.RPCMessage
		if err := json.Unmarshal(m, &end); err != nil {
			b.Fatal(err)
		}
		if end.Method == "process/closed" {
			last = int64(end.Params.Seq)
			break
		}
	}
	if received != b.sizes.stalledBytes {
		b.Errorf("%d of %d bytes arrived in %d events", received, b.sizes.stalledBytes, last)
	}
	b.raw("stalled client: %s before, %s at most while it stalls, %s after it took all", harness.ShowMiB(before), harness.ShowMiB(peak), harness.ShowMiB(server.Resident()))
	return []line{stalledLine("JSON-RPC", b.sizes.stalledBytes, peak-before)}
}
