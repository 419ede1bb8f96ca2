package gateway

import (
	"strconv"

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
