package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/sandbox"
)

// eachSandbox runs a test with each backend. Every backend must work.
func eachSandbox(t *testing.T, test func(t *testing.T, sandboxes *sandbox.Sandboxes)) {
	t.Helper()
	for _, others := range []sandbox.Backend{sandbox.Landlock, sandbox.Bubblewrap} {
		t.Run("without "+others.String(), func(t *testing.T) { test(t, sandboxesWithout(t, others)) })
	}
}

func sandboxesWithout(t *testing.T, backend sandbox.Backend) *sandbox.Sandboxes {
	t.Helper()
	sandboxes := sandbox.New(sandbox.Options{Without: []sandbox.Backend{backend}})
	t.Cleanup(sandboxes.Close)
	for _, s := range sandboxes.Statuses() {
		if s.Backend != backend && s.Err != nil {
			t.Fatal(s.Backend, s.Err)
		}
	}
	return sandboxes
}

func withSandboxes(sandboxes *sandbox.Sandboxes) func(*settings) {
	return func(s *settings) { s.sandboxes = sandboxes }
}

// policyOf grants read access to paths, and write access to those that begin with "+".
func policyOf(paths ...string) *execwirev1.SandboxPolicy {
	var entries []*execwirev1.SandboxEntry
	for _, path := range paths {
		entry := &execwirev1.SandboxEntry{Access: execwirev1.SandboxAccess_SANDBOX_ACCESS_READ, Place: &execwirev1.SandboxEntry_Path{Path: path}}
		if writable, is := strings.CutPrefix(path, "+"); is {
			entry.Access, entry.Place = execwirev1.SandboxAccess_SANDBOX_ACCESS_WRITE, &execwirev1.SandboxEntry_Path{Path: writable}
		}
		entries = append(entries, entry)
	}
	restricted := &execwirev1.RestrictedFileSystem{Entries: entries}
	return &execwirev1.SandboxPolicy{Policy: &execwirev1.SandboxPolicy_Managed{Managed: &execwirev1.ManagedSandbox{
		FileSystem: &execwirev1.FileSystemPolicy{Policy: &execwirev1.FileSystemPolicy_Restricted{Restricted: restricted}}}}}
}

// makeWorkplace creates the directories "work", which tests grant, and "outside", which they
// do not, each with a file.
func makeWorkplace(t *testing.T) (dir, work, outside string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	work, outside = dir+"/work", dir+"/outside"
	for _, d := range []string{work, outside, work + "/empty"} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	writeTestFile(t, work+"/file", "inside")
	writeTestFile(t, outside+"/file", "secret")
	return dir, work, outside
}

func writeTestFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// fileCalls make each file call with a policy on paths below a directory and return the
// error. Streams are read to the end.
var fileCalls = map[string]func(f *fixture, policy *execwirev1.SandboxPolicy, at string) error{
	"ReadFile": func(f *fixture, p *execwirev1.SandboxPolicy, at string) error {
		_, err := f.files.ReadFile(f.ctx, &execwirev1.ReadFileRequest{Path: at + "/file", Sandbox: p})
		return err
	},
	"DownloadFile": func(f *fixture, p *execwirev1.SandboxPolicy, at string) error {
		stream, err := f.files.DownloadFile(f.ctx, &execwirev1.DownloadFileRequest{Path: at + "/file", Sandbox: p})
		return drained(stream, err)
	},
	"WriteFile": func(f *fixture, p *execwirev1.SandboxPolicy, at string) error {
		_, err := f.files.WriteFile(f.ctx, &execwirev1.WriteFileRequest{Path: at + "/new", Sandbox: p})
		return err
	},
	"UploadFile": func(f *fixture, p *execwirev1.SandboxPolicy, at string) error {
		_, err := uploadThrough(f, &execwirev1.UploadHead{Path: at + "/up", Sandbox: p, UploadId: "all",
			Mode: execwirev1.UploadMode_UPLOAD_MODE_REPLACE}, []byte("x"))
		return err
	},
	"GetUpload": func(f *fixture, p *execwirev1.SandboxPolicy, at string) error {
		if _, err := uploadThrough(f, &execwirev1.UploadHead{Path: at + "/get", Sandbox: p, UploadId: "get",
			Mode: execwirev1.UploadMode_UPLOAD_MODE_REPLACE}, []byte("x")); err != nil {
			return err
		}
		_, err := f.files.GetUpload(f.ctx, &execwirev1.GetUploadRequest{UploadId: "get"})
		return err
	},
	"SignFileURL": func(f *fixture, _ *execwirev1.SandboxPolicy, at string) error {
		_, err := f.files.SignFileURL(f.ctx, &execwirev1.SignFileURLRequest{Path: at + "/file", Method: execwirev1.FileURLMethod_FILE_URL_METHOD_GET})
		return err
	},
	"CreateDirectory": func(f *fixture, p *execwirev1.SandboxPolicy, at string) error {
		_, err := f.files.CreateDirectory(f.ctx, &execwirev1.CreateDirectoryRequest{Path: at + "/made", Sandbox: p})
		return err
	},
	"GetMetadata": func(f *fixture, p *execwirev1.SandboxPolicy, at string) error {
		_, err := f.files.GetMetadata(f.ctx, &execwirev1.GetMetadataRequest{Path: at + "/file", Sandbox: p, WantSha256: true})
		return err
	},
	"SetMetadata": func(f *fixture, p *execwirev1.SandboxPolicy, at string) error {
		_, err := f.files.SetMetadata(f.ctx, &execwirev1.SetMetadataRequest{Path: at + "/file", Sandbox: p, Touch: true})
		return err
	},
	"ReadDirectory": func(f *fixture, p *execwirev1.SandboxPolicy, at string) error {
		stream, err := f.files.ReadDirectory(f.ctx, &execwirev1.ReadDirectoryRequest{Path: at, Sandbox: p})
		return drained(stream, err)
	},
	"RemovePath": func(f *fixture, p *execwirev1.SandboxPolicy, at string) error {
		_, err := f.files.RemovePath(f.ctx, &execwirev1.RemovePathRequest{Path: at + "/gone", Sandbox: p})
		return err
	},
	"CopyPath": func(f *fixture, p *execwirev1.SandboxPolicy, at string) error {
		_, err := f.files.CopyPath(f.ctx, &execwirev1.CopyPathRequest{SourcePath: at + "/file", DestinationPath: at + "/copy", Sandbox: p})
		return err
	},
	"RenamePath": func(f *fixture, p *execwirev1.SandboxPolicy, at string) error {
		_, err := f.files.RenamePath(f.ctx, &execwirev1.RenamePathRequest{SourcePath: at + "/old", DestinationPath: at + "/renamed", Sandbox: p})
		return err
	},
	"CreateSymlink": func(f *fixture, p *execwirev1.SandboxPolicy, at string) error {
		_, err := f.files.CreateSymlink(f.ctx, &execwirev1.CreateSymlinkRequest{Path: at + "/link", Target: "file", Sandbox: p})
		return err
	},
	"CanonicalizePath": func(f *fixture, p *execwirev1.SandboxPolicy, at string) error {
		_, err := f.files.CanonicalizePath(f.ctx, &execwirev1.CanonicalizePathRequest{Path: at + "/file", Sandbox: p})
		return err
	},
	"OpenFile": func(f *fixture, p *execwirev1.SandboxPolicy, at string) error {
		return useHandle(f, p, at, "opened")
	},
	"ReadBlock": func(f *fixture, p *execwirev1.SandboxPolicy, at string) error {
		return useHandle(f, p, at, "read")
	},
	"WriteBlock": func(f *fixture, p *execwirev1.SandboxPolicy, at string) error {
		return useHandle(f, p, at, "written")
	},
	"CloseFile": func(f *fixture, p *execwirev1.SandboxPolicy, at string) error {
		return useHandle(f, p, at, "closed")
	},
	"WalkDirectory": func(f *fixture, p *execwirev1.SandboxPolicy, at string) error {
		stream, err := f.files.WalkDirectory(f.ctx, &execwirev1.WalkDirectoryRequest{Path: at, Sandbox: p})
		return drained(stream, err)
	},
	"WatchDirectory": func(f *fixture, p *execwirev1.SandboxPolicy, at string) error {
		ctx, cancel := context.WithCancel(f.ctx)
		defer cancel()
		stream, err := f.files.WatchDirectory(ctx, &execwirev1.WatchDirectoryRequest{Path: at, Sandbox: p})
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	},
	"AwaitPaths": func(f *fixture, p *execwirev1.SandboxPolicy, at string) error {
		stream, err := f.files.AwaitPaths(f.ctx, &execwirev1.AwaitPathsRequest{Sandbox: p,
			Missing: []*execwirev1.AwaitedPath{{Path: at + "/file"}}})
		return drained(stream, err)
	},
}

