package server_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/auth"
)

const (
	toRead    = execwirev1.OpenMode_OPEN_MODE_READ
	toReplace = execwirev1.OpenMode_OPEN_MODE_REPLACE

	noHandle = execwirev1.ErrorReason_ERROR_REASON_FILE_HANDLE_NOT_FOUND
)

// openFile opens a file in a session.
func (f *fixture) openFile(session, id, path string, mode execwirev1.OpenMode) {
	f.t.Helper()
	resp, err := f.files.OpenFile(f.ctx, &execwirev1.OpenFileRequest{SessionId: session, HandleId: id, Path: path, Mode: mode})
	if err != nil || resp.GetMetadata().GetType() != regular {
		f.t.Fatalf("OpenFile: %v, %v", resp, err)
	}
}

func (f *fixture) readBlock(session, id string, offset uint64, length uint32) (*execwirev1.ReadBlockResponse, error) {
	return f.files.ReadBlock(f.ctx, &execwirev1.ReadBlockRequest{SessionId: session, HandleId: id, Offset: offset, Length: length})
}

func TestFileHandles_ReadWriteClose(t *testing.T) {
	f := newFixture(t)
	path := t.TempDir() + "/f"
	f.openFile("", "w", path, toReplace)
	for i, data := range []string{"0123", "4567", "89"} {
		req := &execwirev1.WriteBlockRequest{SessionId: "default", HandleId: "w", Offset: uint64(4 * i), Data: []byte(data)}
		if _, err := f.files.WriteBlock(f.ctx, req); err != nil {
			t.Fatal(err)
		}
	}
	f.openFile("", "r", path, toRead)
	for _, tt := range []struct {
		offset uint64
		length uint32
		want   string
		eof    bool
	}{{0, 4, "0123", false}, {6, 4, "6789", false}, {8, 4, "89", true}, {99, 1, "", true}, {0, 1 << 20, "0123456789", true}} {
		resp, err := f.readBlock("", "r", tt.offset, tt.length)
		if err != nil || string(resp.GetData()) != tt.want || resp.GetEof() != tt.eof {
			t.Errorf("at %d: %v, %v", tt.offset, resp, err)
		}
	}
	_, err := f.readBlock("", "w", 0, 1)
	expectFailure(t, err, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_FILE_SYSTEM_FAILED)
	_, err = f.files.OpenFile(f.ctx, &execwirev1.OpenFileRequest{HandleId: "r", Path: path, Mode: toRead})
	expectFailure(t, err, codes.AlreadyExists, execwirev1.ErrorReason_ERROR_REASON_FILE_HANDLE_ALREADY_EXISTS)
	for range 2 {
		for _, id := range []string{"r", "w"} {
			if _, err := f.files.CloseFile(f.ctx, &execwirev1.CloseFileRequest{HandleId: id}); err != nil {
				t.Error(err)
			}
		}
	}
	_, err = f.readBlock("", "r", 0, 1)
	expectFailure(t, err, codes.NotFound, noHandle)
	_, err = f.files.WriteBlock(f.ctx, &execwirev1.WriteBlockRequest{HandleId: "w", Data: []byte("x")})
	expectFailure(t, err, codes.NotFound, noHandle)
}

