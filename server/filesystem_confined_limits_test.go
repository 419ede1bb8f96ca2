package server_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"golang.org/x/sys/unix"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/sandbox"
)

func expectSame(t *testing.T, what string, got, want error) {
	t.Helper()
	if status.Code(want) == codes.OK || !proto.Equal(status.Convert(got).Proto(), status.Convert(want).Proto()) {
		t.Errorf("%s fails with %v, want %v", what, got, want)
	}
}

// The limits apply to a principal's watches in all workers and outside of them.
func TestConfinedWatches_CountTowardsPrincipalLimit(t *testing.T) {
	_, work, _ := makeWorkplace(t)
	f := newFixture(t, withSandboxes(sandboxesWithout(t, sandbox.Bubblewrap)), func(s *settings) { s.limits.WatchesPerPrincipal, s.limits.AwaitedPathsPerPrincipal = 3, 3 })
	policies := []*execwirev1.SandboxPolicy{policyOf(work), policyOf("+" + work), nil}
	watch := func(p *execwirev1.SandboxPolicy) *execwirev1.WatchDirectoryRequest {
		return &execwirev1.WatchDirectoryRequest{Path: work, Sandbox: p}
	}
	await := func(p *execwirev1.SandboxPolicy) *execwirev1.AwaitPathsRequest {
		return &execwirev1.AwaitPathsRequest{Missing: []*execwirev1.AwaitedPath{{Path: work + "/none"}}, Sandbox: p}
	}
	ctx, cancel := context.WithCancelCause(f.ctx)
	for i, p := range policies {
		of := f.ctx
		if i == 0 {
			of = ctx
		}
		f.watchDirectory(of, watch(p))
		stream, err := f.files.AwaitPaths(of, await(p))
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	other := policyOf(work, "/proc/self")
	expectFailure(t, f.watchError(watch(nil)), codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_WATCHES)
	for name, p := range map[string]*execwirev1.SandboxPolicy{"the same worker": policies[0], "another": other} {
		expectSame(t, "a watch in "+name, f.watchError(watch(p)), f.watchError(watch(nil)))
		expectSame(t, "a wait in "+name, f.awaitError(await(p)), f.awaitError(await(nil)))
	}
	cancel(errors.New("the test cancels the first calls"))
	for f.watchError(watch(other)) != nil || f.awaitError(await(other)) != nil { // until the first calls have ended
		if f.ctx.Err() != nil {
			t.Fatal("the ended watches still count")
		}
	}
}

// The limit applies to a principal's open upload streams in all workers and outside of
// them. What is kept of an upload without a stream does not count.
func TestConfinedUploads_CountTowardsPrincipalLimit(t *testing.T) {
	_, work, _ := makeWorkplace(t)
	f := newFixture(t, withSandboxes(sandboxesWithout(t, sandbox.Bubblewrap)), func(s *settings) { s.limits.UploadsPerPrincipal = 3 })
	head := func(id string, offset uint64, p *execwirev1.SandboxPolicy) *execwirev1.UploadFileRequest {
		return replaceHead(work+"/"+id, func(h *execwirev1.UploadHead) { h.UploadId, h.Offset, h.Sandbox = id, offset, p })
	}
	first, second := policyOf("+"+work), policyOf("+"+work, "/proc/self")
	sending := func(received uint64, id string, offset uint64, p *execwirev1.SandboxPolicy) (end func()) {
		return f.sending(received, head(id, offset, p), uploadData([]byte("x")))
	}
	refused := func() {
		t.Helper()
		_, want := f.upload(head("more", 0, nil), uploadEnd(nil))
		expectFailure(t, want, codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_UPLOADS)
		for i, p := range []*execwirev1.SandboxPolicy{first, second} {
			_, err := f.upload(head("more", 0, p), uploadEnd(nil))
			expectSame(t, fmt.Sprint("an upload to worker ", i), err, want)
		}
	}
	free := func() { // waits until ended streams no longer count
		t.Helper()
		for {
			if _, err := f.upload(head("probe", 0, nil), uploadEnd(nil)); err == nil {
				return
			}
			if f.ctx.Err() != nil {
				t.Fatal("streams that ended still count")
			}
		}
	}
	a, b, c := sending(1, "a", 0, first), sending(1, "b", 0, second), sending(1, "c", 0, nil)
	refused()
	a()
	free()
	again := sending(2, "a", 1, first) // resumes the upload
	refused()
	again()
	free()
	if _, err := f.upload(head("a", 2, first), uploadEnd(nil)); err != nil {
		t.Fatal(err)
	}
	free()
	d := sending(1, "d", 0, second) // replaces the completed upload
	refused()
	for _, pid := range workersOf(t) {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	for { // until the server has noticed that the workers ended
		_, err := f.upload(head("e", 0, first), uploadEnd(nil))
		if err == nil {
			break
		}
		if f.ctx.Err() != nil {
			t.Fatal("the killed workers' uploads still count", err)
		}
		time.Sleep(time.Millisecond)
	}
	ends := []func(){sending(1, "f", 0, first), sending(1, "g", 0, second)}
	refused()
	for _, end := range append(ends, b, c, d) {
		end()
	}
}

// Uploads without a stream do not prevent the eviction of workers, nor new uploads of
// their principal.
func TestConfinedUploads_Abandoned_DoNotBlockNewOnes(t *testing.T) {
	dir, _, _ := makeWorkplace(t)
	f := newFixture(t, withSandboxes(sandboxesWithout(t, sandbox.Bubblewrap)), func(s *settings) {
		s.limits.UploadsPerPrincipal, s.limits.AbandonedUploads, s.limits.FileWorkers = 2, 2, 2
	})
	for i := range 6 {
		work := fmt.Sprint(dir, "/", i)
		if err := os.Mkdir(work, 0o755); err != nil {
			t.Fatal(err)
		}
		for j := range 3 {
			id := fmt.Sprint(i, "-", j)
			f.cut(1, replaceHead(work+"/f", func(h *execwirev1.UploadHead) { h.UploadId, h.Sandbox = id, policyOf("+"+work) }), uploadData([]byte("x")))
		}
		if _, err := f.upload(replaceHead(work+"/f", func(h *execwirev1.UploadHead) {
			h.UploadId, h.Offset, h.Sandbox = fmt.Sprint(i, "-2"), 1, policyOf("+"+work)
		}), uploadEnd(nil)); err != nil {
			t.Error(err)
		}
	}
}

// Concurrent calls in more workspaces than there may be workers wait for a worker and do
// not fail.
func TestWorkers_MoreWorkspacesThanWorkers_TakeTurns(t *testing.T) {
	dir, _, _ := makeWorkplace(t)
	f := newFixture(t, withSandboxes(sandboxesWithout(t, sandbox.Bubblewrap)), func(s *settings) { s.limits.FileWorkers = 2 })
	var callers sync.WaitGroup
	for i := range 6 {
		work := fmt.Sprint(dir, "/", i)
		if err := os.Mkdir(work, 0o755); err != nil {
			t.Fatal(err)
		}
		writeTestFile(t, work+"/file", work)
		callers.Go(func() {
			for range 3 {
				resp, err := f.files.ReadFile(f.ctx, &execwirev1.ReadFileRequest{Path: work + "/file", Sandbox: policyOf("+" + work)})
				if err != nil || string(resp.GetData()) != work {
					t.Errorf("%s: %q, %v", work, resp.GetData(), err)
				}
			}
		})
	}
	callers.Wait()
}
