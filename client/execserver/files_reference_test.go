package execserver

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/testrace"
)

// eachReference runs a test with the older and the newer servers of the reference.
func eachReference(t *testing.T, do func(t *testing.T, s *gatewayServer, conn *Conn, newer bool)) {
	for name, newer := range map[string]bool{"older": false, "newer": true} {
		t.Run(name, func(t *testing.T) {
			s := newGateway(t)
			do(t, s, dial(t, s.address, asReference(t, newer)), newer)
		})
	}
}

// essence is what an answer says that every server can say.
func essence(t *testing.T, o outcome, newer bool) string {
	t.Helper()
	var said strings.Builder
	describe := func(m *execwirev1.FileMetadata) {
		if m == nil {
			return
		}
		fmt.Fprint(&said, m.GetType(), m.GetIsSymlink())
		if newer && m.GetType() == execwirev1.FileType_FILE_TYPE_REGULAR {
			fmt.Fprint(&said, " ", m.GetSize())
		}
	}
	names := map[string]bool{}
	for _, response := range o.responses {
		switch m := response.(type) {
		case *execwirev1.GetMetadataResponse:
			describe(m.GetMetadata())
			fmt.Fprintf(&said, " %x", m.GetSha256())
		case *execwirev1.DownloadFileResponse:
			describe(m.GetHead().GetMetadata())
			fmt.Fprintf(&said, "%x%x", m.GetData(), m.GetEnd().GetSha256())
		case *execwirev1.ReadDirectoryResponse:
			for _, e := range m.GetEntries() {
				if e.GetTargetType() != execwirev1.FileType_FILE_TYPE_UNSPECIFIED && len(e.GetRawName()) == 0 {
					names[e.GetName()+" "+e.GetTargetType().String()] = true
				}
			}
		case *execwirev1.CanonicalizePathResponse:
			fmt.Fprintf(&said, "%q %q", m.GetPath(), m.GetRawPath())
		}
	}
	fmt.Fprintf(&said, " %q", slices.Sorted(maps.Keys(names)))
	return said.String()
}

