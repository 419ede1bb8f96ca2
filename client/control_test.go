package client

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// fakeUnaryConn is a channel that fails a number of unary calls and answers the others
// by a function.
type fakeUnaryConn struct {
	unreachable
	lost   int
	answer func(request any) (proto.Message, error)
	asked  []any
}

func (a *fakeUnaryConn) Invoke(_ context.Context, _ string, request, reply any, _ ...grpc.CallOption) error {
	if a.lost > 0 {
		a.lost--
		return errCut
	}
	a.asked = append(a.asked, request)
	answer, err := a.answer(request)
	if err == nil {
		proto.Merge(reply.(proto.Message), answer)
	}
	return err
}

func TestList_ReturnsAllPagesAcrossLostConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		channel := &fakeUnaryConn{lost: 2, answer: func(request any) (proto.Message, error) {
			switch r := request.(type) {
			case *execwirev1.ListProcessesRequest:
				if r.GetPageToken() == "" {
					return &execwirev1.ListProcessesResponse{Processes: []*execwirev1.Process{{ProcessId: r.GetSessionId() + "1"}}, NextPageToken: "2"}, nil
				}
				return &execwirev1.ListProcessesResponse{Processes: []*execwirev1.Process{{ProcessId: r.GetSessionId() + r.GetPageToken()}}}, nil
			case *execwirev1.ListSessionsRequest:
				if r.GetPageToken() == "" {
					return &execwirev1.ListSessionsResponse{NextPageToken: "2"}, nil
				}
				return &execwirev1.ListSessionsResponse{Sessions: []*execwirev1.Session{{SessionId: "s"}}}, nil
			}
			return nil, serverError(codes.Unimplemented, execwirev1.ErrorReason_ERROR_REASON_INTERNAL)
		}}
		c := New(channel)
		var got []string
		for p, err := range c.ListProcesses(t.Context(), "p") {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, p.GetProcessId())
		}
		for s, err := range c.ListSessions(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, s.GetSessionId())
		}
		for range c.ListProcesses(t.Context(), "") {
			break
		}
		if first := channel.asked[0].(*execwirev1.ListProcessesRequest); first.GetPageToken() != "" {
			t.Error("a request was changed after it was sent")
		}
		if !slices.Equal(got, []string{"p1", "p2", "s"}) {
			t.Errorf("got %q", got)
		}
	})
}

func TestList_Failure_ReturnsError(t *testing.T) {
	c := New(&fakeUnaryConn{answer: func(any) (proto.Message, error) {
		return nil, serverError(codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND)
	}})
	n := 0
	for p, err := range c.ListProcesses(t.Context(), "s") {
		if n++; p != nil || Reason(err) != execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND {
			t.Errorf("got %v, %v", p, err)
		}
	}
	if n != 1 {
		t.Errorf("told %d times", n)
	}
}

// Each call is made once, and its request compared.
func TestControlCalls_SendArguments(t *testing.T) {
	ref := ProcessRef{SessionID: "s", ProcessID: "p", AfterSeq: 9}
	timeout := time.Second
	for name, test := range map[string]struct {
		call func(context.Context, *Client) error
		want proto.Message
	}{
		"GetProcess": {func(ctx context.Context, c *Client) error { _, err := c.GetProcess(ctx, ref); return err },
			&execwirev1.GetProcessRequest{SessionId: "s", ProcessId: "p"}},
		"ReadOutput": {func(ctx context.Context, c *Client) error {
			_, err := c.ReadOutput(ctx, ref, ReadOptions{AfterSeq: 3, MaxBytes: 1 << 40})
			return err
		}, &execwirev1.ReadOutputRequest{SessionId: "s", ProcessId: "p", AfterSeq: 3, MaxBytes: new(uint32(maxPageBytes))}},
		"Signal": {func(ctx context.Context, c *Client) error { return c.Signal(ctx, ref, 15) },
			&execwirev1.SignalProcessRequest{SessionId: "s", ProcessId: "p", Signal: execwirev1.Signal_SIGNAL_TERM}},
		"Terminate": {func(ctx context.Context, c *Client) error {
			_, err := c.Terminate(ctx, ref, Termination{Timeout: &timeout})
			return err
		}, &execwirev1.TerminateProcessRequest{SessionId: "s", ProcessId: "p", Termination: Termination{Timeout: &timeout}.message()}},
		"StartDetached": {func(ctx context.Context, c *Client) error { _, err := c.StartDetached(ctx, direct("x")); return err }, direct("x")},
		"CloseSession":  {func(ctx context.Context, c *Client) error { return c.CloseSession(ctx, "s") }, &execwirev1.CloseSessionRequest{SessionId: "s"}},
		"GrantSession": {func(ctx context.Context, c *Client) error {
			return c.GrantSession(ctx, "s", "uid:1", execwirev1.SessionAccess_SESSION_ACCESS_VIEW)
		}, &execwirev1.GrantSessionRequest{SessionId: "s", Principal: "uid:1", Access: execwirev1.SessionAccess_SESSION_ACCESS_VIEW}},
	} {
		t.Run(name, func(t *testing.T) {
			channel := &fakeUnaryConn{answer: func(any) (proto.Message, error) {
				return nil, serverError(codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND)
			}}
			err := test.call(t.Context(), New(channel))
			var typed *Error
			if !errors.As(err, &typed) || typed.Reason != execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND {
				t.Errorf("got %v", err)
			}
			if len(channel.asked) != 1 || !proto.Equal(channel.asked[0].(proto.Message), test.want) {
				t.Errorf("asked %v, want %v", channel.asked, test.want)
			}
		})
	}
}

func TestTermination_Message(t *testing.T) {
	if (Termination{}).message().GetMode() != nil {
		t.Error("the zero value asks for more than the default")
	}
	none := time.Duration(0)
	if graceful := (Termination{Timeout: &none}).message().GetGraceful(); graceful.GetTimeout() == nil || graceful.GetTimeout().AsDuration() != 0 {
		t.Errorf("no time at all is %v", graceful)
	}
	if (Termination{Force: true, Timeout: &none}).message().GetForce() == nil {
		t.Error("force is not forced")
	}
}
