package auditcall

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/audit"
)

// adminPrefix begins the methods of the administration, all of which are recorded.
const adminPrefix = "/execwire.v1.AdminService/"

// actions has the recorded methods. A test proves that each other method of the contract
// is in unrecorded.
var actions = map[string]string{
	execwirev1.ProcessService_StartProcess_FullMethodName:     "process.start",
	execwirev1.ProcessService_RunProcess_FullMethodName:       "process.start",
	execwirev1.ProcessService_OwnProcess_FullMethodName:       "process.start",
	execwirev1.ProcessService_SignalProcess_FullMethodName:    "process.signal",
	execwirev1.ProcessService_TerminateProcess_FullMethodName: "process.terminate",

	execwirev1.SessionService_AttachSession_FullMethodName: "session.attach",
	execwirev1.SessionService_CloseSession_FullMethodName:  "session.close",
	execwirev1.SessionService_GrantSession_FullMethodName:  "session.grant",

	execwirev1.FileSystemService_WriteFile_FullMethodName:       "file.write",
	execwirev1.FileSystemService_UploadFile_FullMethodName:      "file.upload",
	execwirev1.FileSystemService_OpenFile_FullMethodName:        "file.open",
	execwirev1.FileSystemService_CreateDirectory_FullMethodName: "file.mkdir",
	execwirev1.FileSystemService_SetMetadata_FullMethodName:     "file.chmod",
	execwirev1.FileSystemService_RemovePath_FullMethodName:      "file.remove",
	execwirev1.FileSystemService_RenamePath_FullMethodName:      "file.rename",
	execwirev1.FileSystemService_CopyPath_FullMethodName:        "file.copy",
	execwirev1.FileSystemService_CreateSymlink_FullMethodName:   "file.symlink",
	execwirev1.FileSystemService_SignFileURL_FullMethodName:     "file.sign",

	execwirev1.PortService_ConnectPort_FullMethodName: "port.connect",
	execwirev1.PortService_ListenPort_FullMethodName:  "port.listen",
	execwirev1.HttpService_Fetch_FullMethodName:       "http.fetch",
}

// reads has the methods that are recorded if audit_reads is on.
var reads = map[string]string{
	execwirev1.FileSystemService_ReadFile_FullMethodName:       "file.read",
	execwirev1.FileSystemService_DownloadFile_FullMethodName:   "file.download",
	execwirev1.FileSystemService_ReadDirectory_FullMethodName:  "file.list",
	execwirev1.FileSystemService_WalkDirectory_FullMethodName:  "file.walk",
	execwirev1.FileSystemService_WatchDirectory_FullMethodName: "file.watch",
}

// unrecorded has the methods that change nothing and reveal no file, and those for which
// the record of what precedes them is enough: output and input of a process, blocks of a
// file.
var unrecorded = []string{
	execwirev1.ProcessService_GetProcess_FullMethodName, execwirev1.ProcessService_ListProcesses_FullMethodName,
	execwirev1.ProcessService_WatchProcess_FullMethodName, execwirev1.ProcessService_ReadOutput_FullMethodName,
	execwirev1.ProcessService_SnapshotOutput_FullMethodName, execwirev1.ProcessService_WaitProcess_FullMethodName,
	execwirev1.ProcessService_GetScreen_FullMethodName, execwirev1.ProcessService_WatchScreen_FullMethodName,
	execwirev1.ProcessService_AcknowledgeOutput_FullMethodName, execwirev1.ProcessService_DetachProcess_FullMethodName,
	execwirev1.ProcessService_WriteStdin_FullMethodName, execwirev1.ProcessService_CloseStdin_FullMethodName,
	execwirev1.ProcessService_ResizeTerminal_FullMethodName,
	execwirev1.SessionService_ListSessions_FullMethodName,
	execwirev1.FileSystemService_GetMetadata_FullMethodName, execwirev1.FileSystemService_CanonicalizePath_FullMethodName,
	execwirev1.FileSystemService_AwaitPaths_FullMethodName, execwirev1.FileSystemService_GetUpload_FullMethodName,
	execwirev1.FileSystemService_ReadBlock_FullMethodName, execwirev1.FileSystemService_WriteBlock_FullMethodName,
	execwirev1.FileSystemService_CloseFile_FullMethodName,
	execwirev1.PortService_ListPorts_FullMethodName, execwirev1.PortService_WatchPorts_FullMethodName,
	execwirev1.EnvironmentService_GetEnvironment_FullMethodName,
}

// isRecorded reports whether calls of a method can have records.
func isRecorded(method string) bool {
	return actions[method] != "" || reads[method] != "" || strings.HasPrefix(method, adminPrefix)
}

