package documents

import (
	"errors"
	"io/fs"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/client/execserver"
	"github.com/execwire/execwire/daemon"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/relay/executor"
)

// olderSurface lists the documented API of the older client.
var olderSurface = []string{
	"ExecServerClient", "ExecServerError", "ExecServerClientConnectOptions", "RemoteExecServerConnectArgs",
	"ExecServerLaunchCommand", "ExecServerProcess",
	"ExecParams", "ExecResponse", "WriteParams", "TerminateParams", "ExecOutputDeltaNotification", "ExecExitedNotification",
	"DEFAULT_LISTEN_URL", "ExecServerListenUrlParseError", "ExecServerRuntimePaths", "run_main()",
	"RemoteExecutorConfig", "run_remote_executor()",
	// The methods of processes and files whose structs it has.
	"process/start", "process/read", "process/write", "process/terminate", "process/output", "process/exited", "process/closed",
	"command/exec", "command/exec/write", "command/exec/terminate", "command/exec/outputDelta", "command/exec/exited",
	"fs/readFile", "fs/writeFile", "fs/createDirectory", "fs/getMetadata", "fs/readDirectory", "fs/remove", "fs/copy",
}

// instance returns a value that identifies its type.
func instance[T any]() any { return reflect.TypeFor[T]() }

// counterparts are the names of the document as seen by the compiler: types through instance,
// all others directly.
var counterparts = map[string]any{
	"client.Client": instance[client.Client](), "client.Environment": instance[client.Environment](), "client.Option": instance[client.Option](),
	"client.Dial": client.Dial, "client.RelayURL": client.RelayURL,
	"client.WithName": client.WithName, "client.WithTokenFile": client.WithTokenFile, "client.WithToken": client.WithToken, "client.WithTLS": client.WithTLS,
	"client.LaunchCommand": instance[client.LaunchCommand](), "client.WithLaunchCommand": client.WithLaunchCommand,
	"client.Client.Attach": (*client.Client).Attach, "client.Client.AttachSession": (*client.Client).AttachSession,
	"client.Client.Start": (*client.Client).Start, "client.Client.Run": (*client.Client).Run, "client.Client.Output": (*client.Client).Output,
	"client.Client.Describe": (*client.Client).Describe, "client.Client.HTTP": (*client.Client).HTTP, "client.Client.WithSandbox": (*client.Client).WithSandbox,

	"client.Process": instance[client.Process](), "client.Process.Write": (*client.Process).Write, "client.Process.CloseStdin": (*client.Process).CloseStdin,
	"client.Process.Events": (*client.Process).Events, "client.Process.Read": (*client.Process).Read, "client.Process.Wait": (*client.Process).Wait,
	"client.Process.Terminate": (*client.Process).Terminate, "client.Process.Communicate": (*client.Process).Communicate,
	"client.Exit": instance[client.Exit](), "client.Event": instance[client.Event](), "client.OutputEvent": instance[client.OutputEvent](), "client.GapEvent": instance[client.GapEvent](),
	"client.ExitedEvent": instance[client.ExitedEvent](), "client.ClosedEvent": instance[client.ClosedEvent](), "client.FailedEvent": instance[client.FailedEvent](),
	"client.Command": instance[client.Command](), "client.Command.Request": client.Command.Request, "client.Sandbox": instance[client.Sandbox](),

	"client.DialError": instance[client.DialError](), "client.URLError": instance[client.URLError](), "client.CredentialError": instance[client.CredentialError](),
	"client.TLSError": instance[client.TLSError](), "client.ErrClosed": client.ErrClosed, "client.ConnectionLostError": instance[client.ConnectionLostError](),
	"client.LostError": instance[client.LostError](), "client.ProtocolError": instance[client.ProtocolError](), "execserver.ProtocolError": instance[execserver.ProtocolError](),
	"client.Error": instance[client.Error](), "client.Reason": client.Reason, "errors.Is": errors.Is, "fs.ErrNotExist": fs.ErrNotExist,

	"client.Client.ReadFile": (*client.Client).ReadFile, "client.Client.Download": (*client.Client).Download,
	"client.Client.WriteFile": (*client.Client).WriteFile, "client.Client.Upload": (*client.Client).Upload,
	"client.Client.Mkdir": (*client.Client).Mkdir, "client.Client.MkdirAll": (*client.Client).MkdirAll, "client.Client.Stat": (*client.Client).Stat,
	"client.Client.ReadDir": (*client.Client).ReadDir, "client.Client.Remove": (*client.Client).Remove, "client.Client.RemoveAll": (*client.Client).RemoveAll,
	"client.Client.Copy": (*client.Client).Copy,

	"execwirev1.GetEnvironmentResponse": instance[execwirev1.GetEnvironmentResponse](),
	"execwirev1.StartProcessRequest":    instance[execwirev1.StartProcessRequest](), "execwirev1.StartProcessResponse": instance[execwirev1.StartProcessResponse](),
	"execwirev1.ReadOutputRequest": instance[execwirev1.ReadOutputRequest](), "execwirev1.ReadOutputResponse": instance[execwirev1.ReadOutputResponse](),
	"execwirev1.WriteStdinRequest": instance[execwirev1.WriteStdinRequest](), "execwirev1.WriteStdinResponse": instance[execwirev1.WriteStdinResponse](),
	"execwirev1.TerminateProcessRequest": instance[execwirev1.TerminateProcessRequest](), "execwirev1.TerminateProcessResponse": instance[execwirev1.TerminateProcessResponse](),
	"execwirev1.ProcessOutput": instance[execwirev1.ProcessOutput](), "execwirev1.ProcessExited": instance[execwirev1.ProcessExited](), "execwirev1.ProcessClosed": instance[execwirev1.ProcessClosed](),
	"execwirev1.ReadFileRequest": instance[execwirev1.ReadFileRequest](), "execwirev1.ReadFileResponse": instance[execwirev1.ReadFileResponse](),
	"execwirev1.WriteFileRequest": instance[execwirev1.WriteFileRequest](), "execwirev1.WriteFileResponse": instance[execwirev1.WriteFileResponse](),
	"execwirev1.CreateDirectoryRequest": instance[execwirev1.CreateDirectoryRequest](), "execwirev1.CreateDirectoryResponse": instance[execwirev1.CreateDirectoryResponse](),
	"execwirev1.GetMetadataRequest": instance[execwirev1.GetMetadataRequest](), "execwirev1.GetMetadataResponse": instance[execwirev1.GetMetadataResponse](),
	"execwirev1.ReadDirectoryRequest": instance[execwirev1.ReadDirectoryRequest](), "execwirev1.ReadDirectoryResponse": instance[execwirev1.ReadDirectoryResponse](),
	"execwirev1.RemovePathRequest": instance[execwirev1.RemovePathRequest](), "execwirev1.RemovePathResponse": instance[execwirev1.RemovePathResponse](),
	"execwirev1.CopyPathRequest": instance[execwirev1.CopyPathRequest](), "execwirev1.CopyPathResponse": instance[execwirev1.CopyPathResponse](),
	"execwirev1.SandboxPolicy": instance[execwirev1.SandboxPolicy](),
	"execwirev1.FetchRequest":  instance[execwirev1.FetchRequest](), "execwirev1.FetchResponse": instance[execwirev1.FetchResponse](),

	"daemon.Open": daemon.Open, "daemon.LocalURL": daemon.LocalURL, "daemon.Run": daemon.Run, "daemon.New": daemon.New, "daemon.Daemon.Serve": (*daemon.Daemon).Serve,
	"daemon.DefaultListenURL": daemon.DefaultListenURL,
	"daemon.Options":          instance[daemon.Options](), "daemon.Main": daemon.Main, "daemon.Config": daemon.Config{}.Bubblewrap,
	"daemon.ListenURLError": new(daemon.ListenURLError).Kind, "daemon.ParseListenURL": daemon.ParseListenURL,
	"daemon.ListenURLMalformed": daemon.ListenURLMalformed, "daemon.ListenURLNotLoopback": daemon.ListenURLNotLoopback, "daemon.ListenURLTooLong": daemon.ListenURLTooLong,
	"daemon.RemoteExecutor": instance[daemon.RemoteExecutor](), "daemon.RunExecutor": daemon.RunExecutor,
	"executor.Credentials": instance[executor.Credentials](), "executor.FindCredentials": executor.FindCredentials,
}

