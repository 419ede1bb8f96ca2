package process

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// GetScreen, WatchScreen and WaitProcess have what the terminal shows, over every transport.
func TestScreen_ShowsTheTerminal(t *testing.T) {
	harness.OverTransports(t, func(s *harness.Scenario) {
		p := s.Run(harness.Shell(`printf '\033]2;editor\a\033[?1049h\033[1;31mred\033[m\033[3;2H~'; read line; printf '\033[2Jbye'`),
			harness.WithTerminal(4, 20))
		waited := waitForScreen(s, p.ID, &execwirev1.WaitForScreen{RegularExpression: `(?m)^red$(.|\n)*~`, Idle: durationpb.New(time.Millisecond)})
		if !waited.GetSatisfied() || waited.GetScreen().GetLines()[0].GetText() != "red" {
			s.Fatalf("waited for %v", waited)
		}
		answer, err := s.Processes.GetScreen(s.Ctx, &execwirev1.GetScreenRequest{ProcessId: p.ID, Styles: true, Repaint: true})
		if err != nil {
			s.Fatal(err)
		}
		shown := answer.GetScreen()
		if len(shown.GetLines()) != 4 || shown.GetLines()[2].GetText() != " ~" || shown.GetTitle() != "editor" || !shown.GetAlternate() ||
			shown.GetCursor().GetRow() != 2 || shown.GetCursor().GetColumn() != 2 || !shown.GetCursor().GetVisible() ||
			shown.GetSize().GetColumns() != 20 || shown.GetSeq() == 0 {
			s.Errorf("the screen is %v", shown)
		}
		if run := shown.GetLines()[0].GetRuns()[0]; run.GetText() != "red" || run.GetSgr() != "\x1b[0;1;31m" {
			s.Errorf("a run is %v", run)
		}
		if repaint := string(answer.GetRepaint()); !strings.Contains(repaint, "\x1b[?1049h") || !strings.Contains(repaint, "red") {
			s.Errorf("repaint is %q", repaint)
		}

		stream, err := s.Processes.WatchScreen(s.Ctx, &execwirev1.WatchScreenRequest{ProcessId: p.ID})
		if err != nil {
			s.Fatal(err)
		}
		first, err := stream.Recv()
		if err != nil || len(first.GetScreen().GetLines()) != 4 {
			s.Fatalf("the first message is %v, %v", first, err)
		}
		resizeTerminal(p, 2, 20)
		for rows := uint32(4); rows != 2; {
			change, err := stream.Recv()
			if err != nil {
				s.Fatal(err)
			}
			rows = change.GetScreen().GetSize().GetRows()
		}
		p.Write("\n")
		var last *execwirev1.Screen
		for {
			change, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				s.Fatal(err)
			}
			last = change.GetScreen()
		}
		if !slices.ContainsFunc(last.GetLines(), func(line *execwirev1.ScreenLine) bool { return line.GetText() == "bye" }) {
			s.Errorf("the last change is %v", last)
		}
		if never := waitForScreen(s, p.ID, &execwirev1.WaitForScreen{RegularExpression: "never"}); never.GetSatisfied() {
			s.Error("a closed process has shown what it did not")
		}
	})
}

func waitForScreen(s *harness.Scenario, id string, condition *execwirev1.WaitForScreen) *execwirev1.WaitProcessResponse {
	s.Helper()
	response, err := s.Processes.WaitProcess(s.Ctx, &execwirev1.WaitProcessRequest{
		ProcessId: id, Condition: &execwirev1.WaitProcessRequest_Screen{Screen: condition}})
	if err != nil {
		s.Fatal(err)
	}
	return response
}

// A watch that asks for sizes has them in the order of the output, and first the one that was there.
func TestWatch_Sizes_AreInTheOrderOfTheOutput(t *testing.T) {
	const terminal = execwirev1.OutputStream_OUTPUT_STREAM_TERMINAL
	harness.OverTransports(t, func(s *harness.Scenario) {
		p := s.Run(harness.Shell(`stty -echo; printf ready; read x; stty size; read x; stty size`), harness.WithTerminal(4, 20))
		p.ExpectOutput(terminal, "ready")
		for _, rows := range []uint32{6, 7} {
			resizeTerminal(p, 50, 50) // has no output, so it is left out
			resizeTerminal(p, rows, 30)
			p.Write("\n")
			p.ExpectOutput(terminal, fmt.Sprintf("%d 30\r\n", rows))
		}
		p.ExpectEnd(s, 0, 0, execwirev1.ExitCause_EXIT_CAUSE_EXITED)
		whole, ready := watchWithSizes(s, p.ID, 0)
		if want := "[4 20]ready[6 30]6 30\r\n[7 30]7 30\r\n"; whole != want {
			s.Errorf("watched %q, want %q", whole, want)
		}
		if rest, _ := watchWithSizes(s, p.ID, ready); rest != "[6 30]6 30\r\n[7 30]7 30\r\n" {
			s.Errorf("after %d it is %q", ready, rest)
		}
	})
}

// watchWithSizes returns the output of a closed process with the sizes in it, and the seq of the first event
// with output.
func watchWithSizes(s *harness.Scenario, id string, after uint64) (text string, first uint64) {
	s.Helper()
	stream, err := s.Processes.WatchProcess(s.Ctx, &execwirev1.WatchProcessRequest{ProcessId: id, AfterSeq: after, Resizes: true})
	if err != nil {
		s.Fatal(err)
	}
	for {
		message, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return text, first
		} else if err != nil {
			s.Fatal(err)
		}
		for _, e := range message.GetEvents() {
			if size := e.GetResized(); size != nil {
				text += fmt.Sprintf("[%d %d]", size.GetRows(), size.GetColumns())
			} else if output := e.GetOutput(); output != nil {
				text += string(output.GetData())
				if first == 0 {
					first = e.GetSeq()
				}
			}
		}
	}
}
