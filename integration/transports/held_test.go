package transports

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testproc"
)

// heldScenarios are about other operations on handles of processes.
var heldScenarios = []scenario{
	{name: "output of a command", do: outputOfCommand},
	{name: "events in order", do: eventsInOrder},
	{name: "events for those who come late", do: lateEvents},
	{name: "several that range over events, one slowly", do: severalEvents},
	{name: "reads by cursor", do: readsByCursor},
	{name: "a terminal that is held", do: heldTerminal, except: notWithReferences("the size of a terminal")},
	{name: "a process that is given up and attached to", do: attachedTo, except: notWithJSON("a process cannot be left behind")},
	{name: "a start that fails", do: failedHandle},
	{name: "what it is", do: describe},
}

func (v *scenarioRun) startHeld(command client.Command) (*client.Process, error) {
	v.Helper()
	if command.Dir == "" {
		command.Dir = v.dir
	}
	if command.Env == nil {
		command.Env, command.InheritEnv = harness.Environment(), execwirev1.EnvironmentInherit_ENVIRONMENT_INHERIT_NONE
	}
	p, err := v.client.Start(v.ctx, client.StartOptions{Process: command.Request()})
	if err == nil {
		v.Cleanup(func() { _ = p.Close() })
	}
	return p, err
}

func outputOfCommand(v *scenarioRun) error {
	command := client.Command{Argv: harness.Shell("echo out; echo err >&2"), Dir: v.dir, Env: harness.Environment()}
	stdout, err := v.client.Output(v.ctx, command)
	if err != nil {
		return err
	}
	v.expectText("stdout", string(stdout), "out\n")
	command.Argv = harness.Shell("echo out; echo err >&2; exit 3")
	stdout, err = v.client.Output(v.ctx, command)
	var failed *client.ExitError
	if !errors.As(err, &failed) {
		return err
	}
	v.expectExit(failed.Exit, 3, 0, harness.ByItself)
	v.expectText("stdout", string(stdout), "out\n")
	v.expectText("stderr", string(failed.Stderr), "err\n")
	return nil
}

// events formats all events. It joins consecutive output of a stream.
func (v *scenarioRun) events(p *client.Process) (said []string, err error) {
	var last uint64
	stream := execwirev1.OutputStream_OUTPUT_STREAM_UNSPECIFIED
	for event, err := range p.Events(v.ctx) {
		if err != nil {
			return said, err
		}
		if event.After() != last+1 {
			v.Errorf("after %d came %d, %T", last, event.After(), event)
		}
		last = event.After()
		switch e := event.(type) {
		case *client.OutputEvent:
			if e.Stream == stream {
				said[len(said)-1] += string(e.Data)
				continue
			}
			stream = e.Stream
			said = append(said, strings.ToLower(strings.TrimPrefix(e.Stream.String(), "OUTPUT_STREAM_"))+" "+string(e.Data))
			continue
		case *client.ExitedEvent:
			said = append(said, fmt.Sprint("exited ", e.Exit.ShellCode()))
		case *client.ClosedEvent:
			said = append(said, "closed")
		default:
			said = append(said, fmt.Sprintf("%T", event))
		}
		stream = 0
	}
	return said, nil
}

func eventsInOrder(v *scenarioRun) error {
	p, err := v.startHeld(client.Command{Argv: v.counting(2)})
	if err != nil {
		return err
	}
	v.let(0)
	for _, err := range p.Events(v.ctx) {
		if err != nil {
			return err
		}
		v.let(1)
		break
	}
	said, err := v.events(p)
	if want := []string{"stdout 1\n2\n", "exited 0", "closed"}; err == nil && !slices.Equal(said, want) {
		v.Errorf("the events are %q, want %q", said, want)
	}
	return err
}

// lateEvents: a late reader gets all events too, although another one has waited.
func lateEvents(v *scenarioRun) error {
	p, err := v.startHeld(client.Command{Argv: harness.Shell("echo one; exit 5")})
	if err != nil {
		return err
	}
	for range 2 {
		said, err := v.events(p)
		if err != nil {
			return err
		}
		if want := []string{"stdout one\n", "exited 5", "closed"}; !slices.Equal(said, want) {
			v.Errorf("the events are %q, want %q", said, want)
		}
	}
	exit, err := p.Wait(v.ctx)
	if err == nil {
		v.expectExit(exit, 5, 0, harness.ByItself)
	}
	return err
}

