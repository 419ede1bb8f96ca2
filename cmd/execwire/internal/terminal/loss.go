package terminal

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/term"
)

// LossDelay is how long a lost connection is not reported unless stderr is a terminal: most
// are restored by then. Tests change it.
var LossDelay = 5 * time.Second

// LossReport reports a lost connection: at once to a terminal, otherwise if it is still
// lost after [LossDelay], and then also that it is restored. Its methods are called one at a
// time.
type LossReport struct {
	to    *os.File
	timer *time.Timer   // nil without a pending report
	done  chan struct{} // closed when timer has reported
}

// NewLossReport returns a report to a file.
func NewLossReport(to *os.File) *LossReport { return &LossReport{to: to} }

// Begin records that the connection is lost.
func (r *LossReport) Begin() {
	if term.IsTerminal(int(r.to.Fd())) {
		fmt.Fprintln(r.to, "\nexecwire: connection lost, reconnecting... (Ctrl-C gives up)")
		return
	}
	done := make(chan struct{})
	r.done = done
	r.timer = time.AfterFunc(LossDelay, func() {
		defer close(done)
		fmt.Fprintln(r.to, "execwire: connection lost, reconnecting...")
	})
}

// Resumed records that the connection is restored.
func (r *LossReport) Resumed() {
	if r.End() {
		fmt.Fprintln(r.to, "execwire: connection restored")
	}
}

// End records that the connection is no longer needed. It waits for a report in progress,
// and tells whether one was made after the delay.
func (r *LossReport) End() (reported bool) {
	if reported = r.timer != nil && !r.timer.Stop(); reported {
		<-r.done
	}
	r.timer = nil
	return reported
}
