package server_test

import (
	"bytes"
	"io"
	"os"
	"runtime"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/sandbox"
	"github.com/execwire/execwire/internal/testrace"
)

// Neither the server nor the worker, which has the same limits, keeps a whole stream in memory.
func TestConfinedFiles_LargeStreams_BoundMemory(t *testing.T) {
	testrace.Slow(t)
	const size, most = 200 << 20, 64 << 20
	_, work, _ := makeWorkplace(t)
	f, policy := newFixture(t, withSandboxes(sandboxesWithout(t, sandbox.Bubblewrap))), policyOf("+"+work)
	grown := growth()
	stream, err := f.files.UploadFile(f.ctx)
	if err != nil {
		t.Fatal(err)
	}
	send := func(m *execwirev1.UploadFileRequest) {
		if err := stream.Send(m); err != nil {
			_, err = stream.CloseAndRecv()
			t.Fatal(err)
		}
	}
	send(&execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Head{Head: &execwirev1.UploadHead{
		Path: work + "/large", Mode: execwirev1.UploadMode_UPLOAD_MODE_REPLACE, Sandbox: policy}}})
	piece := bytes.Repeat([]byte("execwire"), 32<<10)
	for range size / len(piece) {
		send(&execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Data{Data: piece}})
	}
	send(&execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_End{End: &execwirev1.UploadEnd{}}})
	if resp, err := stream.CloseAndRecv(); err != nil || resp.GetSize() != size {
		t.Fatalf("%v, %v", resp, err)
	}
	download, err := f.files.DownloadFile(f.ctx, &execwirev1.DownloadFileRequest{Path: work + "/large", Sandbox: policy})
	if err != nil {
		t.Fatal(err)
	}
	got := 0
	for {
		m, err := download.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got += len(m.GetData())
	}
	if got != size {
		t.Errorf("received %d bytes", got)
	}
	if bytes := grown(); bytes > most {
		t.Errorf("memory has grown by %d bytes", bytes)
	}
	if err := os.Remove(work + "/large"); err != nil {
		t.Fatal(err)
	}
}

// growth returns a function that reports by how much the memory obtained from the system
// has grown since.
func growth() func() uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	return func() uint64 {
		runtime.ReadMemStats(&after)
		return after.Sys - before.Sys
	}
}

func TestCloseSession_EndsFileWorkers(t *testing.T) {
	eachSandbox(t, func(t *testing.T, sandboxes *sandbox.Sandboxes) {
		_, work, _ := makeWorkplace(t)
		f, policy := newFixture(t, withSandboxes(sandboxes)), policyOf("+"+work)
		id := f.attach(&execwirev1.SessionAttach{}).attached.GetSession().GetSessionId()
		open := &execwirev1.OpenFileRequest{HandleId: "h", SessionId: id, Path: work + "/file", Mode: execwirev1.OpenMode_OPEN_MODE_READ, Sandbox: policy}
		if _, err := f.files.OpenFile(f.ctx, open); err != nil {
			t.Fatal(err)
		}
		if pids := workersOf(t); len(pids) != 1 {
			t.Errorf("workers: %v", pids)
		}
		if _, err := f.leases.CloseSession(f.ctx, &execwirev1.CloseSessionRequest{SessionId: id}); err != nil {
			t.Fatal(err)
		}
		for len(workersOf(t)) > 0 {
			if f.ctx.Err() != nil {
				t.Fatal("the worker still runs")
			}
		}
		if _, err := f.files.OpenFile(f.ctx, open); status.Code(err) == codes.OK {
			t.Error("a closed session opened a file")
		}
	})
}

func TestCloseSession_EndsConfinedCalls(t *testing.T) {
	_, work, _ := makeWorkplace(t)
	f, policy := newFixture(t, withSandboxes(sandboxesWithout(t, sandbox.Landlock))), policyOf("+"+work)
	stream, err := f.files.WatchDirectory(f.ctx, &execwirev1.WatchDirectoryRequest{Path: work, Sandbox: policy})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := f.sessions.Close(f.ctx); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = stream.Recv()
	}
	expectFailure(t, err, codes.Aborted, execwirev1.ErrorReason_ERROR_REASON_SESSION_CLOSED)
}
