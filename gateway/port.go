package gateway

import (
	"context"
	"encoding/json"
	"io"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/gateway/call"
	"github.com/execwire/execwire/gateway/rpcerror"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// ofProcess is embedded in the parameters of calls on one process, or on all of the session.
type ofProcess struct {
	ProcessID *processID `param:"processId,optional"`
}

// portCall is a call on one process, or on all.
type portCall interface{ server() string }

// server returns the server's id of the process; "" is all.
func (p *ofProcess) server() string {
	if p.ProcessID == nil {
		return ""
	}
	return p.ProcessID.server()
}

func (p *ofProcess) failure(err error) *jsonrpc.Error {
	if p.ProcessID == nil {
		return rpcerror.Of(err)
	}
	return processError(*p.ProcessID, err)
}

// portListParams is the parameters of port/list.
type portListParams struct{ ofProcess }

// portListResult is the result of port/list.
type portListResult struct {
	Ports     []listedPort `json:"ports"`
	Truncated bool         `json:"truncated"`

	release func()
}

var _ call.SendObserver = (*portListResult)(nil)

// listedPort is a port in results and notifications.
type listedPort struct {
	Address   string    `json:"address"`
	Port      uint32    `json:"port"`
	ProcessID processID `json:"processId"`
	PID       int32     `json:"pid"`
	Program   string    `json:"program"`
}

func listedPorts(ports []*execwirev1.Port) []listedPort {
	listed := make([]listedPort, len(ports))
	for i, p := range ports {
		listed[i] = listedPort{p.GetAddress(), p.GetPort(), clientProcessID(p.GetProcessId()), p.GetPid(), p.GetProgram()}
	}
	return listed
}

func (p *portListParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	return r.outputAnswers.Prepare(ctx, func(release func()) (any, *jsonrpc.Error) {
		list, err := r.ports.ListPorts(ctx, &execwirev1.ListPortsRequest{SessionId: r.session.id, ProcessId: p.server()})
		if err != nil {
			return nil, p.failure(err)
		}
		return &portListResult{listedPorts(list.GetPorts()), list.GetTruncated(), release}, nil
	})
}

func (l *portListResult) Sent() { l.release() }

// portWatchParams is the parameters of port/watch.
type portWatchParams struct {
	call.OnWatch
	ofProcess
}

// portWatchResult is the result of port/watch, with the ports that are open.
type portWatchResult struct {
	*call.WatchStarted
	*portListResult
}

// Sent implements [call.SendObserver].
func (w *portWatchResult) Sent() {
	w.portListResult.Sent()
	w.WatchStarted.Sent()
}

func (p *portWatchParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	return r.outputAnswers.Prepare(ctx, func(release func()) (any, *jsonrpc.Error) {
		started, first, failed := call.StartWatch(ctx, r.watches, p.WatchID(), call.Stream[execwirev1.WatchPortsResponse]{
			Open: func(ctx context.Context) (grpc.ServerStreamingClient[execwirev1.WatchPortsResponse], error) {
				return r.ports.WatchPorts(ctx, &execwirev1.WatchPortsRequest{SessionId: r.session.id, ProcessId: p.server()})
			},
			Explain: p.failure, Follow: r.followPorts,
		})
		if failed != nil {
			return nil, failed
		}
		return &portWatchResult{started, &portListResult{listedPorts(first.GetOpened()), first.GetTruncated(), release}}, nil
	})
}

// portsChanged is the parameters of port/changed.
type portsChanged struct {
	WatchID   json.RawMessage `json:"watchId"`
	Closed    []listedPort    `json:"closed"`
	Opened    []listedPort    `json:"opened"`
	Truncated bool            `json:"truncated"`
	Ended     bool            `json:"ended"`
	Error     *jsonrpc.Error  `json:"error,omitempty"`
}

// followPorts sends changes as fast as the client reads, until the watch ends. The server combines
// what the client does not read.
func (c *connection) followPorts(ctx context.Context, w *call.Watch, stream grpc.ServerStreamingClient[execwirev1.WatchPortsResponse]) {
	const method = "port/changed"
	for {
		message, err := stream.Recv()
		changed := portsChanged{WatchID: w.ID(), Closed: listedPorts(message.GetClosed()), Opened: listedPorts(message.GetOpened()),
			Truncated: message.GetTruncated(), Ended: err != nil}
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			c.watches.Notify(method, changed)
			continue
		case err != io.EOF:
			changed.Error = rpcerror.Of(err)
		}
		c.watches.NotifyLast(w, method, changed)
		return
	}
}

// portUnwatchParams is the parameters of port/unwatch.
type portUnwatchParams struct{ call.OnWatch }

// run answers after the last notification of the watch.
func (p *portUnwatchParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	return r.watches.End(ctx, p.WatchID())
}
