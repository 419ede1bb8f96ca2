package client

import (
	"bytes"
	"context"
	"errors"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// errPressed ends input behind the keys that give the process up.
var errPressed = errors.New("the keys to detach were pressed")

// detachReader reads input that ends with keys that give the process up. They
// are reported once everything before them was returned.
type detachReader struct {
	stdinReader
	keys    []byte
	pressed func()

	matched int    // of keys, and held back
	over    bool   // the keys were pressed
	pending []byte // to be returned first
	err     error  // to be returned after it
	buffer  [512]byte
}

func (r *detachReader) Read(p []byte) (int, error) {
	for len(r.pending) == 0 {
		switch {
		case r.over:
			r.pressed()
			return 0, errPressed
		case r.err != nil:
			return 0, r.err
		}
		n, err := r.stdinReader.Read(r.buffer[:])
		r.take(r.buffer[:n])
		if r.err = err; err != nil && !r.over {
			r.pending = append(r.pending, r.keys[:r.matched]...)
			r.matched = 0
		}
	}
	n := copy(p, r.pending)
	r.pending = r.pending[n:]
	return n, nil
}

// take looks for the keys in input and keeps what is not of them.
func (r *detachReader) take(input []byte) {
	for _, b := range input {
		if r.over {
			return
		}
		held := append(bytes.Clone(r.keys[:r.matched]), b)
		free := 0
		for !bytes.HasPrefix(r.keys, held[free:]) {
			free++
		}
		r.pending = append(r.pending, held[:free]...)
		r.matched = len(held) - free
		r.over = r.matched == len(r.keys)
	}
}

// letGo gives up a process that was found, by a stream of its own, so that it
// is not terminated as one whose owner was lost. It is best effort: a process
// that was lost is left to whoever may own it by now.
func (r *run) letGo() {
	if !r.link.started {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if !r.link.lostAt.IsZero() {
		described, err := r.client.processes.GetProcess(ctx, &execwirev1.GetProcessRequest{
			SessionId: r.start.GetProcess().GetSessionId(), ProcessId: r.start.GetProcess().GetProcessId()})
		if err != nil || described.GetProcess().GetOwned() {
			return
		}
	}
	stream, err := r.client.processes.RunProcess(ctx)
	if err != nil {
		return
	}
	if _, err := r.open(stream); err != nil || stream.Send(detachment) != nil {
		return
	}
	for err == nil {
		_, err = stream.Recv()
	}
}

// Resume takes up a process that is already there, owns it, and blocks until it
// has closed, as [Client.Run] does after a lost connection. Whoever owns it
// already is replaced. RunOptions.Process is not used; Stdin is input that
// follows what the process got before.
//
// Unlike Run it leaves the process as it was found: when it fails for a reason
// of this side, or ctx is done, the process is given up and goes on. A process
// that is detached from, or given up, has no owner; one whose connection is
// lost is terminated after the grace.
func (c *Client) Resume(ctx context.Context, process ProcessRef, options RunOptions) (Exit, error) {
	r, err := newResume(c, process, options)
	if err != nil {
		return Exit{}, err
	}
	return r.run(ctx)
}

// newResume prepares the run of a process that is already there.
func newResume(c *Client, process ProcessRef, options RunOptions) (*run, error) {
	if process.ProcessID == "" {
		return nil, errors.New("failed to resume: ProcessRef.ProcessID is required")
	}
	options.Process = &execwirev1.StartProcessRequest{SessionId: process.SessionID, ProcessId: process.ProcessID}
	stdin := options.Stdin
	options.Stdin = nil // what of it is open, only the process knows
	r, err := newRun(c, options)
	if err != nil {
		return nil, err
	}
	r.found = true
	r.events.join(process.AfterSeq)
	if r.options.Stdin = stdin; stdin != nil {
		r.openPump(false) // it will turn out whether it is a terminal
	}
	return r, nil
}
