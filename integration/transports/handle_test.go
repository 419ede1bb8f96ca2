package transports

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// handleScenarios are about handles of processes.
var handleScenarios = []scenario{
	{name: "talking to a process", do: talking, except: notWithReferences("cannot close the input")},
	{name: "readers of a process, early and late", do: earlyAndLate},
	{name: "communicating", do: communicating, except: notWithReferences("cannot close the input")},
	{name: "polling a process", do: polling},
	{name: "a process that is closed", do: closedHandle},
	{name: "a process that is terminated", do: terminatedHandle},
	{name: "a process without input", do: withoutInput},
}

// hold starts a process and closes its handle at the end of the test.
func (v *scenarioRun) hold(argv []string, options ...harness.Option) (*client.Process, error) {
	v.Helper()
	process, err := v.client.Start(v.ctx, client.StartOptions{Process: v.process(argv, options...), KeepBytes: 64 << 20})
	if err == nil {
		v.Cleanup(func() { _ = process.Close() })
	}
	return process, err
}

// patterned reads all events of a flood.
func (v *scenarioRun) patterned(process *client.Process) error {
	p, last, closed := newPatterns(), uint64(0), false
	for event, err := range process.Events(v.ctx) {
		if err != nil {
			return err
		}
		if event.After() != last+1 {
			return fmt.Errorf("after seq %d came %+v", last, event)
		}
		last = event.After()
		switch e := event.(type) {
		case *client.OutputEvent:
			to := p.stdout
			if e.Stream == execwirev1.OutputStream_OUTPUT_STREAM_STDERR {
				to = p.stderr
			}
			if _, err := to.Write(e.Data); err != nil {
				return err
			}
		case *client.ClosedEvent:
			closed = true
		}
	}
	if !closed || p.stdout.Offset() != muchStdout || p.stderr.Offset() != muchStderr {
		return fmt.Errorf("closed is %v after %d and %d bytes", closed, p.stdout.Offset(), p.stderr.Offset())
	}
	return nil
}

func talking(v *scenarioRun) error {
	process, err := v.hold(harness.Program("echo"), harness.WithStdin)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(process, "one "); err != nil {
		return err
	}
	said, words := "", []string{}
	for event, err := range process.Events(v.ctx) {
		if err != nil {
			return err
		}
		switch e := event.(type) {
		case *client.OutputEvent:
			if e.Stream == execwirev1.OutputStream_OUTPUT_STREAM_STDERR {
				continue
			}
			switch said += string(e.Data); said {
			case "one ":
				_, err = io.WriteString(process, "two")
			case "one two":
				err = process.CloseStdin()
			}
			if err != nil {
				return err
			}
		case *client.ExitedEvent:
			words = append(words, fmt.Sprint("exited ", e.Exit.ShellCode()))
		case *client.ClosedEvent:
			words = append(words, "closed")
		}
	}
	v.expectText("what it said", said, "one two")
	v.expectText("its end", strings.Join(words, ", "), "exited 0, closed")
	if _, err := process.Write([]byte("more")); !errors.Is(err, client.ErrStdinClosed) {
		v.Errorf("written to after its end: %v", err)
	}
	exit, err := process.Wait(v.ctx)
	v.expectExit(exit, 0, 0, harness.ByItself)
	return err
}

func earlyAndLate(v *scenarioRun) error {
	process, err := v.hold(flooding())
	if err != nil {
		return err
	}
	readers := make(chan error, 2)
	for range 2 {
		go func() { readers <- v.patterned(process) }()
	}
	exit, err := process.Wait(v.ctx)
	if err := errors.Join(err, <-readers, <-readers); err != nil {
		return err
	}
	v.expectExit(exit, 0, 0, harness.ByItself)
	if err := v.patterned(process); err != nil {
		v.Errorf("late: %v", err)
	}
	return nil
}

func communicating(v *scenarioRun) error {
	process, err := v.hold(harness.Program("echo"), harness.WithStdin)
	if err != nil {
		return err
	}
	input := strings.Repeat("0123456789", 50_000)
	stdout, stderr, exit, err := process.Communicate(v.ctx, []byte(input))
	if err != nil {
		return err
	}
	if string(stdout) != input || string(stderr) != "end of input\n" {
		v.Errorf("received %d of %d bytes back, and %q", len(stdout), len(input), stderr)
	}
	v.expectExit(exit, 0, 0, harness.ByItself)
	return nil
}

func polling(v *scenarioRun) error {
	process, err := v.hold(flooding())
	if err != nil {
		return err
	}
	total, after := 0, uint64(0)
	for {
		page, err := process.Read(v.ctx, client.ReadOptions{AfterSeq: after, MaxBytes: 100_000, Wait: -1})
		if err != nil {
			return err
		}
		for _, event := range page.Events {
			if output, ok := event.(*client.OutputEvent); ok {
				total += len(output.Data)
			}
		}
		if after = page.AfterSeq; page.Closed {
			break
		}
	}
	if total != muchStdout+muchStderr {
		v.Errorf("read %d bytes", total)
	}
	return nil
}

func closedHandle(v *scenarioRun) error {
	process, err := v.hold(harness.Shell("echo pid $$; exec sleep 1000"))
	if err != nil {
		return err
	}
	line := ""
	for event, err := range process.Events(v.ctx) {
		if err != nil {
			return err
		}
		if output, ok := event.(*client.OutputEvent); ok {
			line = string(output.Data)
			break
		}
	}
	if err := process.Close(); err != nil {
		return err
	}
	v.expectGone(line)
	if _, err := process.Wait(v.ctx); !errors.Is(err, client.ErrClosed) {
		v.Errorf("waited for and got %v", err)
	}
	return nil
}

func terminatedHandle(v *scenarioRun) error {
	process, err := v.hold(harness.Program("sleep"))
	if err != nil {
		return err
	}
	answer, err := process.Terminate(v.ctx, client.Termination{})
	if err != nil {
		return err
	}
	if !answer.GetWasRunning() {
		v.Errorf("terminated with %v", answer)
	}
	_, err = process.Wait(v.ctx)
	return err
}

func withoutInput(v *scenarioRun) error {
	process, err := v.hold(harness.Program("echo"))
	if err != nil {
		return err
	}
	if _, err := io.WriteString(process, "x"); !errors.Is(err, client.ErrNoStdin) {
		v.Errorf("written to: %v", err)
	}
	_, _, exit, err := process.Communicate(v.ctx, nil)
	v.expectExit(exit, 0, 0, harness.ByItself)
	return err
}

func cutHandle(v *scenarioRun, wire *harness.Proxy) {
	process, err := v.hold(flooding())
	if err != nil {
		v.Fatal(err)
	}
	cutSoon(wire, 700_000)
	if err := v.patterned(process); err != nil {
		v.Error(err)
	}
	exit, err := process.Wait(v.ctx)
	if err != nil {
		v.Error(err)
	}
	v.expectExit(exit, 0, 0, harness.ByItself)
}