func drained[M any](stream interface{ Recv() (M, error) }, err error) error {
	for err == nil {
		_, err = stream.Recv()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func uploadThrough(f *fixture, head *execwirev1.UploadHead, pieces ...[]byte) (*execwirev1.UploadFileResponse, error) {
	stream, err := f.files.UploadFile(f.ctx)
	if err != nil {
		return nil, err
	}
	messages := []*execwirev1.UploadFileRequest{{Message: &execwirev1.UploadFileRequest_Head{Head: head}}}
	for _, piece := range pieces {
		messages = append(messages, &execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Data{Data: piece}})
	}
	for _, m := range append(messages, &execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_End{End: &execwirev1.UploadEnd{}}}) {
		if stream.Send(m) != nil {
			break
		}
	}
	return stream.CloseAndRecv()
}

func useHandle(f *fixture, p *execwirev1.SandboxPolicy, at, id string) error {
	mode := execwirev1.OpenMode_OPEN_MODE_READ
	if id == "written" {
		mode = execwirev1.OpenMode_OPEN_MODE_REPLACE
	}
	if _, err := f.files.OpenFile(f.ctx, &execwirev1.OpenFileRequest{HandleId: id, Path: at + "/handled", Mode: mode, Sandbox: p}); err != nil {
		return err
	}
	var err error
	if id == "written" {
		_, err = f.files.WriteBlock(f.ctx, &execwirev1.WriteBlockRequest{HandleId: id, Data: []byte("block")})
	} else {
		_, err = f.files.ReadBlock(f.ctx, &execwirev1.ReadBlockRequest{HandleId: id, Length: 10})
	}
	_, closeErr := f.files.CloseFile(f.ctx, &execwirev1.CloseFileRequest{HandleId: id})
	return errors.Join(err, closeErr)
}

// expectRefused checks that an error is a denial and not a failure of the server.
func expectRefused(t *testing.T, what string, err error) {
	t.Helper()
	switch status.Code(err) {
	case codes.NotFound, codes.PermissionDenied, codes.FailedPrecondition:
	default:
		t.Errorf("%s: %v", what, err)
	}
}