// describe returns the intent of a call with its first message, or nil for a call that is
// not recorded. The message may be nil.
func (a *Auditor) describe(method string, m any) *audit.Record {
	r := &audit.Record{Action: actions[method]}
	switch {
	case r.Action != "":
	case reads[method] != "" && a.Log.Reads():
		r.Action = reads[method]
	case strings.HasPrefix(method, adminPrefix):
		r.Action = "admin." + methodName(strings.TrimPrefix(method, adminPrefix))
	default:
		return nil
	}
	if m, ok := m.(interface{ GetSessionId() string }); ok {
		r.Session = m.GetSessionId()
	}
	if m, ok := m.(interface{ GetProcessId() string }); ok {
		r.Process = m.GetProcessId()
	}
	if m, ok := m.(interface{ GetRecursive() bool }); ok {
		r.Recursive = m.GetRecursive()
	}
	if m, ok := m.(pathMessage); ok {
		setPath(r, m)
	}
	switch m := m.(type) {
	case *execwirev1.StartProcessRequest:
		a.setStart(r, m)
	case interface {
		GetStart() *execwirev1.RunStart
		GetResume() *execwirev1.RunResume
	}:
		if resume := m.GetResume(); resume != nil {
			r.Action, r.Session, r.Process = "process.resume", resume.GetSessionId(), resume.GetProcessId()
		} else {
			a.setStart(r, m.GetStart().GetProcess())
		}
	case *execwirev1.SignalProcessRequest:
		r.Signal = signalName(m.GetSignal())
	case *execwirev1.TerminateProcessRequest:
		r.Mode = terminationMode(m.GetTermination())
	case *execwirev1.AttachSessionRequest:
		if r.Session = m.GetAttach().GetSessionId(); r.Session == "" {
			return nil // a new session, which has nothing yet
		}
	case *execwirev1.GrantSessionRequest:
		r.Grantee, r.Access = m.GetPrincipal(), enumName(m.GetAccess(), "SESSION_ACCESS_")
	default:
		return a.describeFile(r, m)
	}
	return r
}

// describeFile describes messages about files, ports and HTTP.
func (a *Auditor) describeFile(r *audit.Record, m any) *audit.Record {
	switch m := m.(type) {
	case *execwirev1.OpenFileRequest:
		if m.GetMode() != execwirev1.OpenMode_OPEN_MODE_REPLACE && !a.Log.Reads() {
			return nil
		}
		r.Mode = enumName(m.GetMode(), "OPEN_MODE_")
	case *execwirev1.UploadFileRequest:
		setPath(r, m.GetHead())
		r.Mode = enumName(m.GetHead().GetMode(), "UPLOAD_MODE_")
	case *execwirev1.SetMetadataRequest:
		if m.Permissions != nil {
			r.Mode = fmt.Sprintf("%04o", m.GetPermissions())
		}
	case *execwirev1.CreateSymlinkRequest:
		r.To = either(m.GetTarget(), m.GetRawTarget())
	case *execwirev1.CopyPathRequest:
		setMove(r, m)
	case *execwirev1.RenamePathRequest:
		setMove(r, m)
	case *execwirev1.SignFileURLRequest:
		r.Mode = enumName(m.GetMethod(), "FILE_URL_METHOD_")
	case *execwirev1.ConnectPortRequest:
		if accept := m.GetAccept(); accept != nil {
			r.Action, r.Session = "port.accept", accept.GetSessionId()
			break
		}
		connect := m.GetConnect()
		r.Session, r.Address = connect.GetSessionId(), net.JoinHostPort(connect.GetHost(), strconv.FormatUint(uint64(connect.GetPort()), 10))
	case *execwirev1.ListenPortRequest:
		r.Address = net.JoinHostPort(m.GetAddress(), strconv.FormatUint(uint64(m.GetPort()), 10))
	case *execwirev1.FetchRequest:
		r.HTTPMethod, r.URL = m.GetMethod(), audit.URL(m.GetUrl())
	}
	return r
}

// setStart describes the start of a process.
func (a *Auditor) setStart(r *audit.Record, m *execwirev1.StartProcessRequest) {
	r.Session, r.Process, r.User = m.GetSessionId(), m.GetProcessId(), m.GetUser()
	if direct := m.GetCommand().GetDirect(); direct != nil {
		r.Cwd, r.Sandbox = direct.GetWorkingDirectory(), askedSandbox(direct.GetSandbox())
		a.Log.SetArgv(r, direct.GetArgv())
		return
	}
	prepared := m.GetCommand().GetPrepared()
	r.Path, r.Cwd = prepared.GetExecutable(), prepared.GetWorkingDirectory()
	a.Log.SetArgv(r, prepared.GetArgv())
}

// Restrictions in [audit.Sandbox].
const (
	restricted   = "restricted"
	unrestricted = "unrestricted"
)