// TestFiles_RandomCalls_MatchGRPC makes random calls over gRPC on one directory and
// with the methods of the reference on another one: they come to the same files and
// reasons, or are refused before anything is done.
func TestFiles_RandomCalls_MatchGRPC(t *testing.T) {
	testrace.Slow(t)
	eachReference(t, func(t *testing.T, s *gatewayServer, conn *Conn, newer bool) {
		refused, done := map[string]int{}, map[string]int{}
		for seed := range uint64(3) {
			direct, protocol := side{s.channel, filepath.Join(t.TempDir(), "tree"), "direct-"}, side{conn, filepath.Join(t.TempDir(), "tree"), "protoc-"}
			for _, dir := range []string{direct.dir, protocol.dir} {
				if err := os.Mkdir(dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			random := &callMaker{Rand: rand.New(rand.NewPCG(seed, 9)), tag: fmt.Sprint(seed)}
			for range 200 {
				call := random.call()
				before := snapshot(t, protocol.dir)
				got := protocol.do(t.Context(), call)
				reason := errorinfo.Reason(got.err.Err())
				// An older server writes files as a whole, or not at all.
				unfinished := !newer && call.method == "UploadFile" && reason != execwirev1.ErrorReason_ERROR_REASON_UNSPECIFIED
				if unfinished || reason == execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED {
					refused[call.method]++
					if after := snapshot(t, protocol.dir); after != before {
						t.Fatalf("%v is refused (%v), and left\n%s\nof\n%s", call, got.err.Message(), after, before)
					}
					continue
				}
				done[call.method]++
				want := direct.do(t.Context(), call)
				if wanted := errorinfo.Reason(want.err.Err()); reason != wanted && !alike(reason, wanted) {
					t.Fatalf("%v\nfails with %v %v,\nover gRPC %v", call, reason, got.err, want.err)
				}
				if call.method != "WalkDirectory" && essence(t, got, newer) != essence(t, want, newer) {
					t.Fatalf("%v\nis answered with %v\n%s\nover gRPC\n%s", call, got.err, essence(t, got, newer), essence(t, want, newer))
				}
				if got, want := snapshot(t, protocol.dir), snapshot(t, direct.dir); got != want {
					t.Fatalf("after %v the directory is\n%s\nand over gRPC\n%s", call, got, want)
				}
			}
		}
		for _, method := range []string{"CreateDirectory", "GetMetadata", "ReadDirectory", "RemovePath", "CopyPath", "DownloadFile", "UploadFile", "WalkDirectory"} {
			if done[method] == 0 {
				t.Errorf("%s was never done", method)
			}
		}
		if newer && done["CanonicalizePath"] == 0 {
			t.Errorf("only %v were done", done)
		}
	})
}

// alike is whether two reasons are of one thing that a server without reasons cannot
// tell apart.
func alike(got, want execwirev1.ErrorReason) bool {
	const none = execwirev1.ErrorReason_ERROR_REASON_UNSPECIFIED
	return got == none && want == execwirev1.ErrorReason_ERROR_REASON_SANDBOX_UNAVAILABLE
}

// TestUpload_WritesOnlyInPlace are written in place, in blocks where the server has
// them, and those that would have to replace a file are refused.
func TestUpload_WritesOnlyInPlace(t *testing.T) {
	eachReference(t, func(t *testing.T, _ *gatewayServer, conn *Conn, newer bool) {
		files := execwirev1.NewFileSystemServiceClient(conn)
		path := filepath.Join(t.TempDir(), "file")
		repeats := 200_000
		if testing.Short() {
			repeats = 50_000 // 27 pieces
		}
		content := bytes.Repeat([]byte("0123456789abcdef"), repeats)
		upload := func(mode execwirev1.UploadMode, content []byte, end bool) (*execwirev1.UploadFileResponse, error) {
			stream, err := files.UploadFile(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			messages := []*execwirev1.UploadFileRequest{{Message: &execwirev1.UploadFileRequest_Head{Head: &execwirev1.UploadHead{Path: path, Mode: mode}}}}
			for piece := range slices.Chunk(content, 30_000) {
				messages = append(messages, &execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Data{Data: piece}})
			}
			if end {
				messages = append(messages, &execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_End{End: &execwirev1.UploadEnd{}}})
			}
			for _, m := range messages {
				if stream.Send(m) != nil {
					break // and receiving says why
				}
			}
			return stream.CloseAndRecv()
		}
		const replace, inPlace = execwirev1.UploadMode_UPLOAD_MODE_REPLACE, execwirev1.UploadMode_UPLOAD_MODE_IN_PLACE
		if _, err := upload(replace, content, true); errorinfo.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED {
			t.Errorf("to replace a file is %v", err)
		}
		if _, err := os.Lstat(path); err == nil {
			t.Error("it left something")
		}
		response, err := upload(inPlace, content, true)
		if err != nil || response.GetSize() != uint64(len(content)) {
			t.Fatalf("the upload is answered with %v, %v", response, err)
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%d bytes were written, %v", len(got), err)
		}
		if !newer {
			if _, err := upload(inPlace, make([]byte, maxWholeWrite+1), true); errorinfo.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_FILE_TOO_LARGE {
				t.Errorf("a large file is %v", err)
			}
			if _, err := upload(inPlace, []byte("a part"), false); errorinfo.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_UNEXPECTED_MESSAGE {
				t.Errorf("an upload without an end is %v", err)
			}
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, content) {
				t.Errorf("what was refused has left %d bytes, %v", len(got), err)
			}
		}
		download, err := files.DownloadFile(t.Context(), &execwirev1.DownloadFileRequest{Path: path, Offset: 7, WantSha256: true})
		var got []byte
		var end *execwirev1.DownloadEnd
		for err == nil {
			var m *execwirev1.DownloadFileResponse
			m, err = download.Recv()
			got = append(got, m.GetData()...)
			if m.GetEnd() != nil {
				end = m.GetEnd()
			}
		}
		digest := sha256.Sum256(content[7:])
		if !errors.Is(err, io.EOF) || !bytes.Equal(got, content[7:]) || !proto.Equal(end, &execwirev1.DownloadEnd{Sha256: digest[:]}) {
			t.Errorf("%d bytes were downloaded, %v, %v", len(got), end, err)
		}
	})
}

