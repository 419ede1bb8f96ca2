package terminal

import (
	"bufio"
	"io"
	"os"
	"testing"
	"time"
)

// Off a terminal a loss that lasts is one line, and its end another; a short one is none.
func TestLossReport_OffATerminal(t *testing.T) {
	before := LossDelay
	defer func() { LossDelay = before }()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	lines := bufio.NewReader(r)
	expect := func(want string) {
		t.Helper()
		if line, err := lines.ReadString('\n'); line != want || err != nil {
			t.Errorf("read %q, %v, want %q", line, err, want)
		}
	}
	report := NewLossReport(w)
	LossDelay = time.Hour
	report.Begin()
	report.Resumed()
	LossDelay = 0
	report.Begin()
	expect("execwire: connection lost, reconnecting...\n")
	report.Resumed()
	expect("execwire: connection restored\n")
	report.Begin()
	expect("execwire: connection lost, reconnecting...\n")
	report.End() // the command ends
	_ = w.Close()
	if rest, err := io.ReadAll(lines); len(rest) > 0 || err != nil {
		t.Errorf("then %q, %v", rest, err)
	}
}
