package main

import (
	"errors"
	"syscall"

	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/syslimit"
)

// errUnguarded is why a server stops whose guardian was killed. Nobody would
// end its processes if it went on and were killed, too.
var errUnguarded = errors.New("the guardian was killed, so the server has ended all processes and stopped: start it again")

// guardianThreads are made in advance, so that processes are killed also when the system
// has no threads left.
const guardianThreads = 8

// guard runs the server in a process of its own and stays as its guardian. It
// ends as the server does.
func guard(how process.Guarding) error {
	syslimit.MakeThreads(guardianThreads)
	code, err := process.Guard(how)
	switch {
	case code == 0 && err == nil:
		return nil
	case code == 0:
		code = codeFailed
	}
	return &exitError{code: code, err: err}
}

// watchGuardian closes gone when the guardian is gone, should there be one, and
// calls passed as [process.GuardianWatch.Wait] does. Calling forget ends the watch.
func watchGuardian(guardian *process.GuardianWatch, passed func(syscall.Signal)) (gone <-chan struct{}, forget func()) {
	if guardian == nil {
		return nil, func() {}
	}
	lost, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		if guardian.Wait(passed) == nil {
			close(lost)
		}
	}()
	return lost, func() {
		guardian.Close()
		<-over
	}
}
