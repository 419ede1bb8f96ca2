package client

import (
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"syscall"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// The methods for processes that another client may own block until the server has
// answered. All but StartDetached, Signal and CloseSession are retried for 75 seconds
// after a lost connection. Errors are [*Error] or wrap the cause of ctx. Results must
// not be modified.

// StartDetached starts a process without an owner: it continues when this program ends,
// and the server retains its output within its limits, for [Client.Attach],
// [Client.Follow] and [Client.ReadOutput]. The request is not modified and is sent
// once: when the connection is lost before the answer, a caller that chose a process id
// may repeat the same request within 25 seconds and gets the process of the first call,
// if there is one. Servers of the exec-server protocol end processes with the
// connection; there it fails with NOT_IMPLEMENTED and starts nothing.
func (c *Client) StartDetached(ctx context.Context, process *execwirev1.StartProcessRequest) (*execwirev1.Process, error) {
	response, err := once(ctx, c.life, c.processes.StartProcess, process)
	return response.GetProcess(), err
}

// GetProcess describes a process.
func (c *Client) GetProcess(ctx context.Context, process ProcessRef) (*execwirev1.Process, error) {
	response, err := repeatCall(ctx, c.life, c.processes.GetProcess, &execwirev1.GetProcessRequest{SessionId: process.SessionID, ProcessId: process.ProcessID})
	return response.GetProcess(), err
}

// ListProcesses ranges over the processes of a session; an empty id is the default
// session. It fetches one page at a time and stops at the first error.
func (c *Client) ListProcesses(ctx context.Context, sessionID string) iter.Seq2[*execwirev1.Process, error] {
	return c.list(ctx, &execwirev1.ListProcessesRequest{SessionId: sessionID})
}

// ListProcessesOutput is ListProcesses with the last bytes of each stream of each process
// in its last_output: at most that many, and 4096.
func (c *Client) ListProcessesOutput(ctx context.Context, sessionID string, lastBytes int) iter.Seq2[*execwirev1.Process, error] {
	return c.list(ctx, &execwirev1.ListProcessesRequest{SessionId: sessionID, LastOutputBytes: uint32(min(max(lastBytes, 0), 4096))})
}

// list ranges over the processes of all pages that a request selects.
func (c *Client) list(ctx context.Context, request *execwirev1.ListProcessesRequest) iter.Seq2[*execwirev1.Process, error] {
	return pages(func(token string) ([]*execwirev1.Process, string, error) {
		next := proto.CloneOf(request) // ranges may be concurrent
		next.PageToken = token
		page, err := repeatCall(ctx, c.life, c.processes.ListProcesses, next)
		return page.GetProcesses(), page.GetNextPageToken(), err
	})
}

// pages ranges over the items of all pages.
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

// ReadOutput returns the retained events of a process after ReadOptions.AfterSeq; the
// AfterSeq of process is ignored. It does not own the process or slow it down. Wait is
// limited to the longest wait of the server; a negative one is 0.
func (c *Client) ReadOutput(ctx context.Context, process ProcessRef, options ReadOptions) (*execwirev1.ReadOutputResponse, error) {
	request := &execwirev1.ReadOutputRequest{SessionId: process.SessionID, ProcessId: process.ProcessID, AfterSeq: options.AfterSeq}
	if options.MaxBytes > 0 {
		request.MaxBytes = new(uint32(min(options.MaxBytes, maxPageBytes)))
	}
	if options.Wait > 0 {
		request.Wait = durationpb.New(options.Wait)
	}
	return repeatCall(ctx, c.life, c.processes.ReadOutput, request)
}

// Resize sets the size of the terminal of a process; rows and columns are 1 to 65535.
func (c *Client) Resize(ctx context.Context, process ProcessRef, rows, columns uint32) error {
	_, err := repeatCall(ctx, c.life, c.processes.ResizeTerminal, &execwirev1.ResizeTerminalRequest{
		SessionId: process.SessionID, ProcessId: process.ProcessID, Size: &execwirev1.TerminalSize{Rows: rows, Columns: columns}})
	return err
}

// ScreenOptions select what [Client.GetScreen] returns.
type ScreenOptions struct {
	// Styles has the styles of lines returned.
	Styles bool
	// Repaint has GetScreenResponse.Repaint returned.
	Repaint bool
}

// GetScreen returns what the terminal of a process shows, also after its exit; the AfterSeq of process
// is ignored. It does not own the process or slow it down.
func (c *Client) GetScreen(ctx context.Context, process ProcessRef, options ScreenOptions) (*execwirev1.GetScreenResponse, error) {
	return repeatCall(ctx, c.life, c.processes.GetScreen, &execwirev1.GetScreenRequest{
		SessionId: process.SessionID, ProcessId: process.ProcessID, Styles: options.Styles, Repaint: options.Repaint})
}

// WatchScreen ranges over what the terminal of a process shows: at first and after changes, at most 20
// times a second, until the process has closed. Each Screen has all lines, and is not changed later. It
// continues after a lost connection and stops at the first error; the AfterSeq of process is ignored. It
// does not own the process or slow it down.
func (c *Client) WatchScreen(ctx context.Context, process ProcessRef, options ScreenOptions) iter.Seq2[*execwirev1.Screen, error] {
	request := &execwirev1.WatchScreenRequest{SessionId: process.SessionID, ProcessId: process.ProcessID, Styles: options.Styles}
	return func(yield func(*execwirev1.Screen, error) bool) {
		ctx, done := c.life.within(ctx)
		defer done()
		stopped := false
		var conn connState
		err := conn.repeat(ctx, func(ctx context.Context) error {
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(errStreamOver)
			stream, err := c.processes.WatchScreen(ctx, request)
			if err != nil {
				return err
			}
			for shown := (*execwirev1.Screen)(nil); ; {
				response, err := stream.Recv()
				switch {
				case errors.Is(err, io.EOF):
					return nil
				case err != nil:
					return err
				}
				conn.setConnected()
				conn.resetFailures()
				shown = changedScreen(shown, response.GetScreen())
				if stopped = !yield(shown, nil); stopped {
					return nil
				}
			}
		})
		if err != nil && !stopped {
			yield(nil, err)
		}
	}
}

// changedScreen returns a screen with the lines of before and those of change.
func changedScreen(before, change *execwirev1.Screen) *execwirev1.Screen {
	if len(change.GetLines()) < int(change.GetSize().GetRows()) && before != nil {
		lines := slices.Clone(before.GetLines())
		for _, line := range change.GetLines() {
			if int(line.GetRow()) < len(lines) {
				lines[line.GetRow()] = line
			}
		}
		change.Lines = lines
	}
	return change
}

// Signal sends a signal to the process group. It is sent once: if the answer is lost,
// the signal may have been delivered. Signals have the numbers of Linux, those of
// [execwirev1.Signal]: on macOS some of package syscall differ, such as SIGUSR1.
func (c *Client) Signal(ctx context.Context, process ProcessRef, signal syscall.Signal) error {
	_, err := once(ctx, c.life, c.processes.SignalProcess, &execwirev1.SignalProcessRequest{
		SessionId: process.SessionID, ProcessId: process.ProcessID, Signal: execwirev1.Signal(signal)})
	return err
}

// Terminate ends a process and its descendants, waits until they are gone, and returns
// the method used. If the call was retried, the answer may be that the process was not
// running or is unknown: the first attempt ended it.
func (c *Client) Terminate(ctx context.Context, process ProcessRef, how Termination) (*execwirev1.TerminateProcessResponse, error) {
	return repeatCall(ctx, c.life, c.processes.TerminateProcess, &execwirev1.TerminateProcessRequest{
		SessionId: process.SessionID, ProcessId: process.ProcessID, Termination: how.message()})
}

// ListSessions ranges over the leased sessions of the caller and those granted to it.
// It fetches one page at a time and stops at the first error.
func (c *Client) ListSessions(ctx context.Context) iter.Seq2[*execwirev1.Session, error] {
	return pages(func(token string) ([]*execwirev1.Session, string, error) {
		page, err := repeatCall(ctx, c.life, c.sessions.ListSessions, &execwirev1.ListSessionsRequest{PageToken: token})
		return page.GetSessions(), page.GetNextPageToken(), err
	})
}

// CloseSession ends a session with its processes and their descendants, and waits until
// they are gone. It is sent once: if the answer is lost, the session may have ended.
func (c *Client) CloseSession(ctx context.Context, id string) error {
	_, err := once(ctx, c.life, c.sessions.CloseSession, &execwirev1.CloseSessionRequest{SessionId: id})
	return err
}

// GrantSession gives another principal access to a session of the caller. Unspecified
// access revokes it.
func (c *Client) GrantSession(ctx context.Context, id, principal string, access execwirev1.SessionAccess) error {
	_, err := repeatCall(ctx, c.life, c.sessions.GrantSession, &execwirev1.GrantSessionRequest{SessionId: id, Principal: principal, Access: access})
	return err
}

// ProcessRef identifies an existing process.
type ProcessRef struct {
	// SessionID is its session; empty is the default session.
	SessionID string
	// ProcessID is the id of the process. Required.
	ProcessID string
	// AfterSeq is the seq of the last event that the caller has, which is thereby
	// acknowledged; 0 begins with everything retained.
	AfterSeq uint64
}
