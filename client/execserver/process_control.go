package execserver

import (
	"context"
	"time"

	"github.com/google/uuid"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// writeParams are the parameters of process/write.
type writeParams struct {
	ProcessID string `json:"processId"`
	Chunk     []byte `json:"chunk"`
	WriteID   string `json:"writeId"`
}

// statusResult is the result of process/write and process/closeStdin.
type statusResult struct {
	Status string `param:"status"`
}

// processParams name a process.
type processParams struct {
	ProcessID string `json:"processId"`
}

// find returns a process of the session.
func (s *processService) find(id string) (*process, error) {
	p := s.conn.processes.find(id)
	if p == nil || !p.isStarted() {
		return nil, processNotFound(id)
	}
	return p, nil
}

func processNotFound(id string) error {
	return failure(execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND, "unknown process id %.1024s", id)
}

// named returns the process that a request names.
func (s *processService) named(r interface {
	GetSessionId() string
	GetProcessId() string
}) (*process, error) {
	if err := s.checkSession(r.GetSessionId()); err != nil {
		return nil, err
	}
	return s.find(r.GetProcessId())
}

// stdinFailure is what a status of the protocol means, nil if it is good.
func (p *process) stdinFailure(status string) error {
	switch status {
	case "accepted":
		return nil
	case "unknownProcess":
		return processNotFound(p.id)
	case "starting":
		return failure(execwirev1.ErrorReason_ERROR_REASON_STDIN_CLOSED, "process %s has not started yet", p.id)
	}
	if p.hasPipe() || p.hasTerminal {
		return failure(execwirev1.ErrorReason_ERROR_REASON_STDIN_CLOSED, "the stdin of process %s is closed", p.id)
	}
	return failure(execwirev1.ErrorReason_ERROR_REASON_STDIN_NOT_PIPED, "process %s was started without a stdin", p.id)
}

// WriteStdin implements the RPC.
func (s *processService) WriteStdin(ctx context.Context, r *execwirev1.WriteStdinRequest) (*execwirev1.WriteStdinResponse, error) {
	p, err := s.named(r)
	if err != nil {
		return nil, err
	}
	id := r.GetWriteId()
	if id == "" {
		id = uuid.NewString()
	}
	return &execwirev1.WriteStdinResponse{}, s.write(ctx, p, r.GetData(), id)
}

// CloseStdin implements the RPC.
func (s *processService) CloseStdin(ctx context.Context, r *execwirev1.CloseStdinRequest) (*execwirev1.CloseStdinResponse, error) {
	p, err := s.named(r)
	if err != nil {
		return nil, err
	}
	return &execwirev1.CloseStdinResponse{}, s.closeStdin(ctx, p)
}

func (s *processService) closeStdin(ctx context.Context, p *process) error {
	switch {
	case p.hasTerminal:
		return failure(execwirev1.ErrorReason_ERROR_REASON_STDIN_IS_TERMINAL,
			"process %s has a terminal, whose input has no end of this kind: write 0x04 at the beginning of a line", p.id)
	case !s.conn.features().execwire:
		return notInProtocol("the end of a process's input")
	}
	var result statusResult
	if err := s.conn.call(ctx, "process/closeStdin", processParams{p.id}, &result); err != nil {
		return err
	}
	return p.stdinFailure(result.Status)
}

// ResizeTerminal implements the RPC.
func (s *processService) ResizeTerminal(ctx context.Context, r *execwirev1.ResizeTerminalRequest) (*execwirev1.ResizeTerminalResponse, error) {
	p, err := s.named(r)
	if err != nil {
		return nil, err
	}
	return &execwirev1.ResizeTerminalResponse{}, s.resize(ctx, p.id, r.GetSize())
}

type resizeParams struct {
	ProcessID string `json:"processId"`
	Rows      uint32 `json:"rows"`
	Cols      uint32 `json:"cols"`
}

func (s *processService) resize(ctx context.Context, id string, size *execwirev1.TerminalSize) error {
	if err := checkSize("size", size); err != nil {
		return err
	}
	if !s.conn.features().execwire {
		return notInProtocol("another size of a terminal")
	}
	return s.conn.control(ctx, "process/resize", resizeParams{id, size.GetRows(), size.GetColumns()}, nil)
}

// SignalProcess implements the RPC.
func (s *processService) SignalProcess(ctx context.Context, r *execwirev1.SignalProcessRequest) (*execwirev1.SignalProcessResponse, error) {
	p, err := s.named(r)
	if err != nil {
		return nil, err
	}
	return &execwirev1.SignalProcessResponse{}, s.signal(ctx, p.id, r.GetSignal(), r.GetTarget())
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

// signal sends a signal. Servers of the reference know one, under a name of its own.
func (s *processService) signal(ctx context.Context, id string, signal execwirev1.Signal, target execwirev1.SignalTarget) error {
	params := signalParams{ProcessID: id, Signal: int32(signal), Target: targets[target]}
	if !s.conn.features().execwire {
		isInterrupt := signal == execwirev1.Signal_SIGNAL_INT && target != execwirev1.SignalTarget_SIGNAL_TARGET_PROCESS
		if !isInterrupt {
			return notInProtocol("a signal other than SIGINT to the group of a process")
		}
		params = signalParams{ProcessID: id, Signal: "interrupt"}
	}
	return s.conn.control(ctx, "process/signal", params, nil)
}

// TerminateProcess implements the RPC.
func (s *processService) TerminateProcess(ctx context.Context, r *execwirev1.TerminateProcessRequest) (*execwirev1.TerminateProcessResponse, error) {
	p, err := s.named(r)
	if err != nil {
		return nil, err
	}
	return s.terminate(ctx, p, r.GetTermination())
}

type terminateParams struct {
	ProcessID string `json:"processId"`
	Mode      string `json:"mode,omitempty"`
	TimeoutMs *int64 `json:"timeoutMs,omitempty"`
}

type terminateResult struct {
	Running       bool      `param:"running"`
	ExitCode      *int64    `param:"exitCode"`
	Method        *string   `param:"method"`
	VerifiedEmpty bool      `param:"verifiedEmpty,optional"`
	Exit          *wireExit `param:"exit"`
}

var killMethods = map[string]execwirev1.KillMethod{
	"processGroup": execwirev1.KillMethod_KILL_METHOD_PROCESS_GROUP,
	"descendants":  execwirev1.KillMethod_KILL_METHOD_DESCENDANTS,
	"cgroup":       execwirev1.KillMethod_KILL_METHOD_CGROUP,
}

// terminate ends a process. Servers of the reference can only kill.
func (s *processService) terminate(ctx context.Context, p *process, how *execwirev1.Termination) (*execwirev1.TerminateProcessResponse, error) {
	params := terminateParams{ProcessID: p.id}
	if s.conn.features().execwire {
		params.Mode = "graceful"
		if how.GetForce() != nil {
			params.Mode = "force"
		} else if timeout := how.GetGraceful().GetTimeout(); timeout != nil {
			ms := max(timeout.AsDuration(), 0).Milliseconds()
			params.TimeoutMs = &ms
		}
	}
	p.mu.Lock()
	p.killed = true
	p.mu.Unlock()
	var result terminateResult
	ask := s.conn.control
	if params.Mode == "graceful" {
		ask = s.conn.call // it waits
	}
	if err := ask(ctx, "process/terminate", params, &result); err != nil {
		return nil, err
	}
	response := &execwirev1.TerminateProcessResponse{WasRunning: result.Running, VerifiedEmpty: result.VerifiedEmpty}
	if result.Method != nil {
		response.Method = killMethods[*result.Method]
	}
	switch {
	case result.ExitCode != nil || result.Exit != nil:
		response.Exit = p.exitOf(result.ExitCode, nil, result.Exit)
		return response, nil
	case params.Mode != "":
		return response, nil
	}
	response.Method = execwirev1.KillMethod_KILL_METHOD_PROCESS_GROUP
	exit, err := s.awaitExit(ctx, p)
	response.Exit = exit
	return response, err
}

// exitPoll is how often a process is looked at whose server tells of its end only in
// a notification, which may have been told before somebody listened.
const exitPoll = time.Second

// awaitExit waits until the exit of a process is known.
func (s *processService) awaitExit(ctx context.Context, p *process) (*execwirev1.ExitRecord, error) {
	timer := time.NewTicker(exitPoll)
	defer timer.Stop()
	for {
		l, err := s.conn.current(ctx)
		if err != nil {
			return nil, err
		}
		_, exit, _, changed := p.state()
		if exit != nil {
			return exit, nil
		}
		select {
		case <-changed:
		case <-timer.C:
			if _, err := p.read(ctx, l, 0, 0, false); err != nil {
				return nil, err
			}
		case <-l.lost():
			return nil, l.status()
		case <-ctx.Done():
			return nil, contextStatus(ctx)
		}
	}
}
