package execserver

import (
	"context"
	"errors"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

type processParams struct {
	ProcessID string `json:"processId"`
}

// GetProcess implements ProcessServiceServer.
func (s *processService) GetProcess(ctx context.Context, r *execwirev1.GetProcessRequest) (*execwirev1.GetProcessResponse, error) {
	p, _, err := s.find(ctx, r)
	if err != nil {
		return nil, err
	}
	return &execwirev1.GetProcessResponse{Process: p.describe()}, nil
}

// maxWait limits a call of WaitProcess.
const maxWait = time.Minute

var errWaited = errors.New("the wait is over")

// WaitProcess implements ProcessServiceServer for the exit and the close, of which
// servers notify.
func (s *processService) WaitProcess(ctx context.Context, r *execwirev1.WaitProcessRequest) (*execwirev1.WaitProcessResponse, error) {
	p, l, err := s.find(ctx, r)
	if err != nil {
		return nil, err
	}
	switch r.GetCondition().(type) {
	case nil, *execwirev1.WaitProcessRequest_Exit, *execwirev1.WaitProcessRequest_Closed:
	default:
		return nil, unsupportedRequest("waiting for anything but the exit and the close of a process")
	}
	wait := maxWait
	if r.GetWait() != nil {
		wait = min(max(r.GetWait().AsDuration(), 0), maxWait)
	}
	limited, cancel := context.WithTimeoutCause(ctx, wait, errWaited)
	defer cancel()
	satisfied := func() bool { return p.log.closed || p.incoming.exit != nil && r.GetClosed() == nil }
	err = p.await(limited, l, satisfied)
	if err != nil && !errors.Is(err, errWaited) {
		return nil, err
	}
	return &execwirev1.WaitProcessResponse{Satisfied: err == nil, Process: p.describe()}, nil
}

// ResizeTerminal implements ProcessServiceServer.
func (s *processService) ResizeTerminal(ctx context.Context, r *execwirev1.ResizeTerminalRequest) (*execwirev1.ResizeTerminalResponse, error) {
	p, l, err := s.find(ctx, r)
	if err != nil {
		return nil, err
	}
	return &execwirev1.ResizeTerminalResponse{}, s.resize(ctx, l, p, r.GetSize())
}

type resizeParams struct {
	ProcessID string `json:"processId"`
	Rows      uint32 `json:"rows"`
	Cols      uint32 `json:"cols"`
}

func (s *processService) resize(ctx context.Context, l *link, p *process, size *execwirev1.TerminalSize) error {
	if err := checkSize("size", size); err != nil {
		return err
	}
	if !l.peer.extended {
		return unsupportedRequest("another size of a terminal")
	}
	return s.conn.control(ctx, l, "process/resize", resizeParams{p.id, size.GetRows(), size.GetColumns()}, nil)
}

// SignalProcess implements ProcessServiceServer.
func (s *processService) SignalProcess(ctx context.Context, r *execwirev1.SignalProcessRequest) (*execwirev1.SignalProcessResponse, error) {
	p, l, err := s.find(ctx, r)
	if err != nil {
		return nil, err
	}
	return &execwirev1.SignalProcessResponse{}, s.signal(ctx, l, p, r.GetSignal(), r.GetTarget())
}

type signalParams struct {
	ProcessID string `json:"processId"`
	Signal    any    `json:"signal"`
	Target    string `json:"target,omitempty"`
}

var targets = map[execwirev1.SignalTarget]string{
	execwirev1.SignalTarget_SIGNAL_TARGET_GROUP:      "group",
	execwirev1.SignalTarget_SIGNAL_TARGET_PROCESS:    "process",
	execwirev1.SignalTarget_SIGNAL_TARGET_FOREGROUND: "foreground",
}

// signal sends a signal. Servers of the reference have only SIGINT, by a name.
func (s *processService) signal(ctx context.Context, l *link, p *process, signal execwirev1.Signal, target execwirev1.SignalTarget) error {
	params := signalParams{ProcessID: p.id, Signal: int32(signal), Target: targets[target]}
	if !l.peer.extended {
		if signal != execwirev1.Signal_SIGNAL_INT || target == execwirev1.SignalTarget_SIGNAL_TARGET_PROCESS {
			return unsupportedRequest("a signal other than SIGINT to the group of a process")
		}
		params = signalParams{ProcessID: p.id, Signal: "interrupt"}
	}
	return s.conn.control(ctx, l, "process/signal", params, nil)
}

// TerminateProcess implements ProcessServiceServer.
func (s *processService) TerminateProcess(ctx context.Context, r *execwirev1.TerminateProcessRequest) (*execwirev1.TerminateProcessResponse, error) {
	p, l, err := s.find(ctx, r)
	if err != nil {
		return nil, err
	}
	return s.terminate(ctx, l, p, r.GetTermination())
}

type terminateParams struct {
	ProcessID string `json:"processId"`
	Mode      string `json:"mode,omitempty"`
	TimeoutMs *int64 `json:"timeoutMs,omitempty"`
}

type terminateResult struct {
	Running       bool `param:"running"`
	VerifiedEmpty bool `param:"verifiedEmpty,optional"`
}

// terminate ends a process and waits for its exit. Servers of the reference only kill.
func (s *processService) terminate(ctx context.Context, l *link, p *process, how *execwirev1.Termination) (*execwirev1.TerminateProcessResponse, error) {
	params := terminateParams{ProcessID: p.id}
	switch {
	case !l.peer.extended:
	case how.GetForce() != nil:
		params.Mode = "force"
	default:
		params.Mode = "graceful"
		if timeout := how.GetGraceful().GetTimeout(); timeout != nil {
			params.TimeoutMs = new(max(timeout.AsDuration(), 0).Milliseconds())
		}
	}
	p.mu.Lock()
	p.killed = true
	p.mu.Unlock()
	var result terminateResult
	if err := s.conn.control(ctx, l, "process/terminate", params, &result); err != nil {
		return nil, err
	}
	if err := p.await(ctx, l, func() bool { return p.incoming.exit != nil }); err != nil {
		return nil, err
	}
	response := &execwirev1.TerminateProcessResponse{WasRunning: result.Running, VerifiedEmpty: result.VerifiedEmpty, Exit: p.describe().GetExit()}
	if !l.peer.extended {
		response.Method = execwirev1.KillMethod_KILL_METHOD_PROCESS_GROUP
	}
	return response, nil
}
