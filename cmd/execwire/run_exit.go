package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/cmd/execwire/internal/terminal"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/syserr"
)

// explainRun explains why a process did not start or could not be followed.
func explainRun(err error, flags runFlags) error {
	var output *client.OutputError
	var lost *client.LostError
	switch {
	case errors.Is(err, terminal.ErrInterrupted), errors.Is(err, context.Canceled):
		return &exitError{code: codeInterrupted}
	case errors.As(err, &output) && syserr.IsBrokenPipe(err):
		return &exitError{code: codeBrokenPipe}
	case errors.As(err, &lost):
		return explainLost(lost, err)
	}
	return explainReason(err, flags)
}

// explainLost explains why a process was lost, with a hint. A longer grace period helps
// only if the server reported that it had ended the process.
func explainLost(lost *client.LostError, err error) error {
	exit := &exitError{code: codeFailed, err: fmt.Errorf("connection lost: %w", err)}
	switch reason := client.Reason(lost.Err); {
	case lost.Restarted && lost.Started:
		exit.err = err
	case !lost.Started:
		exit.hint = "check whether the command ran before you run it again"
	case reason == execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND,
		reason == execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND:
		exit.hint = "a longer --grace keeps processes during longer interruptions"
	default:
		exit.hint = "check whether the server runs: a process ends with its server, or when it was without an owner for the grace period"
	}
	return exit
}

func explainReason(err error, flags runFlags) error {
	id := printable(flags.id)
	explained := explain(nameFlags(client.FromRPC(err), flags.fieldNames()), reasonHints{
		execwirev1.ErrorReason_ERROR_REASON_PROGRAM_NOT_FOUND:     programHint(flags.arguments),
		execwirev1.ErrorReason_ERROR_REASON_BAD_WORKING_DIRECTORY: "choose another one with --cwd",
		execwirev1.ErrorReason_ERROR_REASON_PROCESS_ALREADY_EXISTS: fmt.Sprintf("follow it with: execwire attach %s; end it with: execwire kill %s; after its end, read its output with: "+
			"execwire logs %s, and run again with --replace; or choose another --id", id, id, id),
		execwirev1.ErrorReason_ERROR_REASON_SANDBOX_UNAVAILABLE: "the process was not started; check which sandboxes work with: execwire doctor",
		execwirev1.ErrorReason_ERROR_REASON_DRAINING:            "try again after the restart of the server",
	})
	switch client.Reason(err) {
	case execwirev1.ErrorReason_ERROR_REASON_PROGRAM_NOT_FOUND:
		explained.code = codeNotFound
	case execwirev1.ErrorReason_ERROR_REASON_PROGRAM_NOT_EXECUTABLE,
		execwirev1.ErrorReason_ERROR_REASON_PERMISSION_DENIED:
		var refused *client.Error
		if !errors.As(err, &refused) || len(refused.Fields) == 0 { // with fields it is a limit, not the program
			explained.code = codeNotExecutable
		}
	}
	return explained
}

// killedByUser describes the end of a process that the user killed by a repeated signal.
func killedByUser(repeated syscall.Signal) string {
	if repeated == syscall.SIGINT {
		return "you pressed Ctrl-C three times (SIGINT): the process was killed with all its descendants"
	}
	return fmt.Sprintf("you sent %s twice: the process was killed with all its descendants", signalName(execwirev1.Signal(repeated)))
}

// fieldNames are the names of fields of a start on this command line.
func (f runFlags) fieldNames() map[string]string {
	names := map[string]string{"process_id": "--id"}
	for i, limit := range f.limits {
		names[fmt.Sprintf("limits.resource_limits[%d]", i)] = "--limit " + limit
	}
	return names
}

// programHint is the hint for a program that was not found.
func programHint(arguments []string) string {
	switch {
	case len(arguments) == 0:
		return ""
	case strings.ContainsAny(arguments[0], " \t\n|&;<>()$`\"'*?=~"):
		return "run starts no shell; name one: execwire run -- " + commandLine([]string{"sh", "-c", strings.Join(arguments, " ")})
	case strings.Contains(arguments[0], "/"):
		return ""
	}
	return "give its path, or the directories to look in with --env PATH=..."
}

// explainExit converts the end of a process to that of this program. killed is the
// signal whose repetition killed the process, or 0. Only ends with an external cause
// have a message.
func explainExit(exit client.Exit, killed syscall.Signal) error {
	switch exit.Cause {
	case execwirev1.ExitCause_EXIT_CAUSE_TIMEOUT:
		return &exitError{code: codeTimeout, err: fmt.Errorf("the process exceeded its timeout after %v", exit.WallTime)}
	case execwirev1.ExitCause_EXIT_CAUSE_NO_OUTPUT:
		return &exitError{code: codeTimeout, err: fmt.Errorf("the process exceeded its timeout without output after %v", exit.WallTime)}
	case execwirev1.ExitCause_EXIT_CAUSE_LIMIT:
		return &exitError{code: exit.ShellCode(), err: errors.New("the process was killed because it exceeded one of its limits")}
	case execwirev1.ExitCause_EXIT_CAUSE_SERVER_SHUTDOWN:
		return &exitError{code: exit.ShellCode(), err: errors.New("the server shut down and ended the process")}
	case execwirev1.ExitCause_EXIT_CAUSE_SERVER_RESTARTED:
		return &exitError{code: codeFailed, err: errors.New("the server was restarted, and the process ended with it")}
	case execwirev1.ExitCause_EXIT_CAUSE_LOST:
		return &exitError{code: codeFailed, err: errors.New("the process is gone and the server could not learn how it ended")}
	}
	code := exit.ShellCode()
	switch {
	case code == 0:
		return nil
	case exit.Cause == execwirev1.ExitCause_EXIT_CAUSE_TERMINATED && killed != 0:
		return &exitError{code: code, err: errors.New(killedByUser(killed))}
	case exit.Cause == execwirev1.ExitCause_EXIT_CAUSE_TERMINATED:
		return &exitError{code: code,
			err: errors.New("the server terminated the process: another client requested it, or this client was disconnected for longer than the grace period")}
	}
	return &exitError{code: code}
}
