package daemon_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// A run whose connection was evicted for another principal waits for a free place and
// resumes.
func TestRun_EvictedConnection_Resumes(t *testing.T) {
	l := lockForTwo(t, 2)
	evicted, other := l.dial(onGRPC), l.dial(onGRPC)
	in, end := io.Pipe()
	var out bytes.Buffer
	options := client.RunOptions{
		Process: &execwirev1.StartProcessRequest{Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{
			Direct: &execwirev1.DirectCommand{Argv: []string{"cat"}, WorkingDirectory: "/"}}}},
		Stdin: in, Stdout: &out,
		OnStarted: func(*execwirev1.Process) {
			holdStream(t, l.as("attacker"), other)
			holdStream(t, l.as("neighbour"), l.dial(onGRPC))
		},
		OnLost: func(err error) {
			expectConnectionLimit(t, err, 2)
			_ = other.Close() // a place is free again
		},
		OnResumed: func() {
			go func() { // Run reads it
				_, _ = io.WriteString(end, "resumed")
				_ = end.Close()
			}()
		},
	}
	exit, err := client.New(evicted).Run(l.as("attacker"), options)
	if err != nil || exit.Code != 0 || exit.Resumed == 0 || out.String() != "resumed" {
		t.Errorf("got %+v, %v and %q", exit, err, out.String())
	}
}
