package daemon_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
)

// Values beside the permissions: a public call, and one that every principal may make
// but not over TLS.
const (
	public = "public"
	local  = "local"
	// anyPrincipal is a call whose request decides about the permission.
	anyPrincipal = "any principal"
)

// permissions lists what every call needs. It repeats the table of package server, so that
// changes there are intended.
var permissions = map[string]string{
	"/execwire.v1.ProcessService/GetProcess":        "view",
	"/execwire.v1.ProcessService/ListProcesses":     "view",
	"/execwire.v1.ProcessService/WatchProcess":      "view",
	"/execwire.v1.ProcessService/ReadOutput":        "view",
	"/execwire.v1.ProcessService/SnapshotOutput":    "view",
	"/execwire.v1.ProcessService/GetScreen":         "view",
	"/execwire.v1.ProcessService/WatchScreen":       "view",
	"/execwire.v1.ProcessService/WaitProcess":       "view",
	"/execwire.v1.ProcessService/StartProcess":      "start",
	"/execwire.v1.ProcessService/RunProcess":        "start",
	"/execwire.v1.ProcessService/OwnProcess":        "start",
	"/execwire.v1.ProcessService/AcknowledgeOutput": "start",
	"/execwire.v1.ProcessService/DetachProcess":     "start",
	"/execwire.v1.ProcessService/WriteStdin":        "control",
	"/execwire.v1.ProcessService/CloseStdin":        "control",
	"/execwire.v1.ProcessService/ResizeTerminal":    "control",
	"/execwire.v1.ProcessService/SignalProcess":     "control",
	"/execwire.v1.ProcessService/TerminateProcess":  "control",

	"/execwire.v1.SessionService/AttachSession": "session",
	"/execwire.v1.SessionService/ListSessions":  "session",
	"/execwire.v1.SessionService/CloseSession":  "session",
	"/execwire.v1.SessionService/GrantSession":  "session",

	"/execwire.v1.EnvironmentService/GetEnvironment": "environment",

	"/execwire.v1.FileSystemService/ReadFile":         "read_files",
	"/execwire.v1.FileSystemService/DownloadFile":     "read_files",
	"/execwire.v1.FileSystemService/GetMetadata":      "read_files",
	"/execwire.v1.FileSystemService/ReadDirectory":    "read_files",
	"/execwire.v1.FileSystemService/CanonicalizePath": "read_files",
	"/execwire.v1.FileSystemService/WriteFile":        "write_files",
	"/execwire.v1.FileSystemService/UploadFile":       "write_files",
	"/execwire.v1.FileSystemService/AwaitPaths":       "read_files",
	"/execwire.v1.FileSystemService/WatchDirectory":   "read_files",
	"/execwire.v1.FileSystemService/RenamePath":       "write_files",
	"/execwire.v1.FileSystemService/CreateSymlink":    "write_files",
	"/execwire.v1.FileSystemService/SetMetadata":      "write_files",
	"/execwire.v1.FileSystemService/SignFileURL":      anyPrincipal, // read_files or write_files, by the method of the URL
	"/execwire.v1.FileSystemService/GetUpload":        "write_files",
	"/execwire.v1.FileSystemService/CreateDirectory":  "write_files",
	"/execwire.v1.FileSystemService/RemovePath":       "write_files",
	"/execwire.v1.FileSystemService/CopyPath":         "write_files",
	"/execwire.v1.FileSystemService/WalkDirectory":    "read_files",
	"/execwire.v1.FileSystemService/OpenFile":         "read_files",
	"/execwire.v1.FileSystemService/ReadBlock":        "read_files",
	"/execwire.v1.FileSystemService/CloseFile":        "read_files",
	"/execwire.v1.FileSystemService/WriteBlock":       "write_files",

	"/execwire.v1.HttpService/Fetch": "http",

	"/execwire.v1.PortService/ListPorts":   "view",
	"/execwire.v1.PortService/WatchPorts":  "view",
	"/execwire.v1.PortService/ConnectPort": "ports",
	"/execwire.v1.PortService/ListenPort":  "ports",

	"/execwire.v1.AdminService/Reload":      "admin",
	"/execwire.v1.AdminService/Upgrade":     "admin",
	"/execwire.v1.AdminService/GetUpgrade":  "admin",
	"/execwire.v1.AdminService/GetStatus":   "admin",
	"/execwire.v1.AdminService/TakeProfile": "admin",
	"/execwire.v1.AdminService/ReadAudit":   "admin",

	"/grpc.health.v1.Health/Check": public,
	"/grpc.health.v1.Health/List":  public,
	"/grpc.health.v1.Health/Watch": public,

	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      local,
	"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": local,
}

// methods returns the calls of the real server.
func (l *locked) methods() []string {
	var methods []string
	for service, info := range l.daemon.Services() {
		for _, method := range info.Methods {
			methods = append(methods, "/"+service+"/"+method.Name)
		}
	}
	slices.Sort(methods)
	return methods
}

