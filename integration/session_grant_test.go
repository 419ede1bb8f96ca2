package integration

import (
	"fmt"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// principal is what the server calls the callers at the story's door.
func (s *story) principal() string {
	s.Helper()
	session := s.session
	defer func() { s.session = session }()
	a := s.lease(keep(0))
	defer a.leave(errDisconnect)
	return a.told.GetSession().GetPrincipal()
}

func (s *story) grant(to string, access execwirev1.SessionAccess) (*execwirev1.Session, error) {
	response, err := s.leases.GrantSession(s.ctx, &execwirev1.GrantSessionRequest{SessionId: s.session, Principal: to, Access: access})
	return response.GetSession(), err
}

func (s *story) mustGrant(to string, access execwirev1.SessionAccess) *execwirev1.Session {
	s.Helper()
	described, err := s.grant(to, access)
	if err != nil {
		s.Fatalf("GrantSession: %v", err)
	}
	return described
}

const (
	noAccess = execwirev1.SessionAccess_SESSION_ACCESS_UNSPECIFIED
	viewing  = execwirev1.SessionAccess_SESSION_ACCESS_VIEW
	writing  = execwirev1.SessionAccess_SESSION_ACCESS_WRITE
)

// calls are all RPCs about a session, by the access they need, each as the error
// that it gets.
func (s *story) calls(session, id string) map[string]map[string]error {
	first := func(err error, receive func() error) error {
		if err == nil {
			err = receive()
		}
		return err
	}
	watch := func(lossless bool) error {
		stream, err := s.processes.WatchProcess(s.ctx, &execwirev1.WatchProcessRequest{SessionId: session, ProcessId: id, Lossless: lossless})
		return first(err, func() error { _, err := stream.Recv(); return err })
	}
	run := func(m *execwirev1.RunProcessRequest) error {
		stream, err := s.processes.RunProcess(s.ctx)
		return first(err, func() error {
			_ = stream.Send(m)
			_, err := stream.Recv()
			return err
		})
	}
	attach := func() error {
		stream, err := s.leases.AttachSession(s.ctx)
		return first(err, func() error {
			_ = stream.Send(&execwirev1.AttachSessionRequest{Message: &execwirev1.AttachSessionRequest_Attach{
				Attach: &execwirev1.SessionAttach{SessionId: session}}})
			_, err := stream.Recv()
			return err
		})
	}
	errorOf := func(_ any, err error) error { return err }
	start := &execwirev1.StartProcessRequest{SessionId: session, Command: s.request(shell("exit")).GetProcess().GetCommand()}
	zero := uint32(0)
	return map[string]map[string]error{
		"view": {
			"GetProcess":     errorOf(s.processes.GetProcess(s.ctx, &execwirev1.GetProcessRequest{SessionId: session, ProcessId: id})),
			"ListProcesses":  errorOf(s.processes.ListProcesses(s.ctx, &execwirev1.ListProcessesRequest{SessionId: session})),
			"ReadOutput":     errorOf(s.processes.ReadOutput(s.ctx, &execwirev1.ReadOutputRequest{SessionId: session, ProcessId: id, MaxBytes: &zero})),
			"SnapshotOutput": errorOf(s.processes.SnapshotOutput(s.ctx, &execwirev1.SnapshotOutputRequest{SessionId: session, ProcessId: id})),
			"WaitProcess": errorOf(s.processes.WaitProcess(s.ctx, &execwirev1.WaitProcessRequest{SessionId: session, ProcessId: id,
				Condition: &execwirev1.WaitProcessRequest_Exit{Exit: &execwirev1.WaitForExit{}}})),
			"WatchProcess": watch(false),
		},
		"write": {
			"WriteStdin":       errorOf(s.processes.WriteStdin(s.ctx, &execwirev1.WriteStdinRequest{SessionId: session, ProcessId: id, Data: []byte("x")})),
			"CloseStdin":       errorOf(s.processes.CloseStdin(s.ctx, &execwirev1.CloseStdinRequest{SessionId: session, ProcessId: id})),
			"ResizeTerminal":   errorOf(s.processes.ResizeTerminal(s.ctx, &execwirev1.ResizeTerminalRequest{SessionId: session, ProcessId: id, Size: &execwirev1.TerminalSize{Rows: 1, Columns: 1}})),
			"SignalProcess":    errorOf(s.processes.SignalProcess(s.ctx, &execwirev1.SignalProcessRequest{SessionId: session, ProcessId: id, Signal: sigterm})),
			"TerminateProcess": errorOf(s.processes.TerminateProcess(s.ctx, &execwirev1.TerminateProcessRequest{SessionId: session, ProcessId: id})),
		},
		"own": {
			"StartProcess":     errorOf(s.processes.StartProcess(s.ctx, start)),
			"WatchProcess":     watch(true),
			"RunProcess start": run(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Start{Start: &execwirev1.RunStart{Process: start}}}),
			"RunProcess resume": run(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Resume{
				Resume: &execwirev1.RunResume{SessionId: session, ProcessId: id}}}),
			"AttachSession": attach(),
			"GrantSession":  errorOf(s.leases.GrantSession(s.ctx, &execwirev1.GrantSessionRequest{SessionId: session, Principal: "x", Access: viewing})),
			"CloseSession":  errorOf(s.leases.CloseSession(s.ctx, &execwirev1.CloseSessionRequest{SessionId: session})),
		},
	}
}

