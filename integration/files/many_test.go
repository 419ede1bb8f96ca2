package files

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testproc"
)

// fewEntries is the limit of one JSON-RPC response, and manyEntries is more.
const fewEntries, manyEntries = 50_000, 60_000

// manyNames creates a directory with so many long names, of one file: for a minute after so many
// files were removed, ext4 takes half a millisecond to create one.
func manyNames(t *testing.T) (dir string, names []string) {
	t.Helper()
	dir = filepath.Join(harness.ShortDir(t), "many")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range manyEntries {
		names = append(names, fmt.Sprintf("%s/%0150d", dir, i))
	}
	err := os.WriteFile(names[0], nil, 0o600)
	for i := 1; i < manyEntries && err == nil; i++ {
		err = os.Link(names[0], names[i])
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir, names
}

// A directory of 60,000 entries is listed completely, in memory that depends neither on their
// number nor on readers. A call whose response would need them all fails. The directory can be
// removed.
func TestFiles_DirectoryOfManyEntries(t *testing.T) {
	harness.Slow(t)
	server := harness.Serve(t)
	dir, names := manyNames(t)
	files := fileService(server, t)
	before := server.ResidentBytes(t, "VmHWM")
	var stuck []execwirev1.FileSystemService_ReadDirectoryClient
	for range 20 {
		stream, err := files.ReadDirectory(harness.Context(t), &execwirev1.ReadDirectoryRequest{Path: dir})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		stuck = append(stuck, stream)
	}
	seen := map[string]bool{}
	stream, err := files.ReadDirectory(harness.Context(t), &execwirev1.ReadDirectoryRequest{Path: dir})
	for err == nil {
		var m *execwirev1.ReadDirectoryResponse
		m, err = stream.Recv()
		for _, e := range m.GetEntries() {
			seen[e.GetName()] = true
		}
	}
	if err != io.EOF || len(seen) != manyEntries {
		t.Errorf("ReadDirectory reports %d of %d entries: %v", len(seen), manyEntries, err)
	}
	// 20 whole listings are 180 MiB.
	grown := server.ResidentBytes(t, "VmHWM") - before
	if t.Logf("the server took %d MiB for unread listings", grown>>20); grown > 100<<20 {
		t.Error("that is too much")
	}
	if !harness.Soak() {
		stuck = stuck[len(stuck)-3:]
	}
	for _, stream := range stuck { // the blocked streams continue
		for err = nil; err == nil; {
			_, err = stream.Recv()
		}
		if err != io.EOF {
			t.Error(err)
		}
	}
	c := harness.WebsocketClient(t, server.Address(harness.WebsocketTransport)).Initialize("")
	if refused := c.Refused("fs/readDirectory", harness.RPCParams{"path": dir}, -32005); !strings.Contains(refused.Message, "50000") {
		t.Errorf("too many entries are refused with %+v", refused)
	}
	for _, name := range names[fewEntries:] {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	var listed struct{ Entries []struct{ FileName string } }
	if c.Result("fs/readDirectory", harness.RPCParams{"path": dir}, &listed); len(listed.Entries) != fewEntries {
		t.Errorf("fs/readDirectory reports %d of more entries than permitted", len(listed.Entries))
	}
	c.Result("fs/remove", harness.RPCParams{"path": dir}, nil)
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory is there after it was removed: %v", err)
	}
}

// deepTree creates a directory tree that is deeper than any path can name.
func deepTree(t *testing.T, levels int) (dir string) {
	t.Helper()
	dir = filepath.Join(harness.ShortDir(t), "deep")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for range levels {
		if err == nil {
			err = unix.Mkdirat(at, "d", 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		below, openErr := unix.Openat(at, "d", unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		_ = unix.Close(at)
		at, err = below, openErr
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(at)
	return dir
}

// A tree deeper than the longest path can be walked and removed. A copy of it fails.
func TestFiles_DeepTree(t *testing.T) {
	harness.Slow(t)
	s := harness.NewServer(t, nil)
	files := execwirev1.NewFileSystemServiceClient(s.Core(t))
	c := harness.WebsocketClient(t, s.Address(harness.WebsocketTransport)).Initialize("")
	for _, remove := range []func(dir string){
		func(dir string) {
			if _, err := files.RemovePath(harness.Context(t), &execwirev1.RemovePathRequest{Path: dir, Recursive: true}); err != nil {
				t.Error(err)
			}
		},
		func(dir string) { c.Result("fs/remove", harness.RPCParams{"path": dir}, nil) },
	} {
		dir := deepTree(t, 2_500)
		_, err := files.CopyPath(harness.Context(t), &execwirev1.CopyPathRequest{SourcePath: dir, DestinationPath: dir + "-copy", Recursive: true})
		if client.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_TREE_TOO_DEEP {
			t.Errorf("the copy of a deep tree: %v", err)
		}
		c.Refused("fs/copy", harness.RPCParams{"sourcePath": dir, "destinationPath": dir + "-copy", "recursive": true}, -32005)
		walked := 0
		walk, err := files.WalkDirectory(harness.Context(t), &execwirev1.WalkDirectoryRequest{Path: dir, MaxEntries: proto.Uint64(2000)})
		for err == nil {
			var m *execwirev1.WalkDirectoryResponse
			m, err = walk.Recv()
			walked += len(m.GetEntries().GetEntries())
		}
		if err != io.EOF || walked == 0 || walked > 2000 {
			t.Errorf("the walk through a deep tree has %d entries: %v", walked, err)
		}
		remove(dir)
		if _, err := os.Lstat(dir); !os.IsNotExist(err) {
			t.Errorf("the deep tree is there after it was removed: %v", err)
		}
	}
}

// A sparse file of 1 TiB cannot be read at once, can be read in parts, and stays sparse when it
// is copied.
func TestFiles_SparseFile(t *testing.T) {
	const size = 1 << 40
	s := harness.NewServer(t, nil)
	files := execwirev1.NewFileSystemServiceClient(s.Core(t))
	c := harness.WebsocketClient(t, s.Address(harness.WebsocketTransport)).Initialize("")
	dir := harness.ShortDir(t)
	path := filepath.Join(dir, "sparse")
	if err := os.WriteFile(path, []byte("begin"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size-3); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = f.WriteString("end")
		_ = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = files.ReadFile(harness.Context(t), &execwirev1.ReadFileRequest{Path: path})
	if client.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_FILE_TOO_LARGE {
		t.Errorf("reading it whole: %v", err)
	}
	c.Refused("fs/readFile", harness.RPCParams{"path": path}, -32600)
	if _, err := files.CopyPath(harness.Context(t), &execwirev1.CopyPathRequest{SourcePath: path, DestinationPath: path + "1"}); err != nil {
		t.Error(err)
	}
	c.Result("fs/copy", harness.RPCParams{"sourcePath": path, "destinationPath": path + "2", "recursive": false}, nil)
	for _, copied := range []string{path, path + "1", path + "2"} {
		for _, part := range []struct {
			offset uint64
			want   string
		}{{0, "begin\x00"}, {size / 2, "\x00\x00"}, {size - 4, "\x00end"}, {size, ""}} {
			if got := partOf(t, files, copied, part.offset, 6); !strings.HasPrefix(got, part.want) || len(got) > 6 {
				t.Errorf("%s has %q at %d, want %q", copied, got, part.offset, part.want)
			}
		}
		var st unix.Stat_t
		if err := unix.Stat(copied, &st); err != nil || st.Size != size || st.Blocks > 1<<10 {
			t.Errorf("%s has %d bytes in %d blocks: %v", copied, st.Size, st.Blocks, err)
		}
	}
}

// largestFile is the limit of fs/readFile.
const largestFile = 512 << 20

// The largest file is read by one request. A file of one more byte is rejected.
func TestReadFile_JSONRPC_LargestFile(t *testing.T) {
	harness.Slow(t)
	server := harness.Serve(t)
	path := filepath.Join(harness.ShortDir(t), "f")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	pattern := testproc.StdoutPattern
	for at := int64(0); at < largestFile; at += 32 << 20 { // the rest are holes
		piece := make([]byte, 1<<20+1)
		pattern.Fill(piece, uint64(at))
		if _, err := f.WriteAt(piece[:min(int64(len(piece)), largestFile-at)], at); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Truncate(largestFile); err != nil {
		t.Fatal(err)
	}
	c := harness.DialRPCUnread(t, server.URLs[harness.WebsocketTransport])
	before := server.ResidentBytes(t, "VmHWM")
	text, decoded := io.Pipe()
	compared := make(chan error, 1)
	go func() {
		_, err := io.Copy(expectedFrom{f}, base64.NewDecoder(base64.StdEncoding, text))
		compared <- errors.Join(err, text.Close())
	}()
	c.Send(harness.OpText, fmt.Appendf(nil, `{"id":1,"method":"fs/readFile","params":{"path":%q}}`, path))
	const begin, end = `{"id":1,"result":{"dataBase64":"`, `"}}`
	left := int64(base64.StdEncoding.EncodedLen(largestFile))
	skip := len(begin)
	var rest []byte
	err = c.Pieces(func(piece []byte) {
		skipped := min(skip, len(piece))
		skip, piece = skip-skipped, piece[skipped:]
		n := min(int64(len(piece)), left)
		_, _ = decoded.Write(piece[:n]) // the reader reports an error
		left, rest = left-n, append(rest, piece[n:]...)
	})
	if closeErr := errors.Join(decoded.Close(), <-compared); err != nil || closeErr != nil || left != 0 || string(rest) != end {
		t.Fatalf("%d signs are missing, and the answer ends with %.100q: %v, %v", left, rest, err, closeErr)
	}
	if grown := server.ResidentBytes(t, "VmHWM") - before; grown > 64<<20 {
		t.Errorf("the server used %d MiB for it", grown>>20)
	}
	if err := f.Truncate(largestFile + 1); err != nil {
		t.Fatal(err)
	}
	c.Send(harness.OpText, fmt.Appendf(nil, `{"id":2,"method":"fs/readFile","params":{"path":%q}}`, path))
	if m, err := c.Next(); err != nil || !bytes.Contains(m, []byte("file is too large to read: limit is 536870912 bytes")) {
		t.Errorf("a file that is larger by a byte is answered %.200s: %v", m, err)
	}
}

// expectedFrom fails to write what it does not read.
type expectedFrom struct{ io.Reader }

// Write implements io.Writer.
func (e expectedFrom) Write(p []byte) (int, error) {
	want := make([]byte, len(p))
	if _, err := io.ReadFull(e, want); err != nil {
		return 0, err
	}
	if !bytes.Equal(p, want) {
		return 0, errors.New("the received file differs")
	}
	return len(p), nil
}

// partOf downloads a part of a file.
func partOf(t *testing.T, files fileClient, path string, offset, length uint64) string {
	t.Helper()
	stream, err := files.DownloadFile(harness.Context(t), &execwirev1.DownloadFileRequest{Path: path, Offset: offset, Length: proto.Uint64(length)})
	var got []byte
	for err == nil {
		var m *execwirev1.DownloadFileResponse
		m, err = stream.Recv()
		got = append(got, m.GetData()...)
	}
	if err != io.EOF {
		t.Fatal(err)
	}
	return string(got)
}
