package execserver

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
)

func TestStart_Repeated_RunsOnce(t *testing.T) {
	conn := dial(t, newGateway(t).address)
	for range 3 {
		started, err := start(t, conn, script("p", "exec sleep 1000"))
		if err != nil || started.GetProcess().GetProcessId() != "p" {
			t.Fatalf("got %v, %v", started, err)
		}
	}
	_, err := start(t, conn, script("p", "true"))
	if errorinfo.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_PROCESS_ALREADY_EXISTS {
		t.Errorf("another process with the id: %v", err)
	}
	_, err = start(t, conn, program("q", "/no/such"))
	if errorinfo.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_PROGRAM_NOT_FOUND || status.Code(err) != codes.NotFound {
		t.Errorf("a missing program: %v", err)
	}
}

func TestUnsupportedCalls_AreNotImplemented(t *testing.T) {
	conn := dial(t, newGateway(t).address)
	_, err := execwirev1.NewSessionServiceClient(conn).ListSessions(t.Context(), &execwirev1.ListSessionsRequest{})
	if status.Code(err) != codes.Unimplemented || errorinfo.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED {
		t.Errorf("a list of sessions: %v", err)
	}
	stream, err := execwirev1.NewSessionServiceClient(conn).AttachSession(t.Context())
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.Unimplemented || errorinfo.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED {
		t.Errorf("attaching a session: %v", err)
	}
	_, err = execwirev1.NewProcessServiceClient(conn).StartProcess(t.Context(), script("p", "true"))
	if status.Code(err) != codes.Unimplemented || errorinfo.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED {
		t.Errorf("a process without an owner: %v", err)
	}
}

func TestConn_Closed_CallsFail(t *testing.T) {
	conn := dial(t, newGateway(t).address)
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := start(t, conn, script("p", "true"))
	var gone interface{ ConnectionGone() bool }
	if !errors.Is(err, ErrClosed) || !errors.As(err, &gone) || status.Code(err) != codes.Unavailable {
		t.Errorf("got %v", err)
	}
}

func TestStart_MissingDirectory_IsNotAMissingProgram(t *testing.T) {
	server := newGateway(t)
	for _, newer := range []bool{false, true} {
		conn := dial(t, server.address, asReference(t, newer))
		_, err := start(t, conn, program("p", "/no/such"))
		if errorinfo.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_PROGRAM_NOT_FOUND {
			t.Errorf("a missing program: %v", err)
		}
		nowhere := script("p", "true")
		nowhere.GetCommand().GetDirect().WorkingDirectory = "/no/such"
		_, err = start(t, conn, nowhere)
		if errorinfo.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_BAD_WORKING_DIRECTORY {
			t.Errorf("a missing directory: %v", err)
		}
	}
}

// TestCurrent_LostLink_WaitsForTheFirstAttempt stops between the loss of a link and the
// moment at which keep notices it: the link is of no use then, and no attempt to
// replace it has failed.
func TestCurrent_LostLink_WaitsForTheFirstAttempt(t *testing.T) {
	newLink := func() *link {
		l := &link{}
		l.over, l.end = context.WithCancelCause(t.Context())
		return l
	}
	c := &Conn{}
	c.ctx, c.cancel = context.WithCancelCause(t.Context())
	defer c.cancel(nil)
	first, second := newLink(), newLink()
	defer second.end(nil)
	c.setLink(first, nil)
	if l, err := c.current(t.Context()); l != first || err != nil {
		t.Fatalf("current() is %p, %v, want the link %p", l, err, first)
	}
	first.end(errors.New("cut"))
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if l, err := c.current(over); l != nil || status.Code(err) != codes.Canceled {
		t.Errorf("current() is %p, %v, want to wait for the next link", l, err)
	}
	c.setLink(nil, errors.New("refused"))
	if l, err := c.current(t.Context()); l != nil || status.Code(err) != codes.Unavailable {
		t.Errorf("after a failed attempt current() is %p, %v, want Unavailable", l, err)
	}
	c.setLink(second, nil)
	if l, err := c.current(t.Context()); l != second || err != nil {
		t.Errorf("current() is %p, %v, want the link %p", l, err, second)
	}
}
