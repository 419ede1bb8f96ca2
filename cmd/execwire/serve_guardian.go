package main

import (
	"errors"

	"github.com/execwire/execwire/internal/process"
)

// errUnguarded is why a server stops whose guardian was killed. Nobody would
// end its processes if it went on and were killed, too.
var errUnguarded = errors.New("the guardian was killed, so the server has ended all processes and stopped: start it again")

// guard runs the server in a process of its own and stays as its guardian. It
// ends as the server does.
func guard(cgroups string, readsInput bool) error {
	code, err := process.Guard(cgroups, readsInput)
	switch {
	case code == 0 && err == nil:
		return nil
	case code == 0:
		code = codeFailed
	}
	return &exitError{code: code, err: err}
}

// watchGuardian closes gone when the guardian is gone, should there be one.
// Calling forget ends the watch.
func watchGuardian(guardian *process.GuardianWatch) (gone <-chan struct{}, forget func()) {
	if guardian == nil {
		return nil, func() {}
	}
	lost, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		if guardian.Wait() == nil {
			close(lost)
		}
	}()
	return lost, func() {
		guardian.Close()
		<-over
	}
}
