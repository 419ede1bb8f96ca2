package integration

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"
)

// Rows of files over JSON-RPC.

func measureReadFileJSON(b *bench) []line {
	bare := b.startBareSocket()
	var lines []line
	for _, size := range b.sizes.fileBytes {
		server, path := b.startSocketServer(), b.zeroFile(size)
		c := b.dialRPCUnread(server.urls[jsonRPC])
		b.readFileJSON(c, b.zeroFile(0), 0)
		grown := server.growth(func() { b.readFileJSON(c, path, size) })
		var floor, ours transfers
		for range b.sizes.fileRounds {
			floor.addBytes(bare, size, func() { b.skipFrames(bare, size) })
			ours.addBytes(server, size, func() { b.readFileJSON(c, path, size) })
		}
		b.raw("JSON-RPC, bare frames of %s: %.0f MiB/s, server CPU %.2f s/GiB", showMiB(size), floor.rate, floor.cpu)
		b.raw("JSON-RPC, fs/readFile of %s: %.0f MiB/s, server CPU %.2f s/GiB, %s more memory for the first, %s resident after all", showMiB(size), ours.rate, ours.cpu, showMiB(grown), showMiB(server.resident()))
		lines = append(lines,
			atLeast(fmt.Sprintf("read %s, JSON-RPC, fs/readFile", showMiB(size)), floor.rate.median(), ours.rate.median(), readRatio, "MiB/s"),
			within("memory for it, JSON-RPC", grown, readGrowth, showMiB))
	}
	return lines
}

// skipFrames receives n bytes of the floor and checks that they are n.
func (b *bench) skipFrames(bare *benchPeer, n int64) {
	b.Helper()
	s := b.dialSocket(fmt.Sprintf("%s/output/%d", bare.urls[jsonRPC], n))
	defer func() { _ = s.conn.Close() }()
	var received int64
	var err error
	for err == nil {
		err = s.pieces(func(m []byte) { received += int64(chunkBytes(m)) })
	}
	if !errors.Is(err, io.EOF) || received != n {
		b.Fatalf("the floor gave %d bytes of %d: %v", received, n, err)
	}
}

// readFileJSON reads a file by one request and checks its size, without decoding
// it.
func (b *bench) readFileJSON(c *benchRPC, path string, size int64) {
	b.Helper()
	c.send(opText, fmt.Appendf(nil, `{"id":1,"method":"fs/readFile","params":{"path":%q}}`, path))
	var length int64
	var begin, end []byte
	err := c.pieces(func(piece []byte) {
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
	c := b.dialRPCUnread(b.startSocketServer().urls[jsonRPC])
	floor, ours := samples[time.Duration]{}, samples[time.Duration]{}
	for range b.sizes.listings {
		floor = append(floor, timed(func() { b.listHere(dir) }))
		ours = append(ours, timed(func() { b.listJSON(c, dir) }))
	}
	b.rawTimes("os.ReadDir and stat", floor)
	b.rawTimes("fs/readDirectory", ours)
	return []line{b.directoryLine("JSON-RPC", floor, ours)}
}

func (b *bench) listJSON(c *benchRPC, dir string) {
	b.Helper()
	c.send(opText, fmt.Appendf(nil, `{"id":1,"method":"fs/readDirectory","params":{"path":%q}}`, dir))
	m, err := c.next()
	if listed := bytes.Count(m, []byte(`"fileName":"file-`)); err != nil || listed != b.sizes.entries {
		b.Fatalf("fs/readDirectory gave %d entries of %d: %v", listed, b.sizes.entries, err)
	}
}
