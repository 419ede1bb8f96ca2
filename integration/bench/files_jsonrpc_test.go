package bench

import (
	"bytes"
	"fmt"

	"github.com/execwire/execwire/integration/harness"
)

// Rows of files over JSON-RPC.

func measureReadFileJSON(b *bench) []line {
	floor := b.startFloor()
	socket := b.floorSocket(floor, "file")
	var lines []line
	for _, size := range b.sizes.fileBytes {
		server, path := harness.StartSocketServer(b), b.zeroFile(size)
		c := harness.DialRPCUnread(b, server.URLs[harness.JSONRPC])
		b.readFileJSON(c, b.zeroFile(0), 0)
		whole, blocks := "read "+harness.ShowMiB(size)+", `fs/readFile`", fmt.Sprintf("read %s, `fs/readBlock`, %d ahead", harness.ShowMiB(size), blocksAhead)
		grown := growth(server, func() { b.readFileJSON(c, path, size) })
		got := b.carry(size,
			transfer{"file over the websocket, floor", floor, func() {
				socket.Send(harness.OpText, []byte(path))
				b.receiveSocket(socket, 1, size)
			}},
			transfer{whole, server, func() { b.readFileJSON(c, path, size) }},
			transfer{blocks, server, func() { b.readBlocks(c, path, size) }})
		lines = append(append(lines, readLines(whole, got, grown)...),
			atLeast(blocks, got[0].rate, got[2].rate, readRatio, showMiBRate))
	}
	return lines
}

// blocksAhead is how many blocks a client asks for that does not wait for each.
const blocksAhead = 4

// readBlocks reads a file block by block, asking for blocksAhead at a time, and
// checks its size.
func (b *bench) readBlocks(c *harness.RawRPC, path string, size int64) {
	b.Helper()
	id := harness.ProcessID()
	ask(c, `{"id":0,"method":"fs/open","params":{"handleId":%q,"path":%q}}`, id, path)
	asked, received, open := int64(0), int64(0), 0
	for received < size {
		for ; asked < size && open < blocksAhead; open++ {
			c.Send(harness.OpText, fmt.Appendf(nil, `{"id":1,"method":"fs/readBlock","params":{"handleId":%q,"offset":%d,"len":%d}}`, id, asked, harness.BlockBytes))
			asked += harness.BlockBytes
		}
		n, err := skipBlock(c)
		if err != nil || n == 0 {
			b.Fatalf("received %d bytes of %d: %v", received, size, err)
		}
		received, open = received+n, open-1
	}
	if received != size {
		b.Fatalf("received %d bytes of %d", received, size)
	}
	ask(c, `{"id":0,"method":"fs/close","params":{"handleId":%q}}`, id)
}

// ask sends a request, and wants a result.
func ask(c *harness.RawRPC, format string, args ...any) {
	c.Tb.Helper()
	c.Send(harness.OpText, fmt.Appendf(nil, format, args...))
	if m, err := c.Next(); err != nil || !bytes.Contains(m, []byte(`"result"`)) {
		c.Tb.Fatalf("the answer is %.200s: %v", m, err)
	}
}

// skipBlock receives the answer to fs/readBlock, and returns how many bytes are in
// it, without decoding them.
func skipBlock(c *harness.RawRPC) (n int64, err error) {
	const key, after = `"chunk":"`, `"}}`
	var length int64
	begin := -1
	var end []byte
	err = c.Pieces(func(piece []byte) {
		if length == 0 {
			begin = bytes.Index(piece, []byte(key)) + len(key)
		}
		length += int64(len(piece))
		end = append(append(end[:0:0], end[max(0, len(end)-8):]...), piece[max(0, len(piece)-8):]...)
	})
	if err != nil || begin < len(key) || !bytes.HasSuffix(end, []byte(after)) {
		return 0, fmt.Errorf("an answer of %d bytes ends with %q: %v", length, end, err)
	}
	text := length - int64(begin+len(after))
	return text/4*3 - int64(bytes.Count(end, []byte("="))), nil
}

// readFileJSON reads a file by one request and checks its size, without decoding
// it.
func (b *bench) readFileJSON(c *harness.RawRPC, path string, size int64) {
	b.Helper()
	c.Send(harness.OpText, fmt.Appendf(nil, `{"id":1,"method":"fs/readFile","params":{"path":%q}}`, path))
	var length int64
	var begin, end []byte
	err := c.Pieces(func(piece []byte) {
		if length == 0 {
			begin = bytes.Clone(piece[:min(len(piece), 64)])
		}
		length += int64(len(piece))
		end = append(append(end[:0:0], end[max(0, len(end)-8):]...), piece[max(0, len(piece)-8):]...)
	})
	const before, after = `{"id":1,"result":{"dataBase64":"`, `"}}`
	text := length - int64(len(before)+len(after))
	padding := int64(bytes.Count(end, []byte("=")))
	if err != nil || !bytes.HasPrefix(begin, []byte(before)) || !bytes.HasSuffix(end, []byte(after)) || text/4*3-padding != size {
		b.Fatalf("the answer of %d bytes begins with %q and ends with %q: %v", length, begin, end, err)
	}
}

func (b *bench) listJSON(c *harness.RawRPC, dir string) {
	b.Helper()
	c.Send(harness.OpText, fmt.Appendf(nil, `{"id":1,"method":"fs/readDirectory","params":{"path":%q}}`, dir))
	m, err := c.Next()
	if listed := bytes.Count(m, []byte(`"fileName":"file-`)); err != nil || listed != b.sizes.entries {
		b.Fatalf("fs/readDirectory gave %d entries of %d: %v", listed, b.sizes.entries, err)
	}
}
