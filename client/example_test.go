package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/daemon"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// A URL in the configuration selects the machine, for example
// grpc://build.example.org:7420. Without one, the server runs inside this program.
func Example() {
	ctx := context.Background()
	machine, err := daemon.Open(ctx, os.Getenv("BUILD_MACHINE"), daemon.OpenOptions{})
	if err != nil {
		fmt.Println(err) // e.g. failed to reach grpc://build.example.org:7420: connection refused
		return
	}
	defer machine.Close()
	if err := greet(ctx, machine); err != nil {
		fmt.Println(err)
	}
	// Output: Hello, world!
}

// greet works on any machine; tests can pass their own.
func greet(ctx context.Context, machine client.Environment) error {
	text, err := machine.Output(ctx, client.Command{
		Argv: []string{"sh", "-c", `echo "Hello, $NAME!"`},
		Env:  map[string]string{"NAME": "world"},
	})
	if err != nil {
		return err
	}
	fmt.Print(string(text))
	return nil
}

// Run a command as a local shell would.
func ExampleClient_Run() {
	ctx := context.Background()
	c, err := daemon.Open(ctx, daemon.LocalURL, daemon.OpenOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	exit, err := c.Run(ctx, client.RunOptions{
		Process: client.Command{Argv: []string{"sh", "-c", "echo working; exit 3"}}.Request(),
		Stdin:   nil, // or os.Stdin
		Stdout:  os.Stdout,
		Stderr:  os.Stderr,
	})
	switch {
	case client.Reason(err) == execwirev1.ErrorReason_ERROR_REASON_PROGRAM_NOT_FOUND:
		fmt.Println("install it first")
	case err != nil:
		fmt.Println(err)
	default:
		fmt.Println("ended with", exit.ShellCode())
	}
	// Output:
	// working
	// ended with 3
}

func ExampleClient_Output() {
	ctx := context.Background()
	c, err := daemon.Open(ctx, daemon.LocalURL, daemon.OpenOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	_, err = c.Output(ctx, client.Command{Argv: []string{"sh", "-c", "echo no disk >&2; exit 1"}})
	if failed, ok := errors.AsType[*client.ExitError](err); ok {
		fmt.Printf("%v: %s", failed, failed.Stderr)
	}
	// Output: the command ended with code 1: no disk
}

// Interact with a running process.
func ExampleClient_Start() {
	ctx := context.Background()
	c, err := daemon.Open(ctx, daemon.LocalURL, daemon.OpenOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	cat, err := c.Start(ctx, client.StartOptions{
		Process: client.Command{Argv: []string{"cat"}, PipeStdin: true}.Request(),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cat.Close() // kills it if it still runs
	fmt.Fprint(cat, "ping")
	for event, err := range cat.Events(ctx) {
		if err != nil {
			fmt.Println(err)
			return
		}
		switch e := event.(type) {
		case *client.OutputEvent:
			fmt.Printf("%s\n", e.Data)
			if err := cat.CloseStdin(); err != nil {
				fmt.Println(err)
			}
		case *client.ExitedEvent:
			fmt.Println("exited with", e.Exit.ShellCode())
		case *client.ClosedEvent:
			fmt.Println("nothing more comes")
		}
	}
	// Output:
	// ping
	// exited with 0
	// nothing more comes
}

func ExampleProcess_Communicate() {
	ctx := context.Background()
	c, err := daemon.Open(ctx, daemon.LocalURL, daemon.OpenOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	process, err := c.Start(ctx, client.StartOptions{
		Process: client.Command{Argv: []string{"sort"}, PipeStdin: true}.Request(),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	stdout, stderr, exit, err := process.Communicate(ctx, []byte("b\na\n"))
	fmt.Printf("%s%s%d %v\n", stdout, stderr, exit.ShellCode(), err)
	// Output:
	// a
	// b
	// 0 <nil>
}

// Start a process that runs without an owner, and attach to it later, from this or
// another program.
func ExampleClient_Attach() {
	ctx := context.Background()
	c, err := daemon.Open(ctx, daemon.LocalURL, daemon.OpenOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	command := client.Command{ID: "job", Argv: []string{"sh", "-c", "echo begun; read line; echo $line"}, PipeStdin: true}
	if _, err := c.StartDetached(ctx, command.Request()); err != nil {
		fmt.Println(err)
		return
	}

	job, err := c.Attach(ctx, client.ProcessRef{ProcessID: "job"}, client.StartOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	stdout, _, _, err := job.Communicate(ctx, []byte("ended\n"))
	fmt.Printf("%s%v\n", stdout, err)
	// Output:
	// begun
	// ended
	// <nil>
}

func ExampleClient_Terminate() {
	ctx := context.Background()
	c, err := daemon.Open(ctx, daemon.LocalURL, daemon.OpenOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	command := client.Command{ID: "nap", Argv: []string{"sleep", "1000"}}
	if _, err := c.StartDetached(ctx, command.Request()); err != nil {
		fmt.Println(err)
		return
	}
	ended, err := c.Terminate(ctx, client.ProcessRef{ProcessID: "nap"}, client.Termination{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("was running:", ended.GetWasRunning(), "- ended by signal", int32(ended.GetExit().GetSignal()))
	// Output: was running: true - ended by signal 15
}

// Receive the output of all processes of a session, wherever they were started.
func ExampleClient_AttachSession() {
	ctx := context.Background()
	c, err := daemon.Open(ctx, daemon.LocalURL, daemon.OpenOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	session, err := c.AttachSession(ctx, client.SessionOptions{
		WhenDetached: execwirev1.WhenDetached_WHEN_DETACHED_DISCARD_OLDEST,
	})
	if err != nil {
		fmt.Println(err) // e.g. SESSION_ATTACHED if another client is attached
		return
	}
	defer session.Close(ctx) // ends its processes; Detach does not
	for _, name := range []string{"server", "worker"} {
		command := client.Command{SessionID: session.ID(), ID: name, Argv: []string{"echo", name, "is up"}}
		if _, err := c.StartDetached(ctx, command.Request()); err != nil {
			fmt.Println(err)
			return
		}
	}
	closed := 0
	for got, err := range session.Events(ctx) {
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, event := range got.Events {
			if output := event.GetOutput(); output != nil {
				fmt.Printf("%s: %s", got.ProcessID, output.GetData())
			}
			if event.GetClosed() != nil {
				closed++
			}
			session.Acknowledge(got.ProcessID, event.GetSeq())
		}
		if closed == 2 {
			return
		}
	}
	// Unordered output:
	// server: server is up
	// worker: worker is up
}
