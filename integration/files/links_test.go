package files

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// A path without symlinks is never resolved through a link that replaces a directory
// concurrently: reads stay inside, and nothing outside is written.
func TestNoFollow_PathsStayInside(t *testing.T) {
	s := harness.NewServer(t, nil)
	files := execwirev1.NewFileSystemServiceClient(s.Core(t))
	c := harness.WebsocketClient(t, s.Address(harness.WebsocketTransport)).Initialize("")
	at := newTrap(t)
	stop := swapping(at.directory, at.link)
	defer func() {
		if stop() == 0 {
			t.Error("nothing was exchanged")
		}
	}()
	inside, refused := 0, 0
	expect := func(what string, content []byte, err error) {
		t.Helper()
		switch {
		case err == nil && string(content) == "public":
			inside++
		case client.Reason(err) == execwirev1.ErrorReason_ERROR_REASON_SYMLINK_REFUSED:
			refused++
		default:
			t.Errorf("%s gave %q: %v", what, content, err)
		}
	}
	path := filepath.Join(at.directory, "d", "7")
	fresh := filepath.Join(at.directory, "new")
	for round := 0; round < 2000 && (inside < 50 || refused < 50 || round < 200); round++ {
		read, err := files.ReadFile(harness.Context(t), &execwirev1.ReadFileRequest{Path: path, NoSymlinks: true})
		expect("ReadFile", read.GetData(), err)
		var streamed []byte
		stream, err := files.DownloadFile(harness.Context(t), &execwirev1.DownloadFileRequest{Path: path, NoSymlinks: true, Length: proto.Uint64(100)})
		for err == nil {
			var m *execwirev1.DownloadFileResponse
			if m, err = stream.Recv(); err == nil {
				streamed = append(streamed, m.GetData()...)
			}
		}
		if len(streamed) > 0 && strings.Contains(string(streamed), "secret") {
			t.Errorf("DownloadFile gave %q", streamed)
		}
		_, err = files.WriteFile(harness.Context(t), &execwirev1.WriteFileRequest{Path: fresh, NoSymlinks: true, Data: []byte("x")})
		if err != nil && client.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_SYMLINK_REFUSED {
			t.Errorf("WriteFile: %v", err)
		}
		answer := c.Call("fs/readFile", harness.RPCParams{"path": path, "followSymlinks": false})
		if strings.Contains(string(answer.Result), inBase64([]byte("secret"))) {
			t.Errorf("fs/readFile gave %s", answer.Result)
		}
	}
	if inside == 0 || refused == 0 {
		t.Errorf("%d reads were inside, %d were refused: both should be", inside, refused)
	}
	if _, err := os.Lstat(filepath.Join(at.outside, "new")); !os.IsNotExist(err) {
		t.Errorf("a file was written outside: %v", err)
	}
	at.wantOutsideWhole(t, "reading and writing")
}