// TestWalk_DoesNotFollowLinks walks a tree with a link that leads up.
func TestWalk_DoesNotFollowLinks(t *testing.T) {
	eachReference(t, func(t *testing.T, _ *gatewayServer, conn *Conn, _ bool) {
		dir := t.TempDir()
		if err := errors.Join(os.MkdirAll(dir+"/b/c", 0o755), os.WriteFile(dir+"/a", nil, 0o600),
			os.WriteFile(dir+"/b/c/d", []byte("said"), 0o600), os.Symlink("..", dir+"/b/up"), os.Mkdir(dir+"/.hidden", 0o755),
			os.WriteFile(dir+"/.hidden/e", nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		stream, err := execwirev1.NewFileSystemServiceClient(conn).WalkDirectory(t.Context(), &execwirev1.WalkDirectoryRequest{Path: dir})
		var got []string
		ended := false
		for err == nil {
			var m *execwirev1.WalkDirectoryResponse
			m, err = stream.Recv()
			for _, e := range m.GetEntries().GetEntries() {
				got = append(got, e.GetPath()+" "+strings.ToLower(strings.TrimPrefix(e.GetType().String(), "FILE_TYPE_")))
			}
			ended = ended || m.GetEnd() != nil
		}
		want := []string{".hidden directory", "a regular", "b directory", ".hidden/e regular", "b/c directory", "b/up symlink", "b/c/d regular"}
		if !errors.Is(err, io.EOF) || !ended || !slices.Equal(got, want) {
			t.Errorf("got %q, %v, %v", got, ended, err)
		}
	})
}

// TestCopy_FileToItself_IsUnchanged because that would empty it.
func TestCopy_FileToItself_IsUnchanged(t *testing.T) {
	eachReference(t, func(t *testing.T, _ *gatewayServer, conn *Conn, newer bool) {
		dir := t.TempDir()
		if err := errors.Join(os.WriteFile(dir+"/file", []byte("said"), 0o600), os.Symlink(dir, dir+"/link")); err != nil {
			t.Fatal(err)
		}
		files := execwirev1.NewFileSystemServiceClient(conn)
		for _, destination := range []string{dir + "/file", dir + "/./file", dir + "/link/file"} {
			if strings.Contains(destination, "link") && !newer {
				continue // which only the newer can be asked about
			}
			if _, err := files.CopyPath(t.Context(), &execwirev1.CopyPathRequest{SourcePath: dir + "/file", DestinationPath: destination}); err != nil {
				t.Error(err)
			}
		}
		_, err := files.CopyPath(t.Context(), &execwirev1.CopyPathRequest{SourcePath: dir + "/none", DestinationPath: dir + "/none"})
		if errorinfo.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_PATH_NOT_FOUND {
			t.Errorf("a copy of nothing is %v", err)
		}
	})
}

func TestGetEnvironment(t *testing.T) {
	eachReference(t, func(t *testing.T, _ *gatewayServer, conn *Conn, newer bool) {
		got, err := execwirev1.NewEnvironmentServiceClient(conn).GetEnvironment(t.Context(), &execwirev1.GetEnvironmentRequest{})
		if err != nil || got.GetLimits() != nil || !slices.Contains(got.GetFeatures(), execwirev1.Feature_FEATURE_FILES) {
			t.Errorf("got %v, %v", got, err)
		}
		// The older one says nothing of itself.
		version, system, directory := "", "", ""
		if newer {
			version, system, directory = "test", "linux", "/"
		}
		if got.GetServerVersion() != version || got.GetOperatingSystem() != system || !strings.HasPrefix(got.GetWorkingDirectory(), directory) {
			t.Errorf("got %v", got)
		}
	})
}
