package files

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testproc"
)

// changingBytes is more than the buffers on the way to a client that does not read.
const changingBytes = 32 << 20

// fileChanges are changes of a file while it is read.
var fileChanges = []struct {
	name    string
	change  func(path string) error
	changed bool // or may be reported so
	// whole requires that the data is the original content.
	whole bool
}{
	{name: "nothing", change: func(string) error { return nil }, whole: true},
	{name: "it grows", changed: true, change: func(path string) error {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		_, err = f.Write(make([]byte, 1<<20))
		return errors.Join(err, f.Close())
	}},
	{name: "it shrinks", changed: true, change: func(path string) error { return os.Truncate(path, changingBytes/2) }},
	{name: "it is emptied", changed: true, change: func(path string) error { return os.Truncate(path, 0) }},
	{name: "its end is edited", changed: true, change: func(path string) error { return writeAt(path, changingBytes-10) }},
	{name: "its begin is edited", changed: true, change: func(path string) error { return writeAt(path, 10) }},
	{name: "another takes its place", whole: true, changed: true, change: func(path string) error {
		if err := os.WriteFile(path+"-new", []byte("new"), 0o600); err != nil {
			return err
		}
		return os.Rename(path+"-new", path)
	}},
	{name: "it is removed", whole: true, changed: true, change: os.Remove},
}

func writeAt(path string, offset int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte("edit"), offset)
	return errors.Join(err, f.Close())
}

// A change of a file during a download is reported, so that a client never takes a mixture for
// the file. The digest is that of the received data.
func TestDownload_FileChanges_IsReported(t *testing.T) {
	harness.Slow(t)
	s := harness.NewServer(t, nil)
	content := make([]byte, changingBytes)
	testproc.StdoutPattern.Fill(content, 0)
	for _, d := range harness.Transports {
		conn, _ := s.Connect(t, d)
		files := execwirev1.NewFileSystemServiceClient(conn)
		changes := fileChanges
		if testing.Short() && d != harness.TCPTransport {
			changes = changes[:2]
		}
		for _, tt := range changes {
			t.Run(fmt.Sprint(d, ", ", tt.name), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "f")
				err := os.WriteFile(path, content, 0o600)
				if err == nil { // what follows changes its time
					err = os.Chtimes(path, time.Unix(1e9, 0), time.Unix(1e9, 0))
				}
				if err != nil {
					t.Fatal(err)
				}
				stream, err := files.DownloadFile(harness.Context(t), &execwirev1.DownloadFileRequest{Path: path, WantSha256: true})
				if err != nil {
					t.Fatal(err)
				}
				var got []byte
				var end *execwirev1.DownloadEnd
				for changed := false; err == nil; {
					var m *execwirev1.DownloadFileResponse
					if m, err = stream.Recv(); err != nil {
						break
					}
					got = append(got, m.GetData()...)
					if m.GetEnd() != nil {
						end = m.GetEnd()
					}
					if len(got) > 0 && !changed {
						changed = true
						if err := tt.change(path); err != nil {
							t.Fatal(err)
						}
					}
				}
				if err != io.EOF || end == nil {
					t.Fatalf("the download ended with %v and the end %v", err, end)
				}
				if digest := sha256.Sum256(got); !bytes.Equal(end.GetSha256(), digest[:]) {
					t.Error("the digest is not that of the received data")
				}
				same := bytes.Equal(got, content)
				switch {
				case tt.whole && !same:
					t.Errorf("received %d bytes that are not those of the opened file", len(got))
				case !tt.whole && !end.GetChanged(), end.GetChanged() && !tt.changed:
					t.Errorf("received %d bytes, unchanged: %t; reported as changed: %t", len(got), same, end.GetChanged())
				}
			})
		}
	}
}

// A replaced file has the old content or the new one, and no other state is ever visible: also
// if the client disconnects, its connection is cut, or the server is killed.
func TestUpload_Replacement_IsAtomic(t *testing.T) {
	harness.Slow(t)
	endings := map[string]func(t *testing.T, server *harness.Command, wire *harness.Proxy, stop func()){
		"the client goes away":  func(_ *testing.T, _ *harness.Command, _ *harness.Proxy, stop func()) { stop() },
		"the connection is cut": func(_ *testing.T, _ *harness.Command, wire *harness.Proxy, _ func()) { wire.Cut() },
		"the server is killed":  func(t *testing.T, server *harness.Command, _ *harness.Proxy, _ func()) { server.KillServer(t) },
	}
	for name, end := range endings {
		t.Run(name, func(t *testing.T) {
			server := harness.Serve(t)
			wire := harness.NewProxy(t, "tcp", server.Address(harness.TCPTransport))
			files := execwirev1.NewFileSystemServiceClient(harness.Dial(t, "tcp", wire.Listener.Addr().String()))
			dir := harness.ShortDir(t)
			path := filepath.Join(dir, "f")
			if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancelCause(harness.Context(t))
			cancel := func() { stop(harness.ErrStop) }
			defer cancel()
			stream, err := files.UploadFile(ctx)
			if err != nil {
				t.Fatal(err)
			}
			message := &execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Head{
				Head: &execwirev1.UploadHead{Path: path, Mode: execwirev1.UploadMode_UPLOAD_MODE_REPLACE}}}
			piece := &execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Data{Data: bytes.Repeat([]byte("new"), 100_000)}}
			for range 40 {
				if err := stream.Send(message); err != nil {
					_, why := stream.CloseAndRecv()
					t.Fatalf("%v: %v", err, why)
				}
				message = piece
			}
			wantOnly := func(when string) {
				t.Helper()
				entries, err := os.ReadDir(dir)
				var names []string
				for _, e := range entries {
					names = append(names, e.Name())
				}
				content, readErr := os.ReadFile(path)
				if err != nil || readErr != nil || string(content) != "old" || !slices.Equal(names, []string{"f"}) {
					t.Errorf("%s there is %q, and the file has %.20q: %v, %v", when, names, content, err, readErr)
				}
			}
			wantOnly("during the upload")
			end(t, server, wire, cancel)
			if _, err := stream.CloseAndRecv(); err == nil {
				t.Error("the upload succeeded")
			}
			server.Kill()
			wantOnly("after it")
		})
	}
}