// The policy of the call, or the one that the server requires, applies to every file call:
// it succeeds inside and fails outside.
func TestConfinedFiles_EveryCall_IsConfined(t *testing.T) {
	eachSandbox(t, func(t *testing.T, sandboxes *sandbox.Sandboxes) {
		for _, required := range []bool{false, true} {
			t.Run("required "+strconv.FormatBool(required), func(t *testing.T) {
				_, work, outside := makeWorkplace(t)
				for _, dir := range []string{work, outside} {
					writeTestFile(t, dir+"/gone", "")
					writeTestFile(t, dir+"/old", "")
					writeTestFile(t, dir+"/handled", "content")
				}
				policy := policyOf("+" + work)
				f := newFixture(t, withSandboxes(sandboxes), func(s *settings) {
					if required {
						s.required, policy = policy, nil
					}
				})
				methods := execwirev1.File_execwire_v1_filesystem_proto.Services().ByName("FileSystemService").Methods()
				for i := range methods.Len() {
					name := string(methods.Get(i).Name())
					call := fileCalls[name]
					if call == nil {
						t.Fatalf("no test calls %s", name)
					}
					err := call(f, policy, work)
					switch {
					case name == "SetMetadata" && sandboxes.Statuses()[0].Err != nil: // Landlock freezes metadata
						expectRefused(t, name+" inside", err)
					case err != nil:
						t.Errorf("%s inside: %v", name, err)
					}
					// AwaitPaths treats hidden paths as missing, Landlock does not hide names, and
					// requests by a signed URL are confined.
					if name != "SignFileURL" && name != "AwaitPaths" && name != "CanonicalizePath" {
						expectRefused(t, name+" outside", call(f, policy, outside))
					}
				}
				for _, name := range []string{"new", "up", "get", "made", "copy", "renamed", "link"} {
					if _, err := os.Lstat(outside + "/" + name); err == nil {
						t.Errorf("%s was created outside", name)
					}
				}
				if entries := len(f.sessionsOf(t)); entries > 1 {
					t.Errorf("%d sessions", entries)
				}
			})
		}
	})
}