// Every RPC, by every caller: strangers find nothing, viewers see, writers do,
// and nobody but the principal itself owns. The process has closed, so that what
// is let through does no harm.
func TestGrantsLetInAsFarAsTheyGo(t *testing.T) {
	server := newServer(t, nil)
	owner, stranger, viewer := newStory(t, server, tcpDoor), newStory(t, server, unixDoor), newStory(t, server, inProcess)
	writer := viewer
	name := viewer.principal()
	a := owner.lease()
	p := a.run(shell("exit 0"))
	p.awaitClosed()
	session := owner.session

	expect := func(who string, s *story, degree, want string) {
		t.Helper()
		for call, err := range s.calls(session, p.id)[degree] {
			if got := reasonOf(err); got == want || want == "" && got != "SESSION_NOT_FOUND" && got != "SESSION_ACCESS_DENIED" {
				continue
			}
			t.Errorf("%s, %s: %v, want %q", who, call, err, want)
		}
	}
	for _, degree := range []string{"view", "write", "own"} {
		expect("a stranger", stranger, degree, "SESSION_NOT_FOUND")
		expect("the viewer before the grant", viewer, degree, "SESSION_NOT_FOUND")
	}
	owner.mustGrant(name, viewing)
	expect("the viewer", viewer, "view", "")
	expect("the viewer", viewer, "write", "SESSION_ACCESS_DENIED")
	expect("the viewer", viewer, "own", "SESSION_ACCESS_DENIED")
	owner.mustGrant(name, writing)
	expect("the writer", writer, "view", "")
	expect("the writer", writer, "write", "")
	expect("the writer", writer, "own", "SESSION_ACCESS_DENIED")
	for _, degree := range []string{"view", "write", "own"} {
		expect("a stranger still", stranger, degree, "SESSION_NOT_FOUND")
	}
	owner.mustGrant(name, noAccess)
	for _, degree := range []string{"view", "write", "own"} {
		expect("the writer after all", writer, degree, "SESSION_NOT_FOUND")
	}
	if state := owner.describe(session); !state.GetAttached() || state.GetProcessCount() != 1 {
		t.Errorf("after all that the session is %v", state)
	}
}

// What was granted is used, seen in lists, and hidden from others.
func TestAGrantedSessionIsShared(t *testing.T) {
	server := newServer(t, nil)
	for _, d := range doors {
		t.Run(string(d), func(t *testing.T) {
			owner := newStory(t, server, d)
			guest := newStory(t, server, doors[(len(doors)-1+indexOf(d))%len(doors)])
			name := guest.principal()
			a := owner.lease()
			p := a.run(program("echo"), stdin)
			described := owner.mustGrant(name, writing)
			if described.GetGrants()[name] != writing || len(described.GetGrants()) != 1 {
				t.Errorf("the grants are %v", described.GetGrants())
			}
			seen := guest.describe(owner.session)
			if seen.GetPrincipal() != owner.principal() || len(seen.GetGrants()) != 0 || !seen.GetAttached() {
				t.Errorf("the guest sees %v", seen)
			}
			guest.session = described.GetSessionId()
			guest.write(p.id, "from the guest")
			p.expectOutput(stdoutOf, "from the guest")
			observer := guest.watch(p.id, 0)
			observer.expectOutput(stdoutOf, "from the guest")
			owner.mustGrant(name, noAccess)
			if guest.describe(owner.session) != nil {
				t.Error("the guest still sees the session")
			}
			// What it has open goes on.
			owner.write(p.id, ", and on")
			observer.expectOutput(stdoutOf, ", and on")
			owner.closeStdin(p.id)
			observer.expectEnd(owner, 0, noSignal, byItself)
			owner.closeSession(owner.session)
		})
	}
}

func indexOf(d door) int {
	for i := range doors {
		if doors[i] == d {
			return i
		}
	}
	return 0
}

func TestGrantsAreBounded(t *testing.T) {
	s := newStory(t, newServer(t, nil), inProcess)
	s.lease()
	for i := range 100 {
		s.mustGrant(fmt.Sprint("guest ", i), viewing)
	}
	_, err := s.grant("one more", viewing)
	s.expectReason(err, "INVALID_FIELD")
	s.mustGrant("guest 7", writing) // who has one may get another
	s.mustGrant("guest 8", noAccess)
	if n := len(s.mustGrant("one more", viewing).GetGrants()); n != 100 {
		t.Errorf("%d principals have grants", n)
	}
}
