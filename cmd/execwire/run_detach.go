package main

import (
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// runDetached starts a process that nobody owns and prints its id.
func runDetached(command *cobra.Command, flags runFlags, process *execwirev1.StartProcessRequest, std streams) error {
	switch {
	case flags.server == "":
		return usageError(command, errors.New(
			"--detach needs a server that goes on when this program ends: name one with --server or "+serverVariable))
	case flags.hasGrace:
		return usageError(command, errors.New("--grace is for an owner that is lost, and --detach leaves the process without one"))
	}
	if err := checkLasting(command, flags.server); err != nil {
		return err
	}
	if process.ProcessId == "" {
		process.ProcessId = uuid.NewString()
	}
	c, closeClient, err := connect(command.Context(), flags.connectFlags)
	if err != nil {
		return explainDial(err)
	}
	defer closeClient()
	if err := findWritable(command.Context(), c, flags.confine); err != nil {
		return err
	}
	started, err := c.StartDetached(command.Context(), process)
	if err != nil {
		return explainStart(err, flags)
	}
	if !flags.json {
		_, err = fmt.Fprintln(std.out, started.GetProcessId())
		return err
	}
	return printJSON(std.out, struct {
		ID  string `json:"id"`
		PID int32  `json:"pid"`
	}{started.GetProcessId(), started.GetPid()})
}

// explainStart adds to explainRun what to do when there was no answer.
func explainStart(err error, flags runFlags) error {
	explained := explainRun(err, flags)
	var exit *exitError
	if client.Reason(err) == 0 && errors.As(explained, &exit) && exit.hint == "" {
		exit.hint = "find out whether it runs with: execwire ps -a"
	}
	return explained
}
