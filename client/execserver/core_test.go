package execserver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

func TestTheEnvironmentIsTheSameOverTheProtocol(t *testing.T) {
	s := newGateway(t)
	want, err := execwirev1.NewEnvironmentServiceClient(s.channel).GetEnvironment(t.Context(), &execwirev1.GetEnvironmentRequest{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := execwirev1.NewEnvironmentServiceClient(dial(t, s.address)).GetEnvironment(t.Context(), &execwirev1.GetEnvironmentRequest{})
	if err != nil || !proto.Equal(got, want) {
		t.Errorf("got %v, %v\nwant %v", got, err, want)
	}
}

// TestLargeFilesOverTheProtocolTakeLittleMemory sends 64 MiB and takes them back. The
// server is in this program, and its memory counts too.
func TestLargeFilesOverTheProtocolTakeLittleMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: runs in make test-all")
	}
	const size, piece, mostGrowth = 64 << 20, 64 << 10, 16 << 20
	files := execwirev1.NewFileSystemServiceClient(dial(t, newGateway(t).address))
	path := filepath.Join(t.TempDir(), "file")
	var begun uint64
	sample := func(done int) {
		if done%(8<<20) != 0 {
			return
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if begun == 0 {
			begun = m.HeapAlloc
		}
		if m.HeapAlloc > begun+mostGrowth {
			t.Errorf("after %d bytes the heap has grown by %d", done, m.HeapAlloc-begun)
		}
	}
	upload, err := files.UploadFile(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	head := &execwirev1.UploadHead{Path: path, Mode: execwirev1.UploadMode_UPLOAD_MODE_REPLACE}
	send := func(m *execwirev1.UploadFileRequest) {
		if err := upload.Send(m); err != nil {
			_, err = upload.CloseAndRecv()
			t.Fatal(err)
		}
	}
	send(&execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Head{Head: head}})
	digest := sha256.New()
	for done := 0; done < size; done += piece {
		data := bytes.Repeat([]byte{byte(done >> 16)}, piece)
		digest.Write(data)
		send(&execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Data{Data: data}})
		sample(done)
	}
	send(&execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_End{End: &execwirev1.UploadEnd{Sha256: digest.Sum(nil)}}})
	if response, err := upload.CloseAndRecv(); err != nil || response.GetSize() != size {
		t.Fatalf("the upload is answered with %v, %v", response, err)
	}
	download, err := files.DownloadFile(t.Context(), &execwirev1.DownloadFileRequest{Path: path, WantSha256: true})
	if err != nil {
		t.Fatal(err)
	}
	got, ended := sha256.New(), false
	for done := 0; ; {
		message, err := download.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got.Write(message.GetData())
		if len(message.GetData()) > 0 {
			done += len(message.GetData())
			sample(done)
		}
		ended = ended || message.GetEnd() != nil
	}
	if !ended || !bytes.Equal(got.Sum(nil), digest.Sum(nil)) {
		t.Error("the file is another one")
	}
}