func severalEvents(v *scenarioRun) error {
	p, err := v.startHeld(client.Command{Argv: flooding()})
	if err != nil {
		return err
	}
	var running, begun sync.WaitGroup
	hasMuch := make(chan struct{})
	failed, said := make([]error, 3), make([]patterns, 3)
	for i := range failed {
		said[i] = newPatterns()
		before := false
		begun.Add(1)
		begin := sync.OnceFunc(begun.Done)
		running.Go(func() {
			defer begin()
			for event, err := range p.Events(v.ctx) {
				// The process waits for readers that have begun; a later one may get a gap.
				begin()
				begun.Wait()
				if output, is := event.(*client.OutputEvent); is {
					_, err = map[execwirev1.OutputStream]*testproc.Verifier{harness.StdoutOf: said[i].stdout, harness.StderrOf: said[i].stderr}[output.Stream].Write(output.Data)
				}
				failed[i] = errors.Join(failed[i], err)
				switch {
				case i == 0 && !before && said[i].stdout.Offset() > 100_000:
					before = true
					close(hasMuch)
				case i == 1:
					<-hasMuch // the slow one
				}
			}
		})
	}
	running.Wait()
	for i := range said {
		said[i].expectWhole(v)
	}
	return errors.Join(failed...)
}

func readsByCursor(v *scenarioRun) error {
	p, err := v.startHeld(client.Command{Argv: harness.Shell("printf one; sleep 0.01; printf two; sleep 0.01; printf three; exit 2")})
	if err != nil {
		return err
	}
	said, after := "", uint64(0)
	for {
		page, err := p.Read(v.ctx, client.ReadOptions{AfterSeq: after, MaxBytes: 1, Wait: -1})
		if err != nil {
			return err
		}
		for _, event := range page.Events {
			after = event.After()
			switch e := event.(type) {
			case *client.OutputEvent:
				said += string(e.Data)
			case *client.ClosedEvent:
				v.expectText("what was read", said, "onetwothree")
				return nil
			}
		}
	}
}

func heldTerminal(v *scenarioRun) error {
	p, err := v.startHeld(client.Command{Argv: harness.Program("winsize"), Terminal: &execwirev1.TerminalSize{Rows: 31, Columns: 91}})
	if err != nil {
		return err
	}
	said := ""
	for event, err := range p.Events(v.ctx) {
		if err != nil {
			return err
		}
		output, is := event.(*client.OutputEvent)
		if !is {
			continue
		}
		before := said
		said += string(output.Data)
		for text, then := range map[string]func() error{
			"31x91\r\n":  func() error { return p.Resize(v.ctx, 41, 101) },
			"41x101\r\n": p.CloseStdin,
		} {
			if strings.Contains(said, text) && !strings.Contains(before, text) {
				if err := then(); err != nil {
					return err
				}
			}
		}
	}
	v.expectText("what the terminal shows", said, "31x91\r\n41x101\r\n")
	exit, err := p.Wait(v.ctx)
	if err == nil {
		v.expectExit(exit, 0, 0, harness.ByItself)
	}
	return err
}

func attachedTo(v *scenarioRun) error {
	p, err := v.startHeld(client.Command{Argv: harness.Program("echo"), PipeStdin: true})
	if err != nil {
		return err
	}
	if _, err := p.Write([]byte("before\n")); err != nil {
		return err
	}
	for event, err := range p.Events(v.ctx) {
		if err != nil {
			return err
		}
		if output, is := event.(*client.OutputEvent); is {
			v.expectText("the first output", string(output.Data), "before\n")
			break
		}
	}
	ref := p.Ref()
	if err := p.Detach(v.ctx); err != nil {
		return err
	}
	again, err := v.client.Attach(v.ctx, ref, client.StartOptions{})
	if err != nil {
		return err
	}
	defer func() { _ = again.Close() }()
	stdout, stderr, exit, err := again.Communicate(v.ctx, []byte("after\n"))
	if err != nil {
		return err
	}
	v.expectExit(exit, 0, 0, harness.ByItself)
	v.expectText("stdout", string(stdout), "after\n")
	v.expectText("stderr", string(stderr), "end of input\n")
	_, err = v.client.Attach(v.ctx, client.ProcessRef{ProcessID: "nobody"}, client.StartOptions{})
	v.expectReason("to attach to nobody", err, "PROCESS_NOT_FOUND")
	return nil
}

func failedHandle(v *scenarioRun) error {
	_, err := v.startHeld(client.Command{Argv: []string{"/no/such"}})
	v.expectReason("a program that is not there", err, "PROGRAM_NOT_FOUND")
	_, err = v.client.Output(v.ctx, client.Command{Argv: []string{"true"}, Dir: "/no/such"})
	v.expectReason("a directory that is not there", err, "BAD_WORKING_DIRECTORY")
	ctx, done := context.WithCancelCause(v.ctx)
	done(errEnough)
	if _, err := v.client.Start(ctx, client.StartOptions{Process: client.Command{Argv: []string{"true"}}.Request()}); !errors.Is(err, errEnough) {
		v.Errorf("a start whose context is done failed with %v", err)
	}
	return nil
}

func describe(v *scenarioRun) error {
	var environment client.Environment = v.client
	what, err := environment.Describe(v.ctx)
	if v.endpoint.protocol == protocolReferenceOld {
		return err // it reports nothing
	}
	if err == nil && (what.GetOperatingSystem() != "linux" || what.GetShell() == "" || what.GetServerVersion() == "" || what.GetWorkingDirectory() == "") {
		v.Errorf("it is %v", what)
	}
	return err
}
