package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// errGaveUp is why a run ends that the user gave up on.
var errGaveUp = errors.New("interrupted")

// explainRun says why a process did not start or could not be followed.
func explainRun(err error, flags runFlags) error {
	var output *client.OutputError
	var lost *client.LostError
	switch {
	case errors.Is(err, errGaveUp), errors.Is(err, context.Canceled):
		return &exitError{code: codeInterrupted}
	case errors.As(err, &output) && errors.Is(err, syscall.EPIPE):
		return &exitError{code: codeBrokenPipe}
	case errors.As(err, &lost):
		return explainLost(lost, err)
	}
	return explainReason(err, flags)
}

// explainLost says why a process is lost, and what helps. A longer grace helps only where
// the server has said that it had given the process up.
func explainLost(lost *client.LostError, err error) error {
	exit := &exitError{code: codeFailed, err: fmt.Errorf("connection lost: %w", err)}
	switch reason := client.Reason(lost.Err); {
	case lost.Restarted:
		exit.err = err
	case !lost.Started:
		exit.hint = "find out whether the command ran before you run it again"
	case reason == execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND,
		reason == execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND:
		exit.hint = "a longer --grace keeps processes through longer breaks"
	default:
		exit.hint = "find out whether the server runs: a process ends with its server, or when it was without an owner for the grace"
	}
	return exit
}

func explainReason(err error, flags runFlags) error {
	switch client.Reason(err) {
	case execwirev1.ErrorReason_ERROR_REASON_PROGRAM_NOT_FOUND:
		return &exitError{code: codeNotFound, err: err}
	case execwirev1.ErrorReason_ERROR_REASON_PROGRAM_NOT_EXECUTABLE,
		execwirev1.ErrorReason_ERROR_REASON_PERMISSION_DENIED:
		var refused *client.Error
		if errors.As(err, &refused) && len(refused.Fields) > 0 {
			return &exitError{code: codeFailed, err: err} // a limit, not the program
		}
		return &exitError{code: codeNotExecutable, err: err}
	case execwirev1.ErrorReason_ERROR_REASON_BAD_WORKING_DIRECTORY:
		hint := "choose another one with --cwd"
		if flags.server != "" && flags.directory == "" {
			hint = "the current directory has to exist on the server too; choose another one with --cwd"
		}
		return &exitError{code: codeFailed, err: err, hint: hint}
	case execwirev1.ErrorReason_ERROR_REASON_PROCESS_ALREADY_EXISTS:
		return &exitError{code: codeFailed, err: err, hint: takenHint(flags)}
	case execwirev1.ErrorReason_ERROR_REASON_SANDBOX_UNAVAILABLE:
		return &exitError{code: codeFailed, err: err, hint: "the process was not started; find out what works with: execwire doctor"}
	case execwirev1.ErrorReason_ERROR_REASON_DRAINING:
		return &exitError{code: codeFailed, err: err, hint: "try again when the server was started again"}
	default:
		return &exitError{code: codeFailed, err: err, hint: doorHint(err)}
	}
}

// takenHint says what to do about a process that has the id.
func takenHint(flags runFlags) string {
	id := shown(flags.id)
	return fmt.Sprintf("follow it with: execwire attach %s; end it with: execwire kill %s; once it has ended, read it with: "+
		"execwire logs %s, and run anew with --replace; or choose another --id", id, id, id)
}

// explainExit turns the end of a process into the end of this program. killed is the
// signal whose repetition had the process killed, 0 if none did. Only
// ends that are not the process's own doing are commented.
func explainExit(exit client.Exit, killed syscall.Signal) error {
	switch exit.Cause {
	case execwirev1.ExitCause_EXIT_CAUSE_TIMEOUT:
		return &exitError{code: codeTimeout, err: fmt.Errorf("the process ran into the timeout after %v", exit.WallTime)}
	case execwirev1.ExitCause_EXIT_CAUSE_NO_OUTPUT:
		return &exitError{code: codeTimeout, err: fmt.Errorf("the process wrote nothing for too long, and was ended after %v", exit.WallTime)}
	case execwirev1.ExitCause_EXIT_CAUSE_LIMIT:
		return &exitError{code: exit.ShellCode(), err: errors.New("the process was killed because it exceeded one of its limits")}
	case execwirev1.ExitCause_EXIT_CAUSE_SERVER_SHUTDOWN:
		return &exitError{code: exit.ShellCode(), err: errors.New("the server shut down and ended the process")}
	case execwirev1.ExitCause_EXIT_CAUSE_LOST:
		return &exitError{code: codeFailed, err: errors.New("the process is gone and the server could not learn how it ended")}
	}
	code := exit.ShellCode()
	switch {
	case code == 0:
		return nil
	case exit.Cause == execwirev1.ExitCause_EXIT_CAUSE_TERMINATED && killed != 0:
		return &exitError{code: code, err: fmt.Errorf("killed, because you repeated %s", unix.SignalName(killed))}
	case exit.Cause == execwirev1.ExitCause_EXIT_CAUSE_TERMINATED:
		return &exitError{code: code,
			err: errors.New("the server ended the process: somebody asked it to, or the client was gone for longer than the grace")}
	}
	return &exitError{code: code}
}