// call makes any call with an empty request, and returns its error.
func (l *locked) call(ctx context.Context, conn *grpc.ClientConn, method string) error {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		l.t.Fatal(err)
	}
	_ = stream.SendMsg(&emptypb.Empty{}) // RecvMsg returns the error
	_ = stream.CloseSend()
	err = stream.RecvMsg(&emptypb.Empty{})
	if status.Code(err) == codes.DeadlineExceeded || status.Code(err) == codes.Unavailable {
		l.t.Fatalf("%s: %v", method, err)
	}
	return err
}

func TestPermissions_EveryCall(t *testing.T) {
	all := []string{"view", "start", "control", "session", "environment", "read_files", "write_files", "http", "ports", "admin"}
	l := lock(t, many, func(l *locked) string {
		table := l.principal("everything", `"all", "admin"`)
		for _, name := range all {
			table += l.principal(name, fmt.Sprintf("%q", name))
		}
		return table
	})
	methods := l.methods()
	if len(methods) != len(permissions) {
		t.Errorf("the server has %d calls, and this test lists %d", len(methods), len(permissions))
	}
	for listener, conn := range map[int]*grpc.ClientConn{onTLS: l.dial(onTLS), onUnix: l.dial(onUnix)} {
		for _, method := range methods {
			need, listed := permissions[method]
			if !listed {
				t.Errorf("this test does not list %s", method)
				continue
			}
			l.expectAnonymous(listener, method, need, l.call(l.ctx, conn, method))
			for _, has := range append(all, "everything") {
				l.expectCall(listener, method, need, has, l.call(l.as(has), conn, method))
			}
		}
	}
	// For authenticated callers an unknown call is unimplemented.
	for _, method := range []string{"/execwire.v1.ProcessService/None", "/other.Service/Call"} {
		l.expect(l.call(l.as("view"), l.dial(onTLS), method), codes.Unimplemented, "NOT_IMPLEMENTED")
		l.expectUnknown(l.call(l.ctx, l.dial(onTLS), method))
	}
}

// expectAnonymous checks the error of a call without credentials.
func (l *locked) expectAnonymous(listener int, method, need string, err error) {
	l.t.Helper()
	switch {
	case need == public:
		l.expectMade(method, "anonymous", err)
	case need == local && listener == onTLS:
		l.expect(err, codes.Unimplemented, "NOT_IMPLEMENTED")
	default:
		l.expectUnknown(err)
	}
}

// expectCall checks the error of a call by a principal with one permission.
func (l *locked) expectCall(listener int, method, need, has string, err error) {
	l.t.Helper()
	switch {
	case need == local && listener == onTLS:
		l.expect(err, codes.Unimplemented, "NOT_IMPLEMENTED")
	case need == public, need == local, need == anyPrincipal, need == has, has == "everything":
		l.expectMade(method, has, err)
	default:
		l.expect(err, codes.PermissionDenied, "CALL_NOT_ALLOWED")
		if got := errorinfo.Of(err).GetMetadata()["permission"]; got != need {
			l.t.Errorf("%s reports to %q that %q is missing, want %q", method, has, got, need)
		}
	}
}

// expectMade checks that a call was authorized. It may fail otherwise.
func (l *locked) expectMade(method, caller string, err error) {
	l.t.Helper()
	switch errorinfo.Of(err).GetReason() {
	case "CALL_NOT_ALLOWED", "UNAUTHENTICATED", "TOO_MANY_FAILED_ATTEMPTS":
		l.t.Errorf("%s was refused to %s: %v", method, caller, err)
	case "NOT_IMPLEMENTED": // the method is not in the server's table
		if errorinfo.Of(err).GetMetadata()["feature"] == method {
			l.t.Errorf("%s is unimplemented for %s: %v", method, caller, err)
		}
	}
}

// OpenFile for replacing truncates the file, so read_files is not enough.
func TestPermissions_OpenForReplace_NeedsBoth(t *testing.T) {
	l := lock(t, many, func(l *locked) string {
		return l.principal("reader", `"read_files"`) + l.principal("both", `"read_files", "write_files"`)
	})
	path := t.TempDir() + "/f"
	files := execwirev1.NewFileSystemServiceClient(l.dial(onTLS))
	open := &execwirev1.OpenFileRequest{HandleId: "h", Path: path, Mode: execwirev1.OpenMode_OPEN_MODE_REPLACE}
	_, err := files.OpenFile(l.as("reader"), open)
	l.expect(err, codes.PermissionDenied, "CALL_NOT_ALLOWED")
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the file exists: %v", err)
	}
	if _, err := files.OpenFile(l.as("both"), open); err != nil {
		t.Error(err)
	}
}