// askedSandbox describes the policy of a request.
func askedSandbox(m *execwirev1.SandboxPolicy) *audit.Sandbox {
	switch {
	case m.GetManaged() != nil:
		s := &audit.Sandbox{Policy: "managed", Files: restricted, Network: restricted}
		if m.GetManaged().GetFileSystem().GetUnrestricted() != nil {
			s.Files = unrestricted
		}
		if m.GetManaged().GetNetwork() == execwirev1.NetworkAccess_NETWORK_ACCESS_ENABLED {
			s.Network = unrestricted
		}
		return s
	case m.GetDisabled() != nil:
		return &audit.Sandbox{Policy: "disabled"}
	case m.GetExternal() != nil:
		return &audit.Sandbox{Policy: "external"}
	}
	return nil
}

// EnforcedSandbox describes the sandbox of a process, or of a worker for files; nil for none.
func EnforcedSandbox(m *execwirev1.SandboxReport) *audit.Sandbox {
	if m == nil {
		return nil
	}
	s := &audit.Sandbox{Backend: enumName(m.GetBackend(), "SANDBOX_BACKEND_"), Files: unrestricted, Network: restricted}
	if m.GetRestrictsFiles() {
		s.Files = restricted
	}
	if m.GetNetwork() == execwirev1.NetworkAccess_NETWORK_ACCESS_ENABLED {
		s.Network = unrestricted
	}
	return s
}

// isAnswer reports whether a message of a stream is the result of its call.
func isAnswer(m any) bool {
	switch m := m.(type) {
	case *execwirev1.RunProcessResponse:
		return m.GetStarted() != nil
	case *execwirev1.OwnProcessResponse:
		return m.GetStarted() != nil
	case *execwirev1.AttachSessionResponse:
		return m.GetAttached() != nil
	}
	return false
}

// noteResponse adds what a response says to a result.
func noteResponse(r *audit.Record, m any) {
	switch m := m.(type) {
	case *execwirev1.StartProcessResponse:
		noteProcess(r, m.GetProcess())
	case *execwirev1.RunProcessResponse:
		noteProcess(r, m.GetStarted().GetProcess())
	case *execwirev1.OwnProcessResponse:
		noteProcess(r, m.GetStarted().GetProcess())
	case *execwirev1.AttachSessionResponse:
		r.Session = m.GetAttached().GetSession().GetSessionId()
	}
}

func noteProcess(r *audit.Record, p *execwirev1.Process) {
	r.Session, r.Process, r.PID, r.Cwd = p.GetSessionId(), p.GetProcessId(), int(p.GetPid()), p.GetWorkingDirectory()
	r.User, r.Enforced = p.GetUser(), EnforcedSandbox(p.GetSandbox())
}

// Signal describes a signal to a process by its owner.
func Signal(session, process string, signal execwirev1.Signal) *audit.Record {
	return &audit.Record{Action: "process.signal", Session: session, Process: process, Signal: signalName(signal)}
}

// Terminate describes a termination by its owner.
func Terminate(session, process string, m *execwirev1.Termination) *audit.Record {
	return &audit.Record{Action: "process.terminate", Session: session, Process: process, Mode: terminationMode(m)}
}

func terminationMode(m *execwirev1.Termination) string {
	if m.GetForce() != nil {
		return "force"
	}
	return "graceful"
}

// signalName returns a signal as SIGTERM, or as a number that the contract has no name for.
func signalName(signal execwirev1.Signal) string {
	name, known := execwirev1.Signal_name[int32(signal)]
	if !known {
		return strconv.Itoa(int(signal))
	}
	return "SIG" + strings.TrimPrefix(name, "SIGNAL_")
}

// enumName returns the name of a value of an enum in lower case, without the prefix of all.
func enumName(value fmt.Stringer, prefix string) string {
	return strings.ToLower(strings.TrimPrefix(value.String(), prefix))
}

// pathMessage is a message about a file.
type pathMessage interface {
	GetPath() string
	GetRawPath() []byte
	GetSandbox() *execwirev1.SandboxPolicy
}

func setPath(r *audit.Record, m pathMessage) {
	r.Path, r.Sandbox = either(m.GetPath(), m.GetRawPath()), askedSandbox(m.GetSandbox())
}

// moveMessage is a message about two files.
type moveMessage interface {
	GetSourcePath() string
	GetRawSourcePath() []byte
	GetDestinationPath() string
	GetRawDestinationPath() []byte
	GetSandbox() *execwirev1.SandboxPolicy
}

func setMove(r *audit.Record, m moveMessage) {
	r.Path, r.To = either(m.GetSourcePath(), m.GetRawSourcePath()), either(m.GetDestinationPath(), m.GetRawDestinationPath())
	r.Sandbox = askedSandbox(m.GetSandbox())
}

// either returns the bytes of a path that is not valid UTF-8, or the path.
func either(text string, raw []byte) string {
	if len(raw) > 0 {
		return string(raw)
	}
	return text
}

// contentBytes returns how much content is in a message: of a file, a connection or a body.
func contentBytes(m any) uint64 {
	switch m := m.(type) {
	case *execwirev1.FetchRequest:
		return uint64(len(m.GetBody()))
	case interface{ GetData() []byte }:
		return uint64(len(m.GetData()))
	}
	return 0
}
