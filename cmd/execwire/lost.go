package main

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/term"
)

// lossReportedAfter is after how long a lost connection is reported where nobody is
// looking: most are there again by then.
const lossReportedAfter = 3 * time.Second

// lossReport writes that a connection is lost: at once to a terminal, and elsewhere if
// it is still lost a little later. Its methods are called one at a time.
type lossReport struct {
	to    *os.File
	timer *time.Timer   // nil while nothing is to be reported
	done  chan struct{} // closed when timer has reported
}

// begin notes that the connection is lost.
func (r *lossReport) begin() {
	if term.IsTerminal(int(r.to.Fd())) {
		fmt.Fprintln(r.to, "\nexecwire: connection lost, reconnecting... (Ctrl-C gives up)")
		return
	}
	done := make(chan struct{})
	r.done = done
	r.timer = time.AfterFunc(lossReportedAfter, func() {
		defer close(done)
		fmt.Fprintln(r.to, "execwire: connection lost, reconnecting...")
	})
}

// end notes that the connection is there again, or not needed any more. It waits for a
// report that is being written.
func (r *lossReport) end() {
	if r.timer != nil && !r.timer.Stop() {
		<-r.done
	}
	r.timer = nil
}
