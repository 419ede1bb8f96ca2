package terminal

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/term"
)

// lossReportDelay is how long a lost connection is not reported unless stderr is a
// terminal: most are restored by then.
const lossReportDelay = 3 * time.Second

// LossReport reports a lost connection: at once to a terminal, otherwise if it is still
// lost after a delay. Its methods are called one at a time.
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
	r.timer = time.AfterFunc(lossReportDelay, func() {
		defer close(done)
		fmt.Fprintln(r.to, "execwire: connection lost, reconnecting...")
	})
}

// End records that the connection is restored, or no longer needed. It waits for a
// report in progress.
func (r *LossReport) End() {
	if r.timer != nil && !r.timer.Stop() {
		<-r.done
	}
	r.timer = nil
}
