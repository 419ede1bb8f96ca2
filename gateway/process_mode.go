package gateway

import (
	"strconv"

	"github.com/execwire/execwire/gateway/rpcerror"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// processMode is how a process was started, as far as its notifications depend on it.
// The zero value is process/start.
type processMode struct {
	// legacy selects the notifications of command/exec.
	legacy bool
	// window is the largest number of unacknowledged bytes of output; 0 is the
	// session's.
	window int
}

// Labels with which the server keeps the mode for a connection that resumes the
// session.
const (
	dialectLabel  = "gateway.dialect"
	legacyDialect = "command/exec"
	windowLabel   = "gateway.window_bytes"
)

// labels returns the labels of the mode; nil for the zero mode.
func (m processMode) labels() map[string]string {
	if m == (processMode{}) {
		return nil
	}
	labels := make(map[string]string, 2)
	if m.legacy {
		labels[dialectLabel] = legacyDialect
	}
	if m.window > 0 {
		labels[windowLabel] = strconv.Itoa(m.window)
	}
	return labels
}

// processModeOf is the inverse of labels. Other clients may have set the labels to
// anything.
func processModeOf(described *execwirev1.Process) processMode {
	labels := described.GetLabels()
	window, err := strconv.Atoi(labels[windowLabel])
	if err != nil {
		window = 0
	}
	return processMode{legacy: labels[dialectLabel] == legacyDialect, window: max(window, 0)}
}

// learnMode gets the mode of a process with its first event. In a resumed session a
// connection that was lost may have requested the start. Without the mode no events can
// be sent.
func (c *connection) learnMode(id string, events []*execwirev1.ProcessEvent) error {
	if !c.session.resumed || len(events) == 0 || events[0].GetSeq() != 1 {
		return nil
	}
	response, err := c.processes.GetProcess(c.ctx, &execwirev1.GetProcessRequest{SessionId: c.session.id, ProcessId: id})
	if rpcerror.Reason(err) == execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND && !c.isClosedByClient() {
		return nil // removed; its events have the zero mode
	}
	if err != nil {
		return err
	}
	m := processModeOf(response.GetProcess())
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	switch p := c.table.record(id); {
	case p.nextMode != nil:
	case p.closed:
		p.nextMode = &m
	case p.received == 0 && p.mode == (processMode{}): // otherwise findBacklogs set it
		p.mode = m
	}
	return nil
}
