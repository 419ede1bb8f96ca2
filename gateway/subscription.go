package gateway

import (
	"slices"

	"github.com/execwire/execwire/gateway/rpcerror"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// Optional notifications.
const (
	notifyStarted = "process/started"
	notifyFailed  = "process/failed"
)

// subscribable are all optional notifications.
var subscribable = []string{notifyStarted, notifyFailed}

// subscribe records the requested notifications and returns those that will be sent;
// nil for a client that requested none.
func (c *connection) subscribe(wanted *[]string) *[]string {
	if wanted == nil {
		return nil
	}
	c.subscribed = make([]string, 0, len(subscribable))
	for _, name := range subscribable {
		if slices.Contains(*wanted, name) {
			c.subscribed = append(c.subscribed, name)
		}
	}
	return &c.subscribed
}

func (c *connection) isSubscribed(name string) bool { return slices.Contains(c.subscribed, name) }

// startedParams is the parameters of process/started.
type startedParams struct {
	ProcessID   processID `json:"processId"`
	PID         int32     `json:"pid"`
	StartedAtMs int64     `json:"startedAtMs"`
}

// failedParams is the parameters of process/failed.
type failedParams struct {
	ProcessID processID      `json:"processId"`
	Error     *jsonrpc.Error `json:"error"`
}

// announceStarted sends after the answer that the process runs.
func (p *startParams) announceStarted(r *request, started *execwirev1.Process) {
	if p.mode.legacy || !r.isSubscribed(notifyStarted) {
		return
	}
	r.follows = jsonrpc.AppendNotification(nil, notifyStarted, startedParams{
		ProcessID: p.ProcessID, PID: started.GetPid(), StartedAtMs: started.GetStartTime().AsTime().UnixMilli()})
}

// announceFailed sends after the answer that the start failed. If the id is in use, its
// process has not failed.
func (p *startParams) announceFailed(r *request, err error, failed *jsonrpc.Error) {
	taken := rpcerror.Reason(err) == execwirev1.ErrorReason_ERROR_REASON_PROCESS_ALREADY_EXISTS
	if p.mode.legacy || taken || !r.isSubscribed(notifyFailed) {
		return
	}
	r.follows = appendFailed(nil, p.ProcessID, failed)
}

// appendLost appends the failure of a process whose exit status is lost.
func (t *processTable) appendLost(dst []byte, p *process, event *execwirev1.ProcessEvent) []byte {
	lost := event.GetExited().GetExit().GetCause() == execwirev1.ExitCause_EXIT_CAUSE_LOST
	if !lost || p.mode.legacy || !t.conn.isSubscribed(notifyFailed) {
		return dst
	}
	return appendFailed(dst, clientProcessID(p.id), &jsonrpc.Error{
		Code:    jsonrpc.CodeInternal,
		Message: "the process ended; its exit status is not available",
		Data:    map[string]string{"exitCause": exitCauses[execwirev1.ExitCause_EXIT_CAUSE_LOST]},
	})
}

func appendFailed(dst []byte, id processID, failed *jsonrpc.Error) []byte {
	return jsonrpc.AppendNotification(dst, notifyFailed, failedParams{
		ProcessID: id, Error: failed})
}
