package server

import (
	"context"
	"fmt"
	"math"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/protoadapt"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/fsops"
	"github.com/execwire/execwire/internal/session"
)

// MaxHandleIDBytes is the longest id of a handle of an open file.
const MaxHandleIDBytes = 128

// handlesKey is what the handles of a session are found by in it.
type handlesKey struct{}

// OpenFile implements the RPC. A caller that has gone meanwhile leaves nothing
// open.
func (s *fileSystemService) OpenFile(ctx context.Context, req *execwirev1.OpenFileRequest) (*execwirev1.OpenFileResponse, error) {
	owner, err := s.server.open(ctx, req.GetSessionId())
	if err != nil {
		return nil, err
	}
	var metadata fsops.Metadata
	err = owner.AddTo(handlesKey{}, s.newHandles, func(b session.Belonging) (err error) {
		handles := b.(*fsops.Handles)
		metadata, err = handles.Open(req.GetHandleId(), pathOf(req), openModes[req.GetMode()], howOf(req)...)
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

// newHandles makes the table of a session. Nothing else ends what is open in a
// default session.
func (s *fileSystemService) newHandles(of *session.Session, emptied func()) session.Belonging {
	limits := fsops.HandleLimits{Handles: s.server.cfg.Limits.FileHandles}
	if !of.HasLease() {
		limits.Idle = s.server.cfg.Limits.FileHandleIdle
	}
	return fsops.NewHandles(limits, emptied)
}

// handles returns the open files of a session; an empty table if it has none.
func (s *fileSystemService) handles(ctx context.Context, sessionID string) (*fsops.Handles, error) {
	owner, err := s.server.open(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	if handles, ok := owner.Belonging(handlesKey{}).(*fsops.Handles); ok {
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
	data, err := handles.ReadBlock(req.GetHandleId(), int(req.GetLength()), int64(req.GetOffset()), lentMemory(ctx))
	if err != nil {
		return nil, err
	}
	s.moved(int64(len(data)))
	return &execwirev1.ReadBlockResponse{Data: data, Eof: len(data) < int(req.GetLength())}, nil
}

// lentMemory is what a client within this program lends for the data of the answer.
func lentMemory(ctx context.Context) []byte {
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
	s.moved(int64(len(req.GetData())))
	return &execwirev1.WriteBlockResponse{}, nil
}

// CloseFile implements the RPC.
func (s *fileSystemService) CloseFile(ctx context.Context, req *execwirev1.CloseFileRequest) (*execwirev1.CloseFileResponse, error) {
	handles, err := s.handles(ctx, req.GetSessionId())
	if err != nil {
		return nil, err
	}
	if err := handles.CloseFile(req.GetHandleId()); err != nil {
		return nil, err
	}
	return &execwirev1.CloseFileResponse{}, nil
}

// handleReference is what every request about one handle has.
type handleReference interface {
	GetSessionId() string
	GetHandleId() string
}

// validateHandle checks a message about a handle; handled is false for another
// one.
func validateHandle(m any) (err error, handled bool) {
	handle, ok := m.(handleReference)
	if !ok {
		return nil, false
	}
	if handle.GetHandleId() == "" {
		return invalidField("handle_id", "is empty: name the handle"), true
	}
	if err := validateLength("handle_id", handle.GetHandleId(), MaxHandleIDBytes); err != nil {
		return err, true
	}
	if err := validateID("session_id", handle.GetSessionId()); err != nil {
		return err, true
	}
	switch m := m.(type) {
	case *execwirev1.OpenFileRequest:
		if openModes[m.GetMode()] == 0 {
			return invalidField("mode", fmt.Sprintf("cannot be %d: say read or replace", m.GetMode())), true
		}
		return validateFile("", m), true
	case *execwirev1.ReadBlockRequest:
		return validateBlock("length", m.GetOffset(), uint64(m.GetLength())), true
	case *execwirev1.WriteBlockRequest:
		return validateBlock("data", m.GetOffset(), uint64(len(m.GetData()))), true
	}
	return nil, true
}

func validateBlock(field string, offset, length uint64) error {
	switch {
	case length == 0 || length > fsops.MaxBlockBytes:
		return invalidField(field, fmt.Sprintf("is of %d bytes: use 1 to %d", length, fsops.MaxBlockBytes))
	case offset > math.MaxInt64:
		return invalidField("offset", fmt.Sprintf("is %d: use at most %d", offset, math.MaxInt64))
	}
	return nil
}

// handleErrors translates the kinds of errors about handles; a test proves it
// complete.
var handleErrors = map[fsops.HandleKind]translation{
	fsops.HandleNotFound: {codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_FILE_HANDLE_NOT_FOUND},
	fsops.HandleExists:   {codes.AlreadyExists, execwirev1.ErrorReason_ERROR_REASON_FILE_HANDLE_ALREADY_EXISTS},
	fsops.TooManyHandles: {codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_FILE_HANDLES},
}

func fromHandles(err *fsops.HandleError) error {
	t, ok := handleErrors[err.Kind]
	if !ok {
		t = translation{codes.Internal, execwirev1.ErrorReason_ERROR_REASON_INTERNAL}
	}
	metadata := map[string]string{}
	details := []protoadapt.MessageV1{&errdetails.ResourceInfo{ResourceType: "file handle", ResourceName: err.ID, Description: err.Error()}}
	if q, ok := handleQuotas[err.Kind]; ok {
		details = append(details, q.describe(int64(err.Limit), metadata)...)
	}
	return failure(t.code, t.reason, metadata, err.Error(), details...)
}