func (f *fixture) sessionsOf(t *testing.T) []*execwirev1.Session {
	t.Helper()
	resp, err := f.leases.ListSessions(f.ctx, &execwirev1.ListSessionsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetSessions()
}

func TestConfinedFiles_LinksAndProc_DoNotEscape(t *testing.T) {
	eachSandbox(t, func(t *testing.T, sandboxes *sandbox.Sandboxes) {
		dir, work, outside := makeWorkplace(t)
		if err := errors.Join(os.Symlink(outside, work+"/link"), os.Symlink(outside+"/file", work+"/direct")); err != nil {
			t.Fatal(err)
		}
		f, policy := newFixture(t, withSandboxes(sandboxes)), policyOf("+"+work)
		for _, path := range []string{work + "/link/file", work + "/direct", work + "/../outside/file", "/proc/1/root" + outside + "/file",
			"/proc/" + strconv.Itoa(os.Getpid()) + "/environ", "/proc/" + strconv.Itoa(os.Getpid()) + "/root" + outside + "/file"} {
			_, err := f.files.ReadFile(f.ctx, &execwirev1.ReadFileRequest{Path: path, Sandbox: policy})
			expectRefused(t, "read "+path, err)
		}
		for _, path := range []string{work + "/link/new", work + "/direct", outside + "/new", "/dev/tty", "/proc/self/mem"} {
			_, err := f.files.WriteFile(f.ctx, &execwirev1.WriteFileRequest{Path: path, Data: []byte("x"), Sandbox: policy})
			expectRefused(t, "write "+path, err)
		}
		for _, path := range []string{work + "/link/file", work + "/direct", outside + "/file", "/proc/1/root" + outside + "/file", "/usr", "/dev/null"} {
			_, err := f.files.SetMetadata(f.ctx, &execwirev1.SetMetadataRequest{Path: path, Permissions: new(uint32(0o755)), Sandbox: policy})
			expectRefused(t, "change "+path, err)
		}
		_, err := f.files.RenamePath(f.ctx, &execwirev1.RenamePathRequest{SourcePath: work + "/file", DestinationPath: outside + "/moved", Sandbox: policy})
		expectRefused(t, "rename out", err)
		_, err = f.files.RenamePath(f.ctx, &execwirev1.RenamePathRequest{SourcePath: outside + "/file", DestinationPath: work + "/moved", Sandbox: policy})
		expectRefused(t, "rename in", err)
		environment, err := f.files.ReadFile(f.ctx, &execwirev1.ReadFileRequest{Path: "/proc/self/environ", Sandbox: policy})
		if err != nil || strings.Contains(string(environment.GetData()), "hidden") || strings.Contains(string(environment.GetData()), "HOME") {
			t.Errorf("its environment is %q, %v", environment.GetData(), err)
		}
		if content, err := os.ReadFile(outside + "/file"); err != nil || string(content) != "secret" {
			t.Errorf("outside is %q, %v", content, err)
		}
		_ = dir
	})
}

// What may read everything is not the server: it has neither its memory nor its privileges. So such
// calls are confined, too: see docs/decisions/0016-confined-reading.md.
func TestConfinedFiles_ReadingEverything_IsNotReadingAsTheServer(t *testing.T) {
	eachSandbox(t, func(t *testing.T, sandboxes *sandbox.Sandboxes) {
		_, work, outside := makeWorkplace(t)
		f := newFixture(t, withSandboxes(sandboxes))
		read := func(path string, policy *execwirev1.SandboxPolicy) error {
			_, err := f.files.ReadFile(f.ctx, &execwirev1.ReadFileRequest{Path: path, Sandbox: policy})
			return err
		}
		if err := read(outside+"/file", policyOf("/")); err != nil {
			t.Error(err)
		}
		server := "/proc/" + strconv.Itoa(os.Getpid())
		refused := []string{server + "/environ", server + "/maps", server + "/root" + work + "/file"}
		if os.Getuid() == 0 {
			if err := errors.Join(os.Chown(work+"/file", 1, 1), os.Chmod(work+"/file", 0o400)); err != nil {
				t.Fatal(err)
			}
			refused = append(refused, work+"/file")
		}
		for _, path := range refused {
			if err := read(path, nil); err != nil {
				t.Errorf("the server cannot read %s: %v", path, err)
			}
			expectRefused(t, "read "+path, read(path, policyOf("/")))
		}
	})
}

// Only bubblewrap can protect repositories. Writes fail like on a read-only file system.
func TestConfinedFiles_RepositoryMetadata_IsReadOnly(t *testing.T) {
	_, work, _ := makeWorkplace(t)
	if err := os.Mkdir(work+"/.git", 0o755); err != nil {
		t.Fatal(err)
	}
	writeTestFile(t, work+"/.git/config", "git")
	f, policy := newFixture(t, withSandboxes(sandboxesWithout(t, sandbox.Landlock))), policyOf("+"+work)
	_, err := f.files.WriteFile(f.ctx, &execwirev1.WriteFileRequest{Path: work + "/.git/config", Sandbox: policy})
	expectFailure(t, err, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_READ_ONLY_FILE_SYSTEM)
	_, err = f.files.SetMetadata(f.ctx, &execwirev1.SetMetadataRequest{Path: work + "/.git/config", Permissions: new(uint32(0o777)), Sandbox: policy})
	expectFailure(t, err, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_READ_ONLY_FILE_SYSTEM)
	if resp, err := f.files.ReadFile(f.ctx, &execwirev1.ReadFileRequest{Path: work + "/.git/config", Sandbox: policy}); err != nil || string(resp.GetData()) != "git" {
		t.Errorf("%v, %v", resp, err)
	}
}

func TestConfinedFiles_Errors_EqualUnconfinedErrors(t *testing.T) {
	eachSandbox(t, func(t *testing.T, sandboxes *sandbox.Sandboxes) {
		_, work, _ := makeWorkplace(t)
		f, policy := newFixture(t, withSandboxes(sandboxes)), policyOf("+"+work)
		for _, path := range []string{work + "/missing", work + "/empty", work + "/file/below", "relative", "/with\x00nul"} {
			plain := func(p *execwirev1.SandboxPolicy) error {
				_, err := f.files.ReadFile(f.ctx, &execwirev1.ReadFileRequest{Path: path, Sandbox: p})
				return err
			}
			want, got := status.Convert(plain(nil)), status.Convert(plain(policy))
			if want.Code() == codes.OK || want.Proto().String() != got.Proto().String() {
				t.Errorf("%q: %v, confined %v", path, want.Proto(), got.Proto())
			}
		}
		ctx, cancel := context.WithCancel(f.ctx)
		cancel()
		_, err := f.files.ReadFile(ctx, &execwirev1.ReadFileRequest{Path: work + "/file", Sandbox: policy})
		if status.Code(err) != codes.Canceled {
			t.Errorf("cancelled: %v", err)
		}
	})
}

func TestConfinedFiles_NoSandbox_Fails(t *testing.T) {
	_, work, _ := makeWorkplace(t)
	f := newFixture(t)
	_, err := f.files.WriteFile(f.ctx, &execwirev1.WriteFileRequest{Path: work + "/new", Sandbox: policyOf("+" + work)})
	expectFailure(t, err, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_SANDBOX_UNAVAILABLE)
	if _, err := os.Stat(work + "/new"); err == nil {
		t.Error("it was written")
	}
}

// workersOf returns the workers that descend from this process.
func workersOf(t *testing.T) (pids []int) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		text, err := os.ReadFile(line)
		if err == nil && bytes.HasPrefix(text, []byte("execwire-file-worker\x00")) && isOurs(line) {
			pid, _ := strconv.Atoi(strings.Split(line, "/")[2])
			pids = append(pids, pid)
		}
	}
	return pids
}

