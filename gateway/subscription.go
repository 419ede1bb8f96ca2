package gateway

import (
	"slices"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Notifications that clients get only if they ask for them.
const (
	notifyStarted = "process/started"
	notifyFailed  = "process/failed"
)

// subscribable are all of them.
var subscribable = []string{notifyStarted, notifyFailed}

// subscribe notes which notifications the client wants, and returns those of them
// that will be sent, nil for a client that did not ask.
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

// startedNews are the parameters of process/started.
type startedNews struct {
	ProcessID   string `json:"processId"`
	PID         int32  `json:"pid"`
	StartedAtMs int64  `json:"startedAtMs"`
}

// failedNews are the parameters of process/failed.
type failedNews struct {
	ProcessID string    `json:"processId"`
	Error     newsError `json:"error"`
}

// newsError is an error as responses have it.
type newsError struct {
	Code    int    `json:"code"`
	Data    any    `json:"data,omitempty"`
	Message string `json:"message"`
}

// announceStarted has the client told after the answer that the process runs.
func (p *startParams) announceStarted(r *request, started *execwirev1.Process) {
	if p.manner.older || !r.isSubscribed(notifyStarted) {
		return
	}
	r.follows = jsonrpc.AppendNotification(nil, notifyStarted, startedNews{
		ProcessID: p.ProcessID, PID: started.GetPid(), StartedAtMs: started.GetStartTime().AsTime().UnixMilli()})
}

// announceFailed has the client told after the answer that there is no process.
// Where the id is taken there is one, which has not failed.
func (p *startParams) announceFailed(r *request, err error, failed *jsonrpc.Error) {
	taken := reasonOf(err) == execwirev1.ErrorReason_ERROR_REASON_PROCESS_ALREADY_EXISTS
	if p.manner.older || taken || !r.isSubscribed(notifyFailed) {
		return
	}
	r.follows = appendFailed(nil, p.ProcessID, failed)
}

// appendLost appends that a process failed whose exit the event tells without
// that anybody knows how it ended.
func (c *connection) appendLost(dst []byte, p *process, event *execwirev1.ProcessEvent) []byte {
	lost := event.GetExited().GetExit().GetCause() == execwirev1.ExitCause_EXIT_CAUSE_LOST
	if !lost || p.manner.older || !c.isSubscribed(notifyFailed) {
		return dst
	}
	return appendFailed(dst, clientProcessID(p.id), &jsonrpc.Error{
		Code:    jsonrpc.CodeInternal,
		Message: "the process is gone, and the operating system did not say how it ended",
		Data:    map[string]string{"exitCause": exitCauses[execwirev1.ExitCause_EXIT_CAUSE_LOST]},
	})
}

func appendFailed(dst []byte, processID string, failed *jsonrpc.Error) []byte {
	return jsonrpc.AppendNotification(dst, notifyFailed, failedNews{
		ProcessID: processID, Error: newsError{Code: failed.Code, Data: failed.Data, Message: failed.Message}})
}
