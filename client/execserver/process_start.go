package execserver

import (
	"context"
	"crypto/sha256"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

type startResult struct {
	SandboxType string `param:"sandboxType,optional,nullable"`
	PID         *int32 `param:"pid"`
	StartedAtMs *int64 `param:"startedAtMs"`
}

// StartProcess implements the RPC. The process has no owner: what it says is
// dropped here, and the server keeps the end of it.
func (s *processService) StartProcess(ctx context.Context, r *execwirev1.StartProcessRequest) (*execwirev1.StartProcessResponse, error) {
	p, _, err := s.start(ctx, r, nil)
	if err != nil {
		return nil, err
	}
	return &execwirev1.StartProcessResponse{Process: p.describe()}, nil
}

// start starts a process, or finds the one that the same request started before.
// begin, if there is one, is called before the request is sent, because what the
// process says can come before the answer.
func (s *processService) start(ctx context.Context, r *execwirev1.StartProcessRequest, begin func(*process)) (p *process, resumed bool, err error) {
	if err := s.checkSession(r.GetSessionId()); err != nil {
		return nil, false, err
	}
	params, err := s.conn.startParams(ctx, r)
	if err != nil {
		return nil, false, err
	}
	if params.ProcessID == "" {
		params.ProcessID = uuid.NewString()
	}
	digest, err := digestOf(r)
	if err != nil {
		return nil, false, err
	}
	p, isNew := s.conn.processes.put(params.ProcessID, digest, params.Tty)
	if !isNew && (p.digest != digest || r.GetMustBeNew()) {
		return nil, false, processExists(params.ProcessID)
	}
	if err := p.enterStart(ctx); err != nil {
		return nil, false, err
	}
	defer p.leaveStart()
	if p.isStarted() {
		return p, true, nil
	}
	if begin != nil {
		begin(p)
	}
	return p, false, s.startOnce(ctx, p, r, params)
}

// startOnce asks for the start. A process whose start was not answered stays
// known: it may run.
func (s *processService) startOnce(ctx context.Context, p *process, r *execwirev1.StartProcessRequest, params *startParams) error {
	p.prepare(s.conn.sessionID(), r)
	repeated := p.attempted()
	var result startResult
	err := s.conn.call(ctx, "process/start", params, &result)
	switch {
	case err == nil:
	case repeated && reasonOf(err) == execwirev1.ErrorReason_ERROR_REASON_PROCESS_ALREADY_EXISTS:
		// It was started by the attempt that was not answered.
	case isUnanswered(err):
		return err
	default:
		s.conn.processes.drop(p)
		return startFailure(params, s.withDirectory(ctx, params, err))
	}
	if params.mustConfine && err == nil && (result.SandboxType == "" || result.SandboxType == "none") {
		return s.refuseUnconfined(ctx, p)
	}
	p.started(params.mustConfine, &result)
	return nil
}

// withDirectory tells a missing directory from a missing program, of which servers of
// the reference say the same.
func (s *processService) withDirectory(ctx context.Context, params *startParams, err error) error {
	if s.conn.features().execwire || reasonOf(err) != execwirev1.ErrorReason_ERROR_REASON_PROGRAM_NOT_FOUND {
		return err
	}
	missing := s.conn.call(ctx, "fs/getMetadata", map[string]string{"path": params.Cwd}, nil)
	if reasonOf(missing) != execwirev1.ErrorReason_ERROR_REASON_PATH_NOT_FOUND {
		return err
	}
	return statusWith(execwirev1.ErrorReason_ERROR_REASON_BAD_WORKING_DIRECTORY,
		"the working directory does not exist: "+status.Convert(err).Message(), map[string]string{"errno": "ENOENT"})
}

// refuseUnconfined ends a process that runs without the sandbox that was asked for.
func (s *processService) refuseUnconfined(ctx context.Context, p *process) error {
	err := s.conn.control(context.WithoutCancel(ctx), "process/terminate", map[string]string{"processId": p.id}, nil)
	if err != nil {
		return err
	}
	s.conn.processes.drop(p)
	return failure(execwirev1.ErrorReason_ERROR_REASON_SANDBOX_UNAVAILABLE,
		"the server started the process without the sandbox that was asked for; it was terminated")
}

// startFailure is what a start failed with, by the fields of the request.
func startFailure(params *startParams, err error) error {
	if params.Executable == "" && len(params.Argv) == 0 && status.Code(err) == codes.InvalidArgument {
		return invalidField("command.direct.argv", "must not be empty")
	}
	return err
}

// isUnanswered reports whether the server may have done what failed with err.
func isUnanswered(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return reasonOf(err) == execwirev1.ErrorReason_ERROR_REASON_UNSPECIFIED
	}
	return false
}

func processExists(id string) error {
	return statusWith(execwirev1.ErrorReason_ERROR_REASON_PROCESS_ALREADY_EXISTS, "process "+id+" already exists", nil)
}

// digestOf tells requests apart.
func digestOf(r *execwirev1.StartProcessRequest) ([sha256.Size]byte, error) {
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(r)
	if err != nil {
		return [sha256.Size]byte{}, status.Errorf(codes.InvalidArgument, "the request cannot be encoded: %v", err)
	}
	return sha256.Sum256(text), nil
}
