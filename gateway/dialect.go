package gateway

import (
	"strconv"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// manner is what has to be known of how a process was started to tell of it. The
// zero value is that of process/start.
type manner struct {
	// older is whether its notifications are those of command/exec.
	older bool
	// window is how much output may be unacknowledged, in bytes; 0 is as much as
	// the session says.
	window int
}

// Labels by which the core keeps a manner for the connection that resumes the
// session.
const (
	dialectLabel = "gateway.dialect"
	olderDialect = "command/exec"
	windowLabel  = "gateway.window_bytes"
)

// labels returns what the core keeps of the manner, nil for nothing.
func (m manner) labels() map[string]string {
	if m == (manner{}) {
		return nil
	}
	labels := make(map[string]string, 2)
	if m.older {
		labels[dialectLabel] = olderDialect
	}
	if m.window > 0 {
		labels[windowLabel] = strconv.Itoa(m.window)
	}
	return labels
}

// mannerOf is the reverse of labels. Other callers of the core may have written
// there what they like.
func mannerOf(described *execwirev1.Process) manner {
	labels := described.GetLabels()
	window, err := strconv.Atoi(labels[windowLabel])
	if err != nil {
		window = 0
	}
	return manner{older: labels[dialectLabel] == olderDialect, window: max(window, 0)}
}

// recognize learns the manner of a process that begins to speak. Where a session
// was resumed that need not be one of this connection: a start that the lost one
// had asked for may have been carried out only now. If the manner cannot be had,
// nothing can be told of the process.
func (c *connection) recognize(id string, events []*execwirev1.ProcessEvent) error {
	if !c.session.resumed || len(events) == 0 || events[0].GetSeq() != 1 {
		return nil
	}
	response, err := c.processes.GetProcess(c.ctx, &execwirev1.GetProcessRequest{SessionId: c.session.id, ProcessId: id})
	if reasonOf(err) == execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND && !c.isLeaving() {
		return nil // forgotten, and what it says counts as said by process/start
	}
	if err != nil {
		return err
	}
	m := mannerOf(response.GetProcess())
	c.mu.Lock()
	defer c.mu.Unlock()
	switch p := c.record(id); {
	case p.renewed != nil:
	case p.closed:
		p.renewed = &m
	case p.received == 0 && p.manner == (manner{}): // else the list of processes had it
		p.manner = m
	}
	return nil
}