// isOurs reports whether a process descends from this one.
func isOurs(line string) bool {
	for dir := filepath.Dir(line); ; {
		text, err := os.ReadFile(dir + "/stat")
		if err != nil {
			return false
		}
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		switch parent, _ := strconv.Atoi(fields[1]); parent {
		case os.Getpid():
			return true
		case 0, 1:
			return false
		default:
			dir = fmt.Sprint("/proc/", parent)
		}
	}
}

// The calls and handles of a killed worker fail, and the next call starts another one.
func TestFileWorker_Killed_FailsCallsAndIsReplaced(t *testing.T) {
	eachSandbox(t, func(t *testing.T, sandboxes *sandbox.Sandboxes) {
		_, work, _ := makeWorkplace(t)
		f, policy := newFixture(t, withSandboxes(sandboxes)), policyOf("+"+work)
		stream, err := f.files.WatchDirectory(f.ctx, &execwirev1.WatchDirectoryRequest{Path: work, Sandbox: policy})
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
		open := &execwirev1.OpenFileRequest{HandleId: "h", Path: work + "/file", Mode: execwirev1.OpenMode_OPEN_MODE_READ, Sandbox: policy}
		if _, err := f.files.OpenFile(f.ctx, open); err != nil {
			t.Fatal(err)
		}
		pids := workersOf(t)
		if len(pids) != 1 {
			t.Fatalf("workers: %v", pids)
		}
		if err := unix.Kill(pids[0], unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = stream.Recv()
		}
		expectFailure(t, err, codes.Unavailable, execwirev1.ErrorReason_ERROR_REASON_FILE_WORKER_ENDED)
		read := func(id string) error {
			_, err := f.files.ReadBlock(f.ctx, &execwirev1.ReadBlockRequest{HandleId: id, Length: 1})
			return err
		}
		expectFailure(t, read("h"), codes.Unavailable, execwirev1.ErrorReason_ERROR_REASON_FILE_WORKER_ENDED)
		expectFailure(t, read("h"), codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_FILE_HANDLE_NOT_FOUND)
		for {
			_, err := f.files.OpenFile(f.ctx, open)
			if err == nil {
				break
			}
			expectFailure(t, err, codes.Unavailable, execwirev1.ErrorReason_ERROR_REASON_FILE_WORKER_ENDED)
		}
		if err := read("h"); err != nil {
			t.Error(err)
		}
	})
}

