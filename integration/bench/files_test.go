package bench

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// Rows of files over gRPC. Files are in the page cache: disks are not measured.

// readRatio is the budget of reading beside the shortest server that does, readGrowth that
// of the memory which it takes, and directoryRatio that of a listing beside package os.
const (
	readRatio      = 0.8
	readGrowth     = 16 << 20
	directoryRatio = 1
)

// zeroFile creates a file of n zeros that are on disk, so that reading them has its real cost.
func (b *bench) zeroFile(n int64) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "f")
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	piece := make([]byte, 1<<20)
	for left := n; left > 0; left -= int64(len(piece)) {
		if _, err := f.Write(piece[:min(left, int64(len(piece)))]); err != nil {
			b.Fatal(err)
		}
	}
	return path
}

// measureReadFile compares a download with the shortest server that reads the file: through
// a client with our transport settings, and through a stock one.
func measureReadFile(b *bench) []line {
	floor := b.startFloor()
	var lines []line
	for _, kind := range []struct {
		name    string
		options []grpc.DialOption
		sizes   []int64
	}{{"gRPC", tuned(), b.sizes.fileBytes}, {"gRPC, stock client", nil, b.sizes.fileBytes[len(b.sizes.fileBytes)-1:]}} {
		conn := b.channel(floor, kind.options...)
		for _, size := range kind.sizes {
			server, path, what := b.startServer(), b.zeroFile(size), "read "+harness.ShowMiB(size)+", "+kind.name
			files := execwirev1.NewFileSystemServiceClient(b.channel(server, kind.options...))
			b.download(files, b.zeroFile(0), 0)
			b.receiveFloor(conn, "File", []byte(path), size)
			grown := growth(server, func() { b.download(files, path, size) })
			got := b.carry(size,
				transfer{what + ", floor", floor, func() { b.receiveFloor(conn, "File", []byte(path), size) }},
				transfer{what, server, func() { b.download(files, path, size) }})
			lines = append(lines, readLines(what, got, grown)...)
		}
	}
	return lines
}

// readLines are the budgets of a file that was read after its floor.
func readLines(what string, got []transferred, grown float64) []line {
	return []line{
		atLeast(what, got[0].rate, got[1].rate, readRatio, showMiBRate),
		within("memory for it", nil, figures{grown}, readGrowth, showMiB),
	}
}

// growth returns by how much the memory of a server grows at most while f runs for the first
// time.
func growth(p *harness.Peer, f func()) float64 {
	p.Tb.Helper()
	before := p.Peak()
	f()
	return float64(p.Peak() - before)
}

// download reads a file to its end and checks its size.
func (b *bench) download(files execwirev1.FileSystemServiceClient, path string, size int64) {
	b.Helper()
	stream, err := files.DownloadFile(b.ctx, &execwirev1.DownloadFileRequest{Path: path})
	var received int64
	for err == nil {
		var m *execwirev1.DownloadFileResponse
		m, err = stream.Recv()
		received += int64(len(m.GetData()))
	}
	if err != io.EOF || received != size {
		b.Fatalf("the download gave %d bytes of %d: %v", received, size, err)
	}
}

// measureDirectory compares listings with what package os takes for the same.
func measureDirectory(b *bench) []line {
	dir := b.fullDirectory()
	files := execwirev1.NewFileSystemServiceClient(b.channel(b.startServer(), tuned()...))
	c := harness.DialRPCUnread(b, harness.StartSocketServer(b).URLs[harness.JSONRPC])
	times := b.alternate(b.sizes.listings, 0.5,
		timed("os.ReadDir and Info", func() { b.listHere(dir) }),
		timed("ReadDirectory", func() { b.list(files, dir) }),
		timed("fs/readDirectory", func() { b.listJSON(c, dir) }))
	what := fmt.Sprintf("directory of %d entries, ", b.sizes.entries)
	return []line{
		atMost(what+"gRPC, p50", times[0], times[1], directoryRatio, showSeconds),
		atMost(what+"JSON-RPC, p50", times[0], times[2], directoryRatio, showSeconds),
	}
}

// fullDirectory creates a directory with the number of files of a listing.
func (b *bench) fullDirectory() string {
	b.Helper()
	dir := b.TempDir()
	for i := range b.sizes.entries {
		if err := os.WriteFile(fmt.Sprintf("%s/file-%05d.txt", dir, i), nil, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	return dir
}

// listHere is the floor: a directory and the metadata of each entry.
func (b *bench) listHere(dir string) {
	b.Helper()
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if _, statErr := e.Info(); statErr != nil {
			err = statErr
		}
	}
	if err != nil || len(entries) != b.sizes.entries {
		b.Fatalf("os.ReadDir gave %d entries of %d: %v", len(entries), b.sizes.entries, err)
	}
}

func (b *bench) list(files execwirev1.FileSystemServiceClient, dir string) {
	b.Helper()
	stream, err := files.ReadDirectory(b.ctx, &execwirev1.ReadDirectoryRequest{Path: dir})
	listed := 0
	for err == nil {
		var m *execwirev1.ReadDirectoryResponse
		m, err = stream.Recv()
		listed += len(m.GetEntries())
	}
	if err != io.EOF || listed != b.sizes.entries {
		b.Fatalf("ReadDirectory gave %d entries of %d: %v", listed, b.sizes.entries, err)
	}
}
