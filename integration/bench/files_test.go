package bench

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// Rows of files over gRPC. Files are in the page cache: disks are not measured.

// readRatio is the budget of reading beside a bare stream of the same bytes, and
// readGrowth that of the memory which it takes.
const (
	readRatio  = 0.8
	readGrowth = 16 << 20
)

// files returns the file service on a connection with the same settings as that to the floor.
func (b *bench) files(p *harness.Peer, transport string) execwirev1.FileSystemServiceClient {
	b.Helper()
	return execwirev1.NewFileSystemServiceClient(b.dialBare(p, transport))
}

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

func measureReadFile(b *bench) []line {
	bare := b.startBare()
	var lines []line
	for _, transport := range harness.PeerTransports {
		conn := b.dialBare(bare, transport)
		for _, size := range b.sizes.fileBytes {
			server, path := b.startServer(), b.zeroFile(size)
			files := b.files(server, transport)
			b.download(files, b.zeroFile(0), 0)
			b.receiveBare(conn, "Output", bareChunk)
			grown := growth(server, func() { b.download(files, path, size) })
			var floor, ours transfers
			for range b.sizes.fileRounds {
				floor.addBytes(bare, size, func() { b.receiveBare(conn, "Output", size) })
				ours.addBytes(server, size, func() { b.download(files, path, size) })
			}
			b.raw("%s, bare stream of %s: %.0f MiB/s, server CPU %.2f s/GiB", transport, harness.ShowMiB(size), floor.rate, floor.cpu)
			b.raw("%s, DownloadFile of %s: %.0f MiB/s, server CPU %.2f s/GiB, %s more memory for the first, %s resident after all", transport, harness.ShowMiB(size), ours.rate, ours.cpu, harness.ShowMiB(grown), harness.ShowMiB(server.Resident()))
			lines = append(lines,
				atLeast(fmt.Sprintf("read %s, %s", harness.ShowMiB(size), transport), floor.rate.Median(), ours.rate.Median(), readRatio, "MiB/s"),
				within("memory for it, "+transport, grown, readGrowth, harness.ShowMiB))
		}
	}
	return lines
}

// growth returns by how much the memory of a server grows at most while f runs for the first
// time.
func growth(p *harness.Peer, f func()) int64 {
	p.Tb.Helper()
	before := p.Resident()
	f()
	return p.Peak() - before
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

// uploadPiece is the data in one message of an upload, of the floor and of ours.
const uploadPiece = 256 << 10

// measureWriteFile has no budget in the design; the figure is only reported.
func measureWriteFile(b *bench) []line {
	server, bare := b.startServer(), b.startBare()
	size := b.sizes.fileBytes[0]
	var lines []line
	for _, transport := range harness.PeerTransports {
		conn, files := b.dialBare(bare, transport), b.files(server, transport)
		floorPath, path := filepath.Join(b.TempDir(), "f"), filepath.Join(b.TempDir(), "f")
		var floor, ours transfers
		before := server.Resident()
		for range b.sizes.fileRounds {
			floor.addBytes(bare, size, func() { b.sendBare(conn, floorPath, size) })
			ours.addBytes(server, size, func() { b.upload(files, path, size) })
		}
		b.raw("%s, bare stream written to a file: %.0f MiB/s, server CPU %.2f s/GiB", transport, floor.rate, floor.cpu)
		b.raw("%s, UploadFile: %.0f MiB/s, server CPU %.2f s/GiB, %s more memory", transport, ours.rate, ours.cpu, harness.ShowMiB(server.Peak()-before))
		lines = append(lines, withoutBudget(atLeast(fmt.Sprintf("write %s, %s", harness.ShowMiB(size), transport), floor.rate.Median(), ours.rate.Median(), 0, "MiB/s")))
	}
	return lines
}

// upload writes a file and checks that it is complete.
func (b *bench) upload(files execwirev1.FileSystemServiceClient, path string, size int64) {
	b.Helper()
	stream, err := files.UploadFile(b.ctx)
	if err != nil {
		b.Fatal(err)
	}
	head := &execwirev1.UploadHead{Path: path, Mode: execwirev1.UploadMode_UPLOAD_MODE_IN_PLACE}
	err = stream.Send(&execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Head{Head: head}})
	for piece, left := make([]byte, uploadPiece), size; err == nil && left > 0; left -= uploadPiece {
		data := &execwirev1.UploadFileRequest_Data{Data: piece[:min(left, uploadPiece)]}
		err = stream.Send(&execwirev1.UploadFileRequest{Message: data})
	}
	if err == nil {
		_ = stream.Send(&execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_End{End: &execwirev1.UploadEnd{}}})
	}
	resp, err := stream.CloseAndRecv() // returns the error if sending failed
	if err != nil || resp.GetSize() != uint64(size) {
		b.Fatalf("the upload has %d bytes of %d: %v", resp.GetSize(), size, err)
	}
}

func measureDirectory(b *bench) []line {
	dir := b.fullDirectory()
	files := b.files(b.startServer(), "unix")
	floor, ours := harness.Samples[time.Duration]{}, harness.Samples[time.Duration]{}
	for range b.sizes.listings {
		floor = append(floor, harness.Timed(func() { b.listHere(dir) }))
		ours = append(ours, harness.Timed(func() { b.list(files, dir) }))
	}
	b.rawTimes("os.ReadDir and stat", floor)
	b.rawTimes("ReadDirectory", ours)
	return []line{b.directoryLine("unix", floor, ours)}
}

func (b *bench) directoryLine(transport string, floor, ours harness.Samples[time.Duration]) line {
	return atMost(fmt.Sprintf("directory of %d entries, %s, p50", b.sizes.entries, transport), floor.Median(), ours.Median(), 2, harness.ShowTime)
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
