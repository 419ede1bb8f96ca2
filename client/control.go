package client

import (
	"context"
	"syscall"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Signal sends a signal to a process's group. It blocks until the server has
// answered; errors are [*Error] or wrap the cause of ctx. A signal whose answer was
// lost may have been sent.
func (c *Client) Signal(ctx context.Context, process ProcessRef, signal syscall.Signal) error {
	_, err := c.processes.SignalProcess(ctx, &execwirev1.SignalProcessRequest{
		SessionId: process.SessionID, ProcessId: process.ProcessID, Signal: execwirev1.Signal(signal)})
	return answered(ctx, err)
}

// Terminate ends a process and its descendants, and says by what means. It blocks
// until they are gone, and goes on after a lost connection for a minute and a
// quarter; errors are those of Signal.
func (c *Client) Terminate(ctx context.Context, process ProcessRef, how Termination) (*execwirev1.TerminateProcessResponse, error) {
	return repeat(ctx, c, func(ctx context.Context) (*execwirev1.TerminateProcessResponse, error) {
		return c.processes.TerminateProcess(ctx, &execwirev1.TerminateProcessRequest{
			SessionId: process.SessionID, ProcessId: process.ProcessID, Termination: how.message()})
	})
}