// Handles in workers share ids and the limit of the session with other handles.
func TestConfinedHandles_CountTowardsSessionLimit(t *testing.T) {
	_, work, _ := makeWorkplace(t)
	f := newFixture(t, withSandboxes(sandboxesWithout(t, sandbox.Bubblewrap)), func(s *settings) { s.limits.FileHandlesPerSession = 2 })
	open := func(id string, p *execwirev1.SandboxPolicy) error {
		_, err := f.files.OpenFile(f.ctx, &execwirev1.OpenFileRequest{HandleId: id, Path: work + "/file", Mode: execwirev1.OpenMode_OPEN_MODE_READ, Sandbox: p})
		return err
	}
	if err := errors.Join(open("confined", policyOf(work)), open("plain", nil)); err != nil {
		t.Fatal(err)
	}
	expectFailure(t, open("confined", nil), codes.AlreadyExists, execwirev1.ErrorReason_ERROR_REASON_FILE_HANDLE_ALREADY_EXISTS)
	expectFailure(t, open("plain", policyOf(work)), codes.AlreadyExists, execwirev1.ErrorReason_ERROR_REASON_FILE_HANDLE_ALREADY_EXISTS)
	expectFailure(t, open("more", policyOf(work)), codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_FILE_HANDLES)
	expectFailure(t, open("more", nil), codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_FILE_HANDLES)
	for range 2 {
		if _, err := f.files.CloseFile(f.ctx, &execwirev1.CloseFileRequest{HandleId: "confined"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := open("more", policyOf(work)); err != nil {
		t.Error(err)
	}
}

// The oldest unused worker is evicted; workers in use are not.
func TestFileWorker_Limits_EvictIdleOnly(t *testing.T) {
	for setting, limit := range map[string]func(*settings){
		"file_workers_per_principal": func(s *settings) { s.limits.FileWorkers = 2 },
		"file_workers_total":         func(s *settings) { s.limits.FileWorkersTotal = 2 },
	} {
		_, work, outside := makeWorkplace(t)
		f := newFixture(t, withSandboxes(sandboxesWithout(t, sandbox.Bubblewrap)), limit)
		read := func(p *execwirev1.SandboxPolicy) error {
			_, err := f.files.ReadFile(f.ctx, &execwirev1.ReadFileRequest{Path: work + "/file", Sandbox: p})
			return err
		}
		policies := []*execwirev1.SandboxPolicy{policyOf(work), policyOf("+" + work), policyOf(work, outside)}
		for _, p := range policies {
			if err := read(p); err != nil {
				t.Fatal(err)
			}
		}
		for i, p := range policies[:2] {
			open := &execwirev1.OpenFileRequest{HandleId: strconv.Itoa(i), Path: work + "/file", Mode: execwirev1.OpenMode_OPEN_MODE_READ, Sandbox: p}
			if _, err := f.files.OpenFile(f.ctx, open); err != nil {
				t.Fatal(err)
			}
		}
		err := read(policies[2])
		expectFailure(t, err, codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_FILE_WORKERS)
		if info := errorinfo.Of(err).GetMetadata(); info["setting"] != setting || info["limit"] != "2" {
			t.Errorf("%s: %v", setting, info)
		}
		if err := read(policies[1]); err != nil {
			t.Errorf("a call to a running worker: %v", err)
		}
		if _, err := f.files.CloseFile(f.ctx, &execwirev1.CloseFileRequest{HandleId: "0"}); err != nil {
			t.Fatal(err)
		}
		for read(policies[2]) != nil { // the lease of the handle is released a moment later
			if f.ctx.Err() != nil {
				t.Fatal("the worker is not evicted")
			}
		}
	}
}

// An unused worker ends, and an empty default session is removed with it.
func TestFileWorker_Idle_Ends(t *testing.T) {
	_, work, _ := makeWorkplace(t)
	f := newFixture(t, withSandboxes(sandboxesWithout(t, sandbox.Bubblewrap)), func(s *settings) { s.limits.FileWorkerIdle = 10 * time.Millisecond })
	if _, err := f.files.ReadFile(f.ctx, &execwirev1.ReadFileRequest{Path: work + "/file", Sandbox: policyOf(work)}); err != nil {
		t.Fatal(err)
	}
	for len(workersOf(t)) > 0 {
		if f.ctx.Err() != nil {
			t.Fatal("the idle worker still runs")
		}
	}
}

func TestFileWorker_ConcurrentCalls_ShareOne(t *testing.T) {
	eachSandbox(t, func(t *testing.T, sandboxes *sandbox.Sandboxes) {
		_, work, _ := makeWorkplace(t)
		f, policy := newFixture(t, withSandboxes(sandboxes)), policyOf("+"+work)
		var callers sync.WaitGroup
		for i := range 100 {
			callers.Go(func() {
				path := fmt.Sprint(work, "/", i)
				_, err := f.files.WriteFile(f.ctx, &execwirev1.WriteFileRequest{Path: path, Data: []byte(path), Sandbox: policy})
				if err != nil {
					t.Error(err)
				}
				resp, err := f.files.ReadFile(f.ctx, &execwirev1.ReadFileRequest{Path: path, Sandbox: policy})
				if err != nil || string(resp.GetData()) != path {
					t.Errorf("%s: %q, %v", path, resp.GetData(), err)
				}
			})
		}
		callers.Wait()
		if pids := workersOf(t); len(pids) != 1 {
			t.Errorf("workers: %v", pids)
		}
	})
}

// An upload that is cut can be resumed in the worker that received it.
func TestConfinedUpload_Cut_CanResume(t *testing.T) {
	eachSandbox(t, func(t *testing.T, sandboxes *sandbox.Sandboxes) {
		_, work, _ := makeWorkplace(t)
		f, policy := newFixture(t, withSandboxes(sandboxes), func(s *settings) { s.limits.FileWorkers = 1 }), policyOf("+"+work)
		head := func(offset uint64, p *execwirev1.SandboxPolicy) *execwirev1.UploadHead {
			return &execwirev1.UploadHead{Path: work + "/up", Sandbox: p, UploadId: "id", Offset: offset, Mode: execwirev1.UploadMode_UPLOAD_MODE_REPLACE}
		}
		stream, err := f.files.UploadFile(f.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range []*execwirev1.UploadFileRequest{
			{Message: &execwirev1.UploadFileRequest_Head{Head: head(0, policy)}},
			{Message: &execwirev1.UploadFileRequest_Data{Data: []byte("begun ")}},
		} {
			if err := stream.Send(m); err != nil {
				t.Fatal(err)
			}
		}
		_, err = stream.CloseAndRecv() // without an end
		expectFailure(t, err, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_UNEXPECTED_MESSAGE)
		state, err := f.files.GetUpload(f.ctx, &execwirev1.GetUploadRequest{UploadId: "id"})
		if err != nil || state.GetReceivedBytes() != 6 {
			t.Fatalf("%v, %v", state, err)
		}
		_, err = uploadThrough(f, head(6, nil), []byte("elsewhere"))
		expectFailure(t, err, codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_UPLOAD_NOT_FOUND)
		if _, err := uploadThrough(f, head(6, policy), []byte("and ended")); err != nil {
			t.Fatal(err)
		}
		if content, err := os.ReadFile(work + "/up"); err != nil || string(content) != "begun and ended" {
			t.Errorf("%q, %v", content, err)
		}
	})
}

// A denied upload fails even if the client sends nothing more.
func TestConfinedUpload_Denied_FailsBeforeData(t *testing.T) {
	_, work, outside := makeWorkplace(t)
	f := newFixture(t, withSandboxes(sandboxesWithout(t, sandbox.Landlock)))
	stream, err := f.files.UploadFile(f.ctx)
	if err != nil {
		t.Fatal(err)
	}
	head := &execwirev1.UploadHead{Path: outside + "/file", Mode: execwirev1.UploadMode_UPLOAD_MODE_IN_PLACE, Sandbox: policyOf("+" + work)}
	if err := stream.Send(&execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Head{Head: head}}); err != nil {
		t.Fatal(err)
	}
	err = stream.RecvMsg(new(execwirev1.UploadFileResponse))
	expectFailure(t, err, codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_PATH_NOT_FOUND)
}
