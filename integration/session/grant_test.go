package session

import (
	"fmt"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// principal returns the server's name for callers of the scenario's transport.
func principal(s *harness.Scenario) string {
	s.Helper()
	session := s.Session
	defer func() { s.Session = session }()
	a := s.Lease(harness.WithLeaseGrace(0))
	defer a.Leave(harness.ErrDisconnect)
	return a.Response.GetSession().GetPrincipal()
}

func grant(s *harness.Scenario, to string, access execwirev1.SessionAccess) (*execwirev1.Session, error) {
	response, err := s.Leases.GrantSession(s.Ctx, &execwirev1.GrantSessionRequest{SessionId: s.Session, Principal: to, Access: access})
	return response.GetSession(), err
}

func mustGrant(s *harness.Scenario, to string, access execwirev1.SessionAccess) *execwirev1.Session {
	s.Helper()
	described, err := grant(s, to, access)
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

// calls are all RPCs about a session, by the access they need. Each returns its error.
func calls(s *harness.Scenario, session, id string) map[string]map[string]error {
	first := func(err error, receive func() error) error {
		if err == nil {
			err = receive()
		}
		return err
	}
	watch := func() error {
		stream, err := s.Processes.WatchProcess(s.Ctx, &execwirev1.WatchProcessRequest{SessionId: session, ProcessId: id})
		return first(err, func() error { _, err := stream.Recv(); return err })
	}
	run := func(m *execwirev1.RunProcessRequest) error {
		stream, err := s.Processes.RunProcess(s.Ctx)
		return first(err, func() error {
			_ = stream.Send(m)
			_, err := stream.Recv()
			return err
		})
	}
	attach := func() error {
		stream, err := s.Leases.AttachSession(s.Ctx)
		return first(err, func() error {
			_ = stream.Send(&execwirev1.AttachSessionRequest{Message: &execwirev1.AttachSessionRequest_Attach{
				Attach: &execwirev1.SessionAttach{SessionId: session}}})
			_, err := stream.Recv()
			return err
		})
	}
	errorOf := func(_ any, err error) error { return err }
	start := &execwirev1.StartProcessRequest{SessionId: session, Command: s.Request(harness.Shell("exit")).GetProcess().GetCommand()}
	zero := uint32(0)
	return map[string]map[string]error{
		"view": {
			"GetProcess":     errorOf(s.Processes.GetProcess(s.Ctx, &execwirev1.GetProcessRequest{SessionId: session, ProcessId: id})),
			"ListProcesses":  errorOf(s.Processes.ListProcesses(s.Ctx, &execwirev1.ListProcessesRequest{SessionId: session})),
			"ReadOutput":     errorOf(s.Processes.ReadOutput(s.Ctx, &execwirev1.ReadOutputRequest{SessionId: session, ProcessId: id, MaxBytes: &zero})),
			"SnapshotOutput": errorOf(s.Processes.SnapshotOutput(s.Ctx, &execwirev1.SnapshotOutputRequest{SessionId: session, ProcessId: id})),
			"WaitProcess": errorOf(s.Processes.WaitProcess(s.Ctx, &execwirev1.WaitProcessRequest{SessionId: session, ProcessId: id,
				Condition: &execwirev1.WaitProcessRequest_Exit{Exit: &execwirev1.WaitForExit{}}})),
			"WatchProcess": watch(),
		},
		"write": {
			"WriteStdin":       errorOf(s.Processes.WriteStdin(s.Ctx, &execwirev1.WriteStdinRequest{SessionId: session, ProcessId: id, Data: []byte("x")})),
			"CloseStdin":       errorOf(s.Processes.CloseStdin(s.Ctx, &execwirev1.CloseStdinRequest{SessionId: session, ProcessId: id})),
			"ResizeTerminal":   errorOf(s.Processes.ResizeTerminal(s.Ctx, &execwirev1.ResizeTerminalRequest{SessionId: session, ProcessId: id, Size: &execwirev1.TerminalSize{Rows: 1, Columns: 1}})),
			"SignalProcess":    errorOf(s.Processes.SignalProcess(s.Ctx, &execwirev1.SignalProcessRequest{SessionId: session, ProcessId: id, Signal: harness.Sigterm})),
			"TerminateProcess": errorOf(s.Processes.TerminateProcess(s.Ctx, &execwirev1.TerminateProcessRequest{SessionId: session, ProcessId: id})),
		},
		"own": {
			"StartProcess":     errorOf(s.Processes.StartProcess(s.Ctx, start)),
			"RunProcess start": run(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Start{Start: &execwirev1.RunStart{Process: start}}}),
			"RunProcess resume": run(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Resume{
				Resume: &execwirev1.RunResume{SessionId: session, ProcessId: id}}}),
			"AttachSession": attach(),
			"GrantSession":  errorOf(s.Leases.GrantSession(s.Ctx, &execwirev1.GrantSessionRequest{SessionId: session, Principal: "x", Access: viewing})),
			"CloseSession":  errorOf(s.Leases.CloseSession(s.Ctx, &execwirev1.CloseSessionRequest{SessionId: session})),
		},
	}
}