// TestASlowReaderOfAFileHoldsUpNothingElse opens a download that nobody takes.
func TestASlowReaderOfAFileHoldsUpNothingElse(t *testing.T) {
	conn := dial(t, newGateway(t).address)
	files := execwirev1.NewFileSystemServiceClient(conn)
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, 8<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	for range 10 {
		stream, err := files.DownloadFile(ctx, &execwirev1.DownloadFileRequest{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := files.GetMetadata(t.Context(), &execwirev1.GetMetadataRequest{Path: path}); err != nil {
		t.Error(err)
	}
}

// TestWatchesOverTheProtocol has one tell what happens, and end with its directory.
func TestWatchesOverTheProtocol(t *testing.T) {
	conn := dial(t, newGateway(t).address)
	files := execwirev1.NewFileSystemServiceClient(conn)
	dir := filepath.Join(t.TempDir(), "watched")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	stream, err := files.WatchDirectory(t.Context(), &execwirev1.WatchDirectoryRequest{Path: dir, Recursive: true})
	if err != nil {
		t.Fatal(err)
	}
	next := func() *execwirev1.WatchDirectoryResponse {
		t.Helper()
		message, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return message
	}
	if m := next(); m.GetStarted() == nil {
		t.Fatalf("it begins with %v", m)
	}
	if err := os.WriteFile(filepath.Join(dir, "new\xff"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if c := next().GetChanges().GetChanges(); len(c) != 1 || string(c[0].GetRawPath()) != "new\xff" || c[0].GetKind() != execwirev1.WatchChangeKind_WATCH_CHANGE_KIND_CREATED {
		t.Errorf("the changes are %v", c)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	lost := false
	for err == nil {
		var m *execwirev1.WatchDirectoryResponse
		m, err = stream.Recv()
		lost = lost || m.GetLost() != nil
	}
	if !lost || reasonOf(err) != execwirev1.ErrorReason_ERROR_REASON_PATH_NOT_FOUND {
		t.Errorf("lost: %v, and it ends with %v", lost, err)
	}
}

// TestStreamsThatAreGivenUpAreForgotten opens and gives up more than there may be.
func TestStreamsThatAreGivenUpAreForgotten(t *testing.T) {
	conn := dial(t, newGateway(t).address)
	files := execwirev1.NewFileSystemServiceClient(conn)
	dir := t.TempDir()
	for range 140 {
		ctx, cancel := context.WithCancelCause(t.Context())
		stream, err := files.WatchDirectory(ctx, &execwirev1.WatchDirectoryRequest{Path: dir})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		cancel(nil)
		if _, err := stream.Recv(); status.Code(err) != codes.Canceled {
			t.Fatalf("it ends with %v", err)
		}
	}
}

func TestRequestsOverHTTPOverTheProtocol(t *testing.T) {
	s := newGateway(t)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // what is there is said back
		w.Header().Set("X-Said", r.Header.Get("X-Say"))
		if _, err := w.Write(bytes.Repeat(body, 100_000)); err != nil && r.Context().Err() == nil {
			t.Error(err)
		}
	}))
	defer web.Close()
	for name, request := range map[string]*execwirev1.FetchRequest{
		"a body":    {Method: "POST", Url: web.URL, Body: []byte("0123456789"), Headers: []*execwirev1.HttpHeader{{Name: "x-say", Value: "this"}}},
		"no answer": {Method: "GET", Url: "http://127.0.0.1:1/"},
		"refused":   {Method: "GET", Url: "http://169.254.169.254/"},
		"malformed": {Method: "G T", Url: web.URL},
	} {
		t.Run(name, func(t *testing.T) {
			fetch := func(client execwirev1.HttpServiceClient) (head *execwirev1.HttpHead, body []byte, err error) {
				stream, err := client.Fetch(t.Context(), request)
				for err == nil {
					var m *execwirev1.FetchResponse
					if m, err = stream.Recv(); m.GetHead() != nil {
						head = m.GetHead()
					}
					body = append(body, m.GetData()...)
				}
				if errors.Is(err, io.EOF) {
					err = nil
				}
				for _, h := range head.GetHeaders() {
					if h.GetName() == "date" {
						h.Value = ""
					}
				}
				return head, body, err
			}
			wantHead, wantBody, want := fetch(execwirev1.NewHttpServiceClient(s.channel))
			head, body, err := fetch(execwirev1.NewHttpServiceClient(dial(t, s.address)))
			if !proto.Equal(head, wantHead) || !bytes.Equal(body, wantBody) || !sameStatus(status.Convert(err), status.Convert(want)) {
				t.Errorf("got %v, %d bytes, %v\nwant %v, %d bytes, %v", head, len(body), err, wantHead, len(wantBody), want)
			}
		})
	}
}

// TestMessagesOfDataAreReadAsTheyAreWritten holds the short way against that of
// protobuf.
func TestMessagesOfDataAreReadAsTheyAreWritten(t *testing.T) {
	for _, data := range []string{"", "a", "ab", "abc", "\x00\xff\xfe/+"} {
		text, err := compactJSON(&execwirev1.FetchResponse{Message: &execwirev1.FetchResponse_Data{Data: []byte(data)}})
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := onlyData(text); !ok || string(got) != data {
			t.Errorf("%s is read as %q, %v", text, got, ok)
		}
	}
	for _, text := range []string{`{"data":"a"}`, `{"data":"YQ==","x":"}`, `{"head":{}}`, `{"data":"YQ=="`} {
		if got, ok := onlyData([]byte(text)); ok {
			t.Errorf("%s is read as %q", text, got)
		}
	}
}

// compactJSON writes a message without the spaces that protobuf adds at random.
func compactJSON(m proto.Message) ([]byte, error) {
	text, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	var compact bytes.Buffer
	err = json.Compact(&compact, text)
	return compact.Bytes(), err
}

// sameStatus is whether two statuses are the same, whatever the order in which their
// details were written.
func sameStatus(a, b *status.Status) bool {
	return a.Code() == b.Code() && a.Message() == b.Message() && slices.EqualFunc(a.Details(), b.Details(), func(one, other any) bool {
		first, isFirst := one.(proto.Message)
		second, isSecond := other.(proto.Message)
		return isFirst && isSecond && proto.Equal(first, second)
	})
}
