package client_test

import (
	"context"
	"fmt"
	"os"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Run a command on a server the way a shell would run it here.
func Example() {
	ctx := context.Background()
	c, err := client.Dial(ctx, "grpc://127.0.0.1:7420")
	if err != nil {
		fmt.Println(err) // e.g. failed to reach grpc://127.0.0.1:7420: connection refused
		return
	}
	defer c.Close()
	exit, err := c.Run(ctx, client.RunOptions{
		Process: &execwirev1.StartProcessRequest{
			Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{
				Direct: &execwirev1.DirectCommand{
					Argv:              []string{"make", "test"},
					WorkingDirectory:  "/src",
					EnvironmentPolicy: &execwirev1.EnvironmentPolicy{},
				}}},
		},
		Stdout: os.Stdout,
		Stderr: os.Stderr,
	})
	switch {
	case client.Reason(err) == execwirev1.ErrorReason_ERROR_REASON_PROGRAM_NOT_FOUND:
		fmt.Println("install make first")
	case err != nil:
		fmt.Println(err)
	default:
		fmt.Println("make ended with", exit.ShellCode())
	}
}

func ExampleClient_AttachSession() {
	ctx := context.Background()
	c, err := client.Dial(ctx, "unix:///run/execwire.sock")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	session, err := c.AttachSession(ctx, client.SessionOptions{
		WhenDetached: execwirev1.WhenDetached_WHEN_DETACHED_SPOOL,
	})
	if err != nil {
		fmt.Println(err) // e.g. SESSION_ATTACHED, of a session that somebody else has
		return
	}
	defer session.Close(ctx) // ends its processes; Detach leaves them
	for _, name := range []string{"server", "worker"} {
		if _, err := c.Processes().StartProcess(ctx, &execwirev1.StartProcessRequest{
			SessionId: session.ID(), ProcessId: name,
			Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{
				Direct: &execwirev1.DirectCommand{Argv: []string{"./" + name}, WorkingDirectory: "/srv"}}},
		}); err != nil {
			fmt.Println(client.FromRPC(err))
			return
		}
	}
	for got, err := range session.Events(ctx) {
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, event := range got.Events {
			fmt.Printf("%s: %s", got.ProcessID, event.GetOutput().GetData())
			session.Acknowledge(got.ProcessID, event.GetSeq())
		}
	}
}
