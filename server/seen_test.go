package server_test

import (
	"context"
	"testing"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// startAndWaitClosed starts a process without an owner and returns once it has closed. No client has
// seen its exit.
func (f *fixture) startAndWaitClosed(id string) {
	f.t.Helper()
	f.start(shell(id, "echo said"))
	f.untilState(id, execwirev1.ProcessState_PROCESS_STATE_CLOSED)
}

// state returns the state of a process, or unspecified if there is none. It does not count as seeing the exit.
func (f *fixture) state(id string) execwirev1.ProcessState {
	f.t.Helper()
	resp, err := f.processes.GetProcess(f.ctx, &execwirev1.GetProcessRequest{ProcessId: id})
	if f.ctx.Err() != nil {
		f.t.Fatal(context.Cause(f.ctx))
	}
	if err != nil {
		return execwirev1.ProcessState_PROCESS_STATE_UNSPECIFIED
	}
	return resp.GetProcess().GetState()
}

func (f *fixture) untilState(id string, state execwirev1.ProcessState) {
	f.t.Helper()
	for f.state(id) != state {
		time.Sleep(time.Millisecond)
	}
}

// These answers count as seeing the exit of a process: its record is removed after
// closed_process_retention. A record that no client has seen stays.
func TestExitSeen_ByAnswer(t *testing.T) {
	for name, tt := range map[string]struct {
		ask  func(f *fixture, id string) error
		seen bool
	}{
		"wait for exit": {seen: true, ask: func(f *fixture, id string) error {
			_, err := f.processes.WaitProcess(f.ctx, &execwirev1.WaitProcessRequest{ProcessId: id})
			return err
		}},
		"wait for closed": {seen: true, ask: func(f *fixture, id string) error { f.waitClosed(id); return nil }},
		"wait for output, answered with the exit": {seen: true, ask: func(f *fixture, id string) error {
			req := waitPattern(&execwirev1.WaitForPattern{RegularExpression: "said"})
			req.ProcessId = id
			_, err := f.processes.WaitProcess(f.ctx, req)
			return err
		}},
		"read to the end": {seen: true, ask: func(f *fixture, id string) error {
			_, err := f.processes.ReadOutput(f.ctx, &execwirev1.ReadOutputRequest{ProcessId: id})
			return err
		}},
		"watch": {seen: true, ask: func(f *fixture, id string) error {
			f.watch(&execwirev1.WatchProcessRequest{ProcessId: id})
			return nil
		}},
		"terminate": {seen: true, ask: func(f *fixture, id string) error {
			_, err := f.processes.TerminateProcess(f.ctx, &execwirev1.TerminateProcessRequest{ProcessId: id})
			return err
		}},
		"acknowledged by its owner": {seen: true, ask: func(f *fixture, id string) error {
			o := f.resume(id, 0)
			o.until("the end", func() bool { return o.out.closed != nil })
			o.acknowledge(o.out.seq)
			for o.recv() == nil {
			}
			return nil
		}},
		"read in part": {ask: func(f *fixture, id string) error {
			resp, err := f.processes.ReadOutput(f.ctx, &execwirev1.ReadOutputRequest{ProcessId: id, MaxBytes: new(uint32(1))})
			if err == nil && resp.GetNextAfterSeq() == resp.GetLastSeq() {
				f.t.Error("a read of one byte reached the end")
			}
			return err
		}},
		"wait of a cancelled call": {ask: func(f *fixture, id string) error {
			gone, cancel := context.WithCancel(f.ctx)
			cancel()
			_, _ = f.processes.WaitProcess(gone, &execwirev1.WaitProcessRequest{ProcessId: id})
			return nil
		}},
		"get": {ask: func(f *fixture, id string) error { f.state(id); return nil }},
		"list": {ask: func(f *fixture, id string) error {
			_, err := f.processes.ListProcesses(f.ctx, &execwirev1.ListProcessesRequest{})
			return err
		}},
		"snapshot": {ask: func(f *fixture, id string) error {
			_, err := f.processes.SnapshotOutput(f.ctx, &execwirev1.SnapshotOutputRequest{ProcessId: id})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, func(s *settings) {
				s.sessions.ClosedRetention, s.sessions.UnseenRetention, s.sessions.UnseenPerPrincipal = time.Millisecond, time.Hour, 10
			})
			f.startAndWaitClosed("p")
			f.startAndWaitClosed("later")
			if err := tt.ask(f, "p"); err != nil {
				t.Fatal(err)
			}
			goes, stays := "p", "later"
			if !tt.seen {
				goes, stays = stays, goes
				f.waitClosed(goes)
			}
			f.untilState(goes, execwirev1.ProcessState_PROCESS_STATE_UNSPECIFIED)
			if state := f.state(stays); state != execwirev1.ProcessState_PROCESS_STATE_CLOSED {
				t.Errorf("%s is %v", stays, state)
			}
		})
	}
}
