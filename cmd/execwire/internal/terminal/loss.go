package terminal

import (
	"fmt"
	"os"
	"time"

	"github.com/execwire/execwire/internal/tty"
)

// LossDelay is how long a lost connection is not reported unless stderr is a terminal: most
// are restored by then. Tests change it.
var LossDelay = 5 * time.Second

// keyboardLossDelay is the same while the keyboard belongs to the process: what is typed during an
// upgrade of the server goes to the process, as if there were none.
const keyboardLossDelay = 2 * time.Second

// LossReport reports a lost connection: at once to a terminal, otherwise if it is still
// lost after [LossDelay], and then also that it is restored. Its methods are called one at a
// time.
type LossReport struct {
	to *os.File
	// keyboard is whether this program's keyboard belongs to the process. Then before, in another
	// goroutine, takes it back before a report.
	keyboard bool
	before   func()

	timer *time.Timer   // nil without a pending report
	done  chan struct{} // closed when timer has reported
}

// NewLossReport returns a report to a file.
func NewLossReport(to *os.File) *LossReport { return &LossReport{to: to, before: func() {}} }

// Begin records that the connection is lost.
func (r *LossReport) Begin() {
	delay, message := LossDelay, "execwire: connection lost, reconnecting..."
	if r.isTerminal() {
		delay, message = 0, "\n"+message+" (Ctrl-C gives up)"
	}
	if r.keyboard {
		delay = keyboardLossDelay
	}
	done := make(chan struct{})
	r.done = done
	r.timer = time.AfterFunc(delay, func() {
		defer close(done)
		r.before()
		fmt.Fprintln(r.to, message)
	})
}

// Resumed records that the connection is restored, and tells whether the loss was reported.
func (r *LossReport) Resumed() (reported bool) {
	reported = r.End()
	if reported && !r.isTerminal() {
		fmt.Fprintln(r.to, "execwire: connection restored")
	}
	return reported
}

// End records that the connection is no longer needed. It waits for a report in progress,
// and tells whether one was made.
func (r *LossReport) End() (reported bool) {
	if reported = r.timer != nil && !r.timer.Stop(); reported {
		<-r.done
	}
	r.timer = nil
	return reported
}

func (r *LossReport) isTerminal() bool { return tty.Is(r.to) }
