package client

import (
	"context"
	"iter"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/execwire/execwire/client/execserver"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// The methods about processes that somebody else may own block until the server has
// answered; all but StartDetached, Signal and CloseSession go on after a lost
// connection for a minute and a quarter. Errors are [*Error] or wrap the cause of ctx.
// What they return must not be changed.

// StartDetached starts a process that nobody owns: it goes on when this program ends,
// and its output is kept as far as the server keeps it, for [Client.Attach],
// [Client.Follow] and [Client.ReadOutput]. The request is sent once, and not changed:
// when the connection is lost before the answer, a caller that chose a process id may
// call again with the same request within 25 seconds, and gets the process of the first
// call if there is one. Servers of the exec-server
// protocol end processes with the connection: there it is NOT_IMPLEMENTED, and nothing
// is started.
func (c *Client) StartDetached(ctx context.Context, process *execwirev1.StartProcessRequest) (*execwirev1.Process, error) {
	if endsWithConnection(c.channel.ClientConnInterface) {
		const message = "a process cannot be left behind over the exec-server protocol, where it ends with the connection: reach the server over gRPC"
		return nil, &Error{Code: codes.Unimplemented, Reason: execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED, Message: message,
			status: status.New(codes.Unimplemented, message)}
	}
	response, err := c.processes.StartProcess(ctx, process)
	return response.GetProcess(), answered(ctx, err)
}

// endsWithConnection is whether processes end with the connection by which they were
// started.
func endsWithConnection(channel grpc.ClientConnInterface) bool {
	if inner, is := channel.(confined); is {
		return endsWithConnection(inner.ClientConnInterface)
	}
	_, is := channel.(*execserver.Conn)
	return is
}

// GetProcess describes a process.
func (c *Client) GetProcess(ctx context.Context, process ProcessRef) (*execwirev1.Process, error) {
	response, err := repeat(ctx, c, func(ctx context.Context) (*execwirev1.GetProcessResponse, error) {
		return c.processes.GetProcess(ctx, &execwirev1.GetProcessRequest{SessionId: process.SessionID, ProcessId: process.ProcessID})
	})
	return response.GetProcess(), err
}

// ListProcesses ranges over the processes of a session, whose id may be empty for the
// default session, asking the server for a page at a time. An error ends it.
func (c *Client) ListProcesses(ctx context.Context, sessionID string) iter.Seq2[*execwirev1.Process, error] {
	return pages(func(token string) ([]*execwirev1.Process, string, error) {
		page, err := repeat(ctx, c, func(ctx context.Context) (*execwirev1.ListProcessesResponse, error) {
			return c.processes.ListProcesses(ctx, &execwirev1.ListProcessesRequest{SessionId: sessionID, PageToken: token})
		})
		return page.GetProcesses(), page.GetNextPageToken(), err
	})
}

// pages ranges over what is on all pages.
func pages[T any](page func(token string) ([]T, string, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for token := ""; ; {
			entries, next, err := page(token)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, entry := range entries {
				if !yield(entry, nil) {
					return
				}
			}
			if token = next; token == "" {
				return
			}
		}
	}
}

// ReadOutput returns what the server keeps of a process's events behind
// ReadOptions.AfterSeq, the AfterSeq of process aside. It owns nothing and holds
// nothing up. A Wait is cut to the server's longest; none is less than 0.
func (c *Client) ReadOutput(ctx context.Context, process ProcessRef, options ReadOptions) (*execwirev1.ReadOutputResponse, error) {
	request := &execwirev1.ReadOutputRequest{SessionId: process.SessionID, ProcessId: process.ProcessID, AfterSeq: options.AfterSeq}
	if options.MaxBytes > 0 {
		request.MaxBytes = new(uint32(min(options.MaxBytes, maxPageBytes)))
	}
	if options.Wait > 0 {
		request.Wait = durationpb.New(options.Wait)
	}
	return repeat(ctx, c, func(ctx context.Context) (*execwirev1.ReadOutputResponse, error) {
		return c.processes.ReadOutput(ctx, request)
	})
}

// Signal sends a signal to a process's group. It is asked for once: one whose answer
// was lost may have been sent.
func (c *Client) Signal(ctx context.Context, process ProcessRef, signal syscall.Signal) error {
	_, err := c.processes.SignalProcess(ctx, &execwirev1.SignalProcessRequest{
		SessionId: process.SessionID, ProcessId: process.ProcessID, Signal: execwirev1.Signal(signal)})
	return answered(ctx, err)
}

// Terminate ends a process and its descendants, waits until they are gone, and says by
// what means. One that had to be repeated may say that nothing was running any more, or
// that the process is not known: the first has ended it.
func (c *Client) Terminate(ctx context.Context, process ProcessRef, how Termination) (*execwirev1.TerminateProcessResponse, error) {
	return repeat(ctx, c, func(ctx context.Context) (*execwirev1.TerminateProcessResponse, error) {
		return c.processes.TerminateProcess(ctx, &execwirev1.TerminateProcessRequest{
			SessionId: process.SessionID, ProcessId: process.ProcessID, Termination: how.message()})
	})
}

// ListSessions ranges over the leased sessions of the caller and those it was granted,
// asking the server for a page at a time. An error ends it.
func (c *Client) ListSessions(ctx context.Context) iter.Seq2[*execwirev1.Session, error] {
	return pages(func(token string) ([]*execwirev1.Session, string, error) {
		page, err := repeat(ctx, c, func(ctx context.Context) (*execwirev1.ListSessionsResponse, error) {
			return c.sessions.ListSessions(ctx, &execwirev1.ListSessionsRequest{PageToken: token})
		})
		return page.GetSessions(), page.GetNextPageToken(), err
	})
}

// CloseSession ends a session and its processes, descendants included, and waits until
// nothing of them is left. It is asked for once: one whose answer was lost may have
// ended the session.
func (c *Client) CloseSession(ctx context.Context, id string) error {
	_, err := c.sessions.CloseSession(ctx, &execwirev1.CloseSessionRequest{SessionId: id})
	return answered(ctx, err)
}

// GrantSession lets another principal use a session of the caller, or no longer:
// unspecified access takes back what it could.
func (c *Client) GrantSession(ctx context.Context, id, principal string, access execwirev1.SessionAccess) error {
	_, err := repeat(ctx, c, func(ctx context.Context) (*execwirev1.GrantSessionResponse, error) {
		return c.sessions.GrantSession(ctx, &execwirev1.GrantSessionRequest{SessionId: id, Principal: principal, Access: access})
	})
	return err
}
