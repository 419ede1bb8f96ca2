package bench

import (
	"bytes"
	"errors"
	"fmt"
	"github.com/execwire/execwire/integration/harness"
	"io"
	"time"
)

// Rows of files over JSON-RPC.

func measureReadFileJSON(b *bench) []line {
	bare := b.startBareSocket()
	var lines []line
	for _, size := range b.sizes.fileBytes {
		server, path := harness.StartSocketServer(b), b.zeroFile(size)
		c := harness.DialRPCUnread(b, server.URLs[harness.JSONRPC])
		b.readFileJSON(c, b.zeroFile(0), 0)
		grown := growth(server, func() { b.readFileJSON(c, path, size) })
		inBlocks := growth(server, func() { b.readBlocks(c, path, size, blocksAhead) })
		var floor, ours, one, ahead transfers
		for range b.sizes.fileRounds {
			floor.addBytes(bare, size, func() { b.skipFrames(bare, size) })
			ours.addBytes(server, size, func() { b.readFileJSON(c, path, size) })
			one.addBytes(server, size, func() { b.readBlocks(c, path, size, 1) })
			ahead.addBytes(server, size, func() { b.readBlocks(c, path, size, blocksAhead) })
		}
		b.raw("JSON-RPC, bare frames of %s: %.0f MiB/s, server CPU %.2f s/GiB", harness.ShowMiB(size), floor.rate, floor.cpu)
		b.raw("JSON-RPC, fs/readFile of %s: %.0f MiB/s, server CPU %.2f s/GiB, %s more memory for the first, %s resident after all", harness.ShowMiB(size), ours.rate, ours.cpu, harness.ShowMiB(grown), harness.ShowMiB(server.Resident()))
		b.raw("JSON-RPC, fs/readBlock of %s: %.0f MiB/s, server CPU %.2f s/GiB", harness.ShowMiB(size), one.rate, one.cpu)
		b.raw("JSON-RPC, fs/readBlock of %s, %d ahead: %.0f MiB/s, server CPU %.2f s/GiB", harness.ShowMiB(size), blocksAhead, ahead.rate, ahead.cpu)
		lines = append(lines,
			atLeast(fmt.Sprintf("read %s, JSON-RPC, fs/readFile", harness.ShowMiB(size)), floor.rate.Median(), ours.rate.Median(), readRatio, "MiB/s"),
			within("memory for it, JSON-RPC", grown, readGrowth, harness.ShowMiB),
			withoutBudget(atLeast(fmt.Sprintf("read %s, JSON-RPC, fs/readBlock, one after another", harness.ShowMiB(size)), floor.rate.Median(), one.rate.Median(), 0, "MiB/s")),
			atLeast(fmt.Sprintf("read %s, JSON-RPC, fs/readBlock, %d ahead", harness.ShowMiB(size), blocksAhead), floor.rate.Median(), ahead.rate.Median(), readRatio, "MiB/s"),
			within("memory for it, JSON-RPC, beyond that for fs/readFile", inBlocks, readGrowth, harness.ShowMiB))
	}
	return lines
}

const (
	// blocksAhead is how many blocks a client asks for that does not wait for each.
	blocksAhead = 4
)

// readBlocks reads a file block by block, asking for so many at a time, and
// checks its size.
func (b *bench) readBlocks(c *harness.RawRPC, path string, size int64, atOnce int) {
	b.Helper()
	id := harness.ProcessID()
	ask(c, `{"id":0,"method":"fs/open","params":{"handleId":%q,"path":%q}}`, id, path)
	asked, received, open := int64(0), int64(0), 0
	for received < size {
		for ; asked < size && open < atOnce; open++ {
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

// skipFrames receives n bytes of the floor and checks that they are n.
func (b *bench) skipFrames(bare *harness.Peer, n int64) {
	b.Helper()
	s := harness.DialSocket(b, fmt.Sprintf("%s/output/%d", bare.URLs[harness.JSONRPC], n))
	defer func() { _ = s.Conn.Close() }()
	var received int64
	var err error
	for err == nil {
		err = s.Pieces(func(m []byte) { received += int64(chunkBytes(m)) })
	}
	if !errors.Is(err, io.EOF) || received != n {
		b.Fatalf("the floor gave %d bytes of %d: %v", received, n, err)
	}
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

func measureDirectoryJSON(b *bench) []line {
	dir := b.fullDirectory()
	c := harness.DialRPCUnread(b, harness.StartSocketServer(b).URLs[harness.JSONRPC])
	floor, ours := harness.Samples[time.Duration]{}, harness.Samples[time.Duration]{}
	for range b.sizes.listings {
		floor = append(floor, harness.Timed(func() { b.listHere(dir) }))
		ours = append(ours, harness.Timed(func() { b.listJSON(c, dir) }))
	}
	b.rawTimes("os.ReadDir and stat", floor)
	b.rawTimes("fs/readDirectory", ours)
	return []line{b.directoryLine("JSON-RPC", floor, ours)}
}

func (b *bench) listJSON(c *harness.RawRPC, dir string) {
	b.Helper()
	c.Send(harness.OpText, fmt.Appendf(nil, `{"id":1,"method":"fs/readDirectory","params":{"path":%q}}`, dir))
	m, err := c.Next()
	if listed := bytes.Count(m, []byte(`"fileName":"file-`)); err != nil || listed != b.sizes.entries {
		b.Fatalf("fs/readDirectory gave %d entries of %d: %v", listed, b.sizes.entries, err)
	}
}
