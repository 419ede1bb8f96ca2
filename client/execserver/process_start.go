package execserver

import (
	"bytes"
	"cmp"
	"context"
	"path"

	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
)

// errOwnerless rejects processes without an owner.
var errOwnerless = failure(execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED,
	"a process cannot be left behind over the exec-server protocol, where it ends with the connection: reach the server over gRPC")

// StartProcess implements ProcessServiceServer: processes start by RunProcess.
func (s *processService) StartProcess(context.Context, *execwirev1.StartProcessRequest) (*execwirev1.StartProcessResponse, error) {
	return nil, errOwnerless
}

// start starts a process, or finds the one that the same request started before. The
// owner owns it before the request is sent, because its output may come before the
// response.
func (s *processService) start(ctx context.Context, l *link, r *execwirev1.StartProcessRequest, owner *run) (resumed bool, err error) {
	if err := checkSession(l, r.GetSessionId()); err != nil {
		return false, err
	}
	directory := r.GetCommand().GetDirect().GetWorkingDirectory()
	if !path.IsAbs(directory) {
		directory = path.Join(l.homeDirectory(), directory)
	}
	params, err := newStartParams(l, r, directory)
	if err != nil {
		return false, err
	}
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(r)
	if err != nil {
		return false, status.Errorf(codes.InvalidArgument, "the request cannot be encoded: %v", err)
	}
	params.ProcessID = cmp.Or(r.GetProcessId(), uuid.NewString())
	created := &process{conn: s.conn, id: params.ProcessID, request: encoded,
		hasTerminal: params.Tty, hasStdin: params.PipeStdin, starting: semaphore.NewWeighted(1)}
	created.stdin = stdin{process: created, nonce: uuid.NewString()}
	created.starting.TryAcquire(1) // by this start, unless the process is known
	p := s.conn.processes.add(created)
	if p != created && (!bytes.Equal(p.request, encoded) || r.GetMustBeNew()) {
		return false, failure(execwirev1.ErrorReason_ERROR_REASON_PROCESS_ALREADY_EXISTS, "process %s already exists", p.id)
	}
	if p != created && p.starting.Acquire(ctx, 1) != nil {
		return false, contextStatus(ctx)
	}
	defer p.starting.Release(1)
	owner.own(p, 0)
	if p.isStarted() {
		return true, nil
	}
	s.conn.processes.add(p) // a start that failed has removed it
	return false, s.send(ctx, l, p, r, params)
}

type startResult struct {
	SandboxType string `param:"sandboxType,optional,nullable"`
}

// send sends the start. A process whose start was not answered stays known: it may run.
func (s *processService) send(ctx context.Context, l *link, p *process, r *execwirev1.StartProcessRequest, params *startParams) error {
	p.mu.Lock()
	repeated := p.attempted
	p.attempted = true
	p.mu.Unlock()
	var result startResult
	err := s.conn.call(ctx, l, "process/start", params, &result)
	switch {
	case repeated && errorinfo.Reason(err) == execwirev1.ErrorReason_ERROR_REASON_PROCESS_ALREADY_EXISTS:
		// The attempt that was not answered started it, and its first events are lost.
		p.setStarted(l, r, params.mustConfine)
		p.startRecovery(l)
		return nil
	case isUnanswered(err):
		return err
	case err != nil:
		err = s.withDirectory(ctx, l, params, err)
		isDefault := r.GetCommand().GetDirect().GetWorkingDirectory() == "" && !params.isAtRoot
		if isDefault && errorinfo.Reason(err) == execwirev1.ErrorReason_ERROR_REASON_BAD_WORKING_DIRECTORY {
			return s.sendAtRoot(ctx, l, p, r)
		}
		s.conn.processes.remove(p)
		return err
	}
	if params.mustConfine && (result.SandboxType == "" || result.SandboxType == "none") {
		if err := s.conn.control(context.WithoutCancel(ctx), l, "process/terminate", processParams{p.id}, nil); err != nil {
			return err
		}
		s.conn.processes.remove(p)
		return failure(execwirev1.ErrorReason_ERROR_REASON_SANDBOX_UNAVAILABLE,
			"the server started the process without the requested sandbox; it was terminated")
	}
	p.setStarted(l, r, params.mustConfine)
	return nil
}

// sendAtRoot sends a start that was refused because there is no home directory.
func (s *processService) sendAtRoot(ctx context.Context, l *link, p *process, r *execwirev1.StartProcessRequest) error {
	params, err := newStartParams(l, r, "/")
	if err != nil {
		return err
	}
	params.ProcessID, params.isAtRoot = p.id, true
	p.mu.Lock()
	p.attempted = false
	p.mu.Unlock()
	return s.send(ctx, l, p, r, params)
}

// withDirectory distinguishes a missing directory from a missing program: servers of the
// reference return the same error.
func (s *processService) withDirectory(ctx context.Context, l *link, params *startParams, err error) error {
	if errorinfo.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_PROGRAM_NOT_FOUND {
		return err
	}
	missing := s.conn.call(ctx, l, "fs/getMetadata", map[string]string{"path": params.Cwd}, nil)
	if errorinfo.Reason(missing) != execwirev1.ErrorReason_ERROR_REASON_PATH_NOT_FOUND {
		return err
	}
	return newStatus(execwirev1.ErrorReason_ERROR_REASON_BAD_WORKING_DIRECTORY,
		"the working directory does not exist: "+status.Convert(err).Message(), map[string]string{"errno": "ENOENT"})
}

// isUnanswered reports whether the server may have processed the request that failed with
// err.
func isUnanswered(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return errorinfo.Reason(err) == execwirev1.ErrorReason_ERROR_REASON_UNSPECIFIED
	}
	return false
}