// Every RPC by every caller: other principals find nothing, viewers can view, writers can
// write, and only the principal itself is the owner. The process has closed, so permitted
// calls have no effect.
func TestGrant_AllowsOnlyItsPermissions(t *testing.T) {
	server := harness.NewServer(t, nil)
	owner, other, viewer := harness.NewScenario(t, server, harness.TCPTransport), harness.NewScenario(t, server, harness.UnixTransport), harness.NewScenario(t, server, harness.InProcess)
	writer := viewer
	name := principal(viewer)
	a := owner.Lease()
	p := runAttached(a, harness.Shell("exit 0"))
	p.AwaitClosed()
	session := owner.Session

	expect := func(who string, s *harness.Scenario, degree, want string) {
		t.Helper()
		for call, err := range calls(s, session, p.ID)[degree] {
			if got := harness.ReasonOf(err); got == want || want == "" && got != "SESSION_NOT_FOUND" && got != "SESSION_ACCESS_DENIED" {
				continue
			}
			t.Errorf("%s, %s: %v, want %q", who, call, err, want)
		}
	}
	for _, degree := range []string{"view", "write", "own"} {
		expect("another principal", other, degree, "SESSION_NOT_FOUND")
		expect("the viewer before the grant", viewer, degree, "SESSION_NOT_FOUND")
	}
	mustGrant(owner, name, viewing)
	expect("the viewer", viewer, "view", "")
	expect("the viewer", viewer, "write", "SESSION_ACCESS_DENIED")
	expect("the viewer", viewer, "own", "SESSION_ACCESS_DENIED")
	mustGrant(owner, name, writing)
	expect("the writer", writer, "view", "")
	expect("the writer", writer, "write", "")
	expect("the writer", writer, "own", "SESSION_ACCESS_DENIED")
	for _, degree := range []string{"view", "write", "own"} {
		expect("another principal still", other, degree, "SESSION_NOT_FOUND")
	}
	mustGrant(owner, name, noAccess)
	for _, degree := range []string{"view", "write", "own"} {
		expect("the writer after all", writer, degree, "SESSION_NOT_FOUND")
	}
	if state := describeSession(owner, session); !state.GetAttached() || state.GetProcessCount() != 1 {
		t.Errorf("after all that the session is %v", state)
	}
}

// Grants take effect, are listed for the owner, and hidden from others.
func TestGrant_SharesASession(t *testing.T) {
	server := harness.NewServer(t, nil)
	for _, d := range harness.Transports {
		t.Run(string(d), func(t *testing.T) {
			owner := harness.NewScenario(t, server, d)
			guest := harness.NewScenario(t, server, harness.Transports[(len(harness.Transports)-1+indexOf(d))%len(harness.Transports)])
			name := principal(guest)
			a := owner.Lease()
			p := runAttached(a, harness.Program("echo"), harness.WithStdin)
			described := mustGrant(owner, name, writing)
			if described.GetGrants()[name] != writing || len(described.GetGrants()) != 1 {
				t.Errorf("the grants are %v", described.GetGrants())
			}
			seen := describeSession(guest, owner.Session)
			if seen.GetPrincipal() != principal(owner) || len(seen.GetGrants()) != 0 || !seen.GetAttached() {
				t.Errorf("the guest sees %v", seen)
			}
			guest.Session = described.GetSessionId()
			guest.Write(p.ID, "from the guest")
			p.ExpectOutput(harness.StdoutOf, "from the guest")
			observer := guest.Watch(p.ID, 0)
			observer.ExpectOutput(harness.StdoutOf, "from the guest")
			mustGrant(owner, name, noAccess)
			if describeSession(guest, owner.Session) != nil {
				t.Error("the guest still sees the session")
			}
			// Its open streams continue.
			owner.Write(p.ID, ", and on")
			observer.ExpectOutput(harness.StdoutOf, ", and on")
			owner.CloseStdin(p.ID)
			observer.ExpectEnd(owner, 0, harness.NoSignal, harness.ByItself)
			closeSession(owner, owner.Session)
		})
	}
}

func indexOf(d harness.Transport) int {
	for i := range harness.Transports {
		if harness.Transports[i] == d {
			return i
		}
	}
	return 0
}

func TestGrant_Count_IsLimited(t *testing.T) {
	s := harness.NewScenario(t, harness.NewServer(t, nil), harness.InProcess)
	s.Lease()
	for i := range 100 {
		mustGrant(s, fmt.Sprint("guest ", i), viewing)
	}
	_, err := grant(s, "one more", viewing)
	s.ExpectReason(err, "INVALID_FIELD")
	mustGrant(s, "guest 7", writing) // an existing grant can be changed
	mustGrant(s, "guest 8", noAccess)
	if n := len(mustGrant(s, "one more", viewing).GetGrants()); n != 100 {
		t.Errorf("%d principals have grants", n)
	}
}