// The document has a counterpart for everything that the older client had, and every
// counterpart exists.
func TestClientsDocument_NamesEveryCounterpart(t *testing.T) {
	text, err := os.ReadFile("../../docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	older, here := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) < 2 || !strings.HasPrefix(line, "|") {
			continue
		}
		last := cells[len(cells)-1]
		if strings.TrimSpace(last) == "" {
			t.Errorf("nothing has the place of %s", cells[0])
		}
		for _, cell := range cells[:len(cells)-1] {
			for _, name := range quoted.FindAllStringSubmatch(cell, -1) {
				older[name[1]] = true
			}
		}
		for _, name := range quoted.FindAllStringSubmatch(last, -1) {
			if goName.MatchString(name[1]) {
				here[name[1]] = true
			}
		}
	}
	for _, name := range olderSurface {
		if !older[name] {
			t.Errorf("the document does not say what has the place of %s", name)
		}
	}
	for name := range here {
		if counterparts[name] == nil {
			t.Errorf("the document names %s, which nothing here compiles", name)
		}
	}
	for name := range counterparts {
		if !here[name] {
			t.Errorf("the document does not name %s", name)
		}
	}
	for name, value := range counterparts {
		if is := nameOf(value); is != "" && is != name {
			t.Errorf("%s is called %s", is, name)
		}
	}
}

var (
	quoted = regexp.MustCompile("`([^`]+)`")
	goName = regexp.MustCompile(`^[a-z][a-z0-9]*\.[A-Z][A-Za-z0-9]*(\.[A-Z][A-Za-z0-9]*)?$`)
)

// nameOf returns the name of a type, a function or a method; empty for other values.
func nameOf(value any) string {
	if t, ok := value.(reflect.Type); ok {
		return t.String()
	}
	if v := reflect.ValueOf(value); v.Kind() == reflect.Func {
		_, name, _ := strings.Cut(runtime.FuncForPC(v.Pointer()).Name(), "execwire/execwire/")
		name = name[strings.LastIndex(name, "/")+1:]
		return strings.NewReplacer("(*", "", ")", "").Replace(name)
	}
	return ""
}
