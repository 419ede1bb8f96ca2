package gateway

import "github.com/execwire/execwire/internal/jsonrpc"

// Optional notifications.
const (
	notifyStarted = "process/started"
	notifyFailed  = "process/failed"
)

// subscribable are all optional notifications.
var subscribable = []string{notifyStarted, notifyFailed}

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

func appendFailed(dst []byte, id processID, failed *jsonrpc.Error) []byte {
	return jsonrpc.AppendNotification(dst, notifyFailed, failedParams{
		ProcessID: id, Error: failed})
}
