package server_test

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/sandbox"
	"github.com/execwire/execwire/internal/testproc"
)

// ordinaryUser is a user that owns no files.
const ordinaryUser = 65534

// makeReachable makes a test directory reachable for all users.
func makeReachable(t *testing.T, dir string) {
	t.Helper()
	for ; strings.HasPrefix(dir, os.TempDir()); dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err == nil && info.Mode()&0o001 == 0 {
			err = os.Chmod(dir, info.Mode()|0o011)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestConfinedFiles_ServerOfOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("run the tests as root: this one changes to another user")
	}
	dir := t.TempDir()
	makeReachable(t, dir)
	program, work := dir+"/program", dir+"/work"
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	to, err := os.OpenFile(program, os.O_WRONLY|os.O_CREATE, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(to, self)
	if err := errors.Join(err, to.Close(), os.Mkdir(work, 0o755), os.Chown(work, ordinaryUser, ordinaryUser)); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), program, "-test.v",
		"-test.run=^(TestConfinedFiles_EveryCall_IsConfined|TestConfinedFiles_LinksAndProc_DoNotEscape|TestConfinedFiles_Errors_EqualUnconfinedErrors|TestFileWorker_Killed_FailsCallsAndIsReplaced)$")
	command.Dir = work
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinaryUser, Gid: ordinaryUser}}
	command.Env = []string{testproc.NoRaceExitDelay, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + work}
	output, err := command.CombinedOutput()
	if err != nil || strings.Count(string(output), "\n--- PASS: ") != 4 {
		t.Errorf("%v:\n%s", err, output)
	}
}

// The path "link/.." is not resolved against the target of the link, and errors reveal
// nothing about it.
func TestConfinedFiles_ParentOfOutsideLink_IsDenied(t *testing.T) {
	eachSandbox(t, func(t *testing.T, sandboxes *sandbox.Sandboxes) {
		_, work, outside := makeWorkplace(t)
		if err := errors.Join(os.Mkdir(outside+"/below", 0o755), os.Symlink(outside+"/below", work+"/link")); err != nil {
			t.Fatal(err)
		}
		f, policy := newFixture(t, withSandboxes(sandboxes)), policyOf("+"+work)
		resp, err := f.files.ReadFile(f.ctx, &execwirev1.ReadFileRequest{Path: work + "/link/../file", Sandbox: policy})
		if string(resp.GetData()) == "secret" {
			t.Error("the file outside was read")
		}
		if err != nil {
			expectRefused(t, "read", err)
		}
		_, _ = f.files.WriteFile(f.ctx, &execwirev1.WriteFileRequest{Path: work + "/link/../file", Data: []byte("x"), Sandbox: policy})
		_, _ = f.files.RemovePath(f.ctx, &execwirev1.RemovePathRequest{Path: work + "/link/../file", Sandbox: policy})
		if content, err := os.ReadFile(outside + "/file"); err != nil || string(content) != "secret" {
			t.Errorf("outside is %q, %v", content, err)
		}
		for _, path := range []string{work + "/link", work + "/link/.."} {
			stream, err := f.files.WatchDirectory(f.ctx, &execwirev1.WatchDirectoryRequest{Path: path, Sandbox: policy})
			if err == nil {
				_, err = stream.Recv()
			}
			if err != nil {
				expectRefused(t, "watch "+path, err)
			} else if path == work+"/link" {
				t.Error("the directory outside is watched")
			}
		}
	})
}

// An idle handle is closed in the worker too, which can then be evicted.
func TestConfinedHandles_Idle_AreClosed(t *testing.T) {
	_, work, outside := makeWorkplace(t)
	f := newFixture(t, withSandboxes(sandboxesWithout(t, sandbox.Bubblewrap)), func(s *settings) {
		s.limits.FileWorkers, s.limits.FileHandleIdleTime = 1, durationpb.New(10*time.Millisecond)
	})
	open := &execwirev1.OpenFileRequest{HandleId: "h", Path: work + "/file", Mode: execwirev1.OpenMode_OPEN_MODE_READ, Sandbox: policyOf(work)}
	if _, err := f.files.OpenFile(f.ctx, open); err != nil {
		t.Fatal(err)
	}
	for {
		_, err := f.files.ReadFile(f.ctx, &execwirev1.ReadFileRequest{Path: outside + "/file", Sandbox: policyOf(outside)})
		if err == nil {
			break
		}
		expectFailure(t, err, codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_FILE_WORKERS)
	}
	_, err := f.files.ReadBlock(f.ctx, &execwirev1.ReadBlockRequest{HandleId: "h", Length: 1})
	expectFailure(t, err, codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_FILE_HANDLE_NOT_FOUND)
}

// A caller finds a worker's handle only in its own session, neither by the client's id nor
// by the worker's.
func TestConfinedHandles_OtherSession_AreNotFound(t *testing.T) {
	_, work, _ := makeWorkplace(t)
	f := newFixture(t, withSandboxes(sandboxesWithout(t, sandbox.Bubblewrap)))
	open := func(id, session string, p *execwirev1.SandboxPolicy) error {
		_, err := f.files.OpenFile(f.ctx, &execwirev1.OpenFileRequest{HandleId: id, SessionId: session,
			Path: work + "/file", Mode: execwirev1.OpenMode_OPEN_MODE_READ, Sandbox: p})
		return err
	}
	leased := f.attach(&execwirev1.SessionAttach{}).attached.GetSession().GetSessionId()
	if err := errors.Join(open("mine", leased, policyOf(work)), open("other", "", policyOf(work))); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ id, session string }{{"mine", ""}, {"other", leased}, {"1", ""}, {"2", ""}, {"1", leased}, {"2", leased}} {
		_, err := f.files.ReadBlock(f.ctx, &execwirev1.ReadBlockRequest{HandleId: tt.id, SessionId: tt.session, Length: 1})
		expectFailure(t, err, codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_FILE_HANDLE_NOT_FOUND)
		if _, err := f.files.CloseFile(f.ctx, &execwirev1.CloseFileRequest{HandleId: tt.id, SessionId: tt.session}); err != nil {
			t.Error(err)
		}
	}
	for id, session := range map[string]string{"mine": leased, "other": ""} {
		if _, err := f.files.ReadBlock(f.ctx, &execwirev1.ReadBlockRequest{HandleId: id, SessionId: session, Length: 1}); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
}