func TestFileHandles_MalformedRequest_NamesField(t *testing.T) {
	f := newFixture(t)
	long := strings.Repeat("x", 129)
	open := func(change func(*execwirev1.OpenFileRequest)) error {
		req := &execwirev1.OpenFileRequest{HandleId: "h", Path: "/", Mode: toRead}
		change(req)
		_, err := f.files.OpenFile(f.ctx, req)
		return err
	}
	read := func(change func(*execwirev1.ReadBlockRequest)) error {
		req := &execwirev1.ReadBlockRequest{HandleId: "h", Length: 1}
		change(req)
		_, err := f.files.ReadBlock(f.ctx, req)
		return err
	}
	write := func(change func(*execwirev1.WriteBlockRequest)) error {
		req := &execwirev1.WriteBlockRequest{HandleId: "h", Data: []byte("x")}
		change(req)
		_, err := f.files.WriteBlock(f.ctx, req)
		return err
	}
	for _, tt := range []struct {
		field string
		err   error
	}{
		{"handle_id", open(func(m *execwirev1.OpenFileRequest) { m.HandleId = "" })},
		{"handle_id", open(func(m *execwirev1.OpenFileRequest) { m.HandleId = long })},
		{"session_id", open(func(m *execwirev1.OpenFileRequest) { m.SessionId = strings.Repeat(long, 2) })},
		{"path", open(func(m *execwirev1.OpenFileRequest) { m.Path = "f" })},
		{"mode", open(func(m *execwirev1.OpenFileRequest) { m.Mode = 0 })},
		{"mode", open(func(m *execwirev1.OpenFileRequest) { m.Mode = 3 })},
		{"length", read(func(m *execwirev1.ReadBlockRequest) { m.Length = 0 })},
		{"length", read(func(m *execwirev1.ReadBlockRequest) { m.Length = 1<<20 + 1 })},
		{"offset", read(func(m *execwirev1.ReadBlockRequest) { m.Offset = 1 << 63 })},
		{"data", write(func(m *execwirev1.WriteBlockRequest) { m.Data = nil })},
		{"data", write(func(m *execwirev1.WriteBlockRequest) { m.Data = make([]byte, 1<<20+1) })},
		{"offset", write(func(m *execwirev1.WriteBlockRequest) { m.Offset = 1 << 63 })},
	} {
		expectFailure(t, tt.err, codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
		if got := violatedField(tt.err); got != tt.field {
			t.Errorf("the violated field is %s, want %s: %v", got, tt.field, tt.err)
		}
	}
}

func TestFileHandles_LimitPerSession(t *testing.T) {
	f := newFixture(t, func(s *settings) { s.limits.FileHandlesPerSession = 3 })
	path := t.TempDir() + "/f"
	f.write(path, "content")
	a := f.attach(&execwirev1.SessionAttach{})
	leased := a.attached.GetSession().GetSessionId()
	for _, session := range []string{"", leased} {
		for i := range 3 {
			f.openFile(session, fmt.Sprint(i), path, toRead)
		}
		_, err := f.files.OpenFile(f.ctx, &execwirev1.OpenFileRequest{SessionId: session, HandleId: "more", Path: path, Mode: toRead})
		expectFailure(t, err, codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_FILE_HANDLES)
	}
}

// countDescriptors returns how many descriptors of this process refer to a path.
func countDescriptors(t *testing.T, path string) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(slices.DeleteFunc(entries, func(e os.DirEntry) bool {
		target, _ := os.Readlink("/proc/self/fd/" + e.Name())
		return target != path
	}))
}

func TestFileHandles_SessionCloses_CloseToo(t *testing.T) {
	f := newFixture(t)
	path := t.TempDir() + "/f"
	f.write(path, "content")
	a := f.attach(&execwirev1.SessionAttach{})
	leased := a.attached.GetSession().GetSessionId()
	f.openFile(leased, "h", path, toRead)
	f.openFile("", "h", path, toRead)
	if n := countDescriptors(t, path); n != 2 {
		t.Errorf("%d descriptors are open, want one of each session", n)
	}
	for i, session := range []string{leased, "default"} {
		if _, err := f.leases.CloseSession(f.ctx, &execwirev1.CloseSessionRequest{SessionId: session}); err != nil {
			t.Fatal(err)
		}
		if n := countDescriptors(t, path); n != 1-i {
			t.Errorf("%d descriptors are open after the end of session %q", n, session)
		}
	}
	_, err := f.readBlock("", "h", 0, 1)
	expectFailure(t, err, codes.NotFound, noHandle)
	_, err = f.readBlock(leased, "h", 0, 1)
	expectFailure(t, err, codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND)
}

// A default session has no lease, so its idle handles are closed.
func TestFileHandles_IdleInDefaultSession_Close(t *testing.T) {
	f := newFixture(t, func(s *settings) { s.limits.FileHandleIdleTime = durationpb.New(time.Millisecond) })
	path := t.TempDir() + "/f"
	f.write(path, "content")
	a := f.attach(&execwirev1.SessionAttach{})
	leased := a.attached.GetSession().GetSessionId()
	f.openFile(leased, "h", path, toRead)
	f.openFile("", "h", path, toRead)
	for countDescriptors(t, path) > 1 {
		if f.ctx.Err() != nil {
			t.Fatal("the idle handle stays open")
		}
		time.Sleep(time.Millisecond)
	}
	if _, err := f.readBlock(leased, "h", 0, 1); err != nil {
		t.Errorf("the handle in the session with a lease: %v", err)
	}
}

func TestFileHandles_OtherPrincipal_AreNotFound(t *testing.T) {
	caller := auth.Principal{Name: "ann"}
	f := newFixture(t, func(s *settings) { s.principal = func() auth.Principal { return caller } })
	path := t.TempDir() + "/f"
	f.write(path, "content")
	a := f.attach(&execwirev1.SessionAttach{})
	leased := a.attached.GetSession().GetSessionId()
	f.openFile(leased, "h", path, toRead)
	f.openFile("", "h", path, toRead)
	caller = auth.Principal{Name: "bob"}
	_, err := f.readBlock("", "h", 0, 1)
	expectFailure(t, err, codes.NotFound, noHandle)
	_, err = f.readBlock(leased, "h", 0, 1)
	expectFailure(t, err, codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND)
}
