package server

import (
	"context"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/fsops"
	"github.com/execwire/execwire/internal/session"
)

// OpenFile implements the RPC. If the caller is gone by then, the file is closed.
func (s *fileSystemService) OpenFile(ctx context.Context, req *execwirev1.OpenFileRequest) (*execwirev1.OpenFileResponse, error) {
	owner, err := s.server.open(ctx, req.GetSessionId())
	if err != nil {
		return nil, err
	}
	var metadata fsops.Metadata
	err = s.server.handles.Add(owner, func(handles *fsops.Handles) (err error) {
		metadata, err = handles.Open(req.GetHandleId(), pathOf(req), openModes[req.GetMode()], pathOptions(req)...)
		if err == nil && ctx.Err() != nil {
			_ = handles.CloseFile(req.GetHandleId())
			err = context.Cause(ctx)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &execwirev1.OpenFileResponse{Metadata: toMetadata(metadata)}, nil
}

var openModes = map[execwirev1.OpenMode]fsops.OpenMode{
	execwirev1.OpenMode_OPEN_MODE_READ:    fsops.ReadMode,
	execwirev1.OpenMode_OPEN_MODE_REPLACE: fsops.ReplaceMode,
}

// newHandles returns the handles of a session. In a default session, which does not
// end, unused handles are closed after a time.
func (s *Server) newHandles(of *session.Session, emptied func()) *fsops.Handles {
	limits := fsops.HandleLimits{Handles: int(s.limits().GetFileHandlesPerSession())}
	if !of.HasLease() {
		limits.Idle = s.limits().GetFileHandleIdleTime().AsDuration()
	}
	return fsops.NewHandles(limits, emptied)
}

// handles returns the handles of a session; empty if it has none.
func (s *fileSystemService) handles(ctx context.Context, sessionID string) (*fsops.Handles, error) {
	owner, err := s.server.open(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	if handles, ok := s.server.handles.Find(owner); ok {
		return handles, nil
	}
	return fsops.NewHandles(fsops.HandleLimits{}, nil), nil
}

// ReadBlock implements the RPC.
func (s *fileSystemService) ReadBlock(ctx context.Context, req *execwirev1.ReadBlockRequest) (*execwirev1.ReadBlockResponse, error) {
	handles, err := s.handles(ctx, req.GetSessionId())
	if err != nil {
		return nil, err
	}
	data, err := handles.ReadBlock(req.GetHandleId(), int(req.GetLength()), int64(req.GetOffset()), lentBuffer(ctx))
	if err != nil {
		return nil, err
	}
	s.noteContent(int64(len(data)))
	return &execwirev1.ReadBlockResponse{Data: data, Eof: len(data) < int(req.GetLength())}, nil
}

// lentBuffer returns the buffer that a client within this program provides for the
// data of the answer.
func lentBuffer(ctx context.Context) []byte {
	if stream, ok := grpc.ServerTransportStreamFromContext(ctx).(interface{ Lent() []byte }); ok {
		return stream.Lent()
	}
	return nil
}

// WriteBlock implements the RPC.
func (s *fileSystemService) WriteBlock(ctx context.Context, req *execwirev1.WriteBlockRequest) (*execwirev1.WriteBlockResponse, error) {
	handles, err := s.handles(ctx, req.GetSessionId())
	if err != nil {
		return nil, err
	}
	if err := handles.WriteBlock(req.GetHandleId(), req.GetData(), int64(req.GetOffset())); err != nil {
		return nil, err
	}
	s.noteContent(int64(len(req.GetData())))
	return &execwirev1.WriteBlockResponse{}, nil
}

// CloseFile implements the RPC.
func (s *fileSystemService) CloseFile(ctx context.Context, req *execwirev1.CloseFileRequest) (*execwirev1.CloseFileResponse, error) {
	handles, err := s.handles(ctx, req.GetSessionId())
	if err != nil {
		return nil, err
	}
	return &execwirev1.CloseFileResponse{}, handles.CloseFile(req.GetHandleId())
}
