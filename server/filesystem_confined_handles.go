package server

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/fsops"
	"github.com/execwire/execwire/server/fileworker"
)

// workerCloseTimeout bounds the close of a file that has no handle any more.
const workerCloseTimeout = 10 * time.Second

// workerFile is a file that a worker has open for a handle.
type workerFile struct {
	lease *fileworker.Lease
	id    string // of the worker's handle, unique
}

func (k *workerFile) client() execwirev1.FileSystemServiceClient {
	return execwirev1.NewFileSystemServiceClient(k.lease.Conn())
}

// OpenFile implements the RPC. A handle of a file in a worker counts among those of
// the session, and keeps the worker.
func (s *confinedFiles) OpenFile(ctx context.Context, req *execwirev1.OpenFileRequest) (*execwirev1.OpenFileResponse, error) {
	lease, err := s.worker(ctx, req.GetSessionId(), "sandbox", req.GetSandbox())
	if err != nil {
		return nil, err
	}
	if lease == nil {
		return s.fileSystemService.OpenFile(ctx, req)
	}
	defer lease.Release()
	owner, err := s.server.open(ctx, req.GetSessionId())
	if err != nil {
		return nil, err
	}
	file := &workerFile{id: strconv.FormatUint(s.server.lastWorkerFile.Add(1), 10)}
	var response *execwirev1.OpenFileResponse
	err = s.server.handles.Add(owner, func(handles *fsops.Handles) error {
		external := fsops.ExternalFile{Holder: file, Close: func() { s.server.receivers.Go(file.close) }}
		return handles.OpenExternal(req.GetHandleId(), external, func() (err error) {
			file.lease = lease.Long()
			request := workerRequest(req)
			request.HandleId = file.id
			response, err = file.client().OpenFile(workerContext(ctx), request)
			if err == nil && ctx.Err() == nil {
				return nil
			}
			s.server.receivers.Go(file.close) // the worker may have opened it nevertheless
			return fromWorkerCall(ctx, lease, cmp.Or(err, context.Cause(ctx)))
		})
	})
	if err != nil {
		return nil, err
	}
	return response, nil
}

// close closes the file.
func (k *workerFile) close() {
	defer k.lease.Release()
	ctx, cancel := context.WithTimeoutCause(context.Background(), workerCloseTimeout, context.DeadlineExceeded)
	defer cancel()
	_, _ = k.client().CloseFile(ctx, &execwirev1.CloseFileRequest{HandleId: k.id}) // fails if the worker has ended, which closes the file
}

// dropLostHandle removes a handle whose file the worker has closed, because a read
// failed or the worker ended, and returns the error for the caller.
func dropLostHandle(handles *fsops.Handles, handleID string, err error) error {
	switch errorinfo.Reason(err) {
	case execwirev1.ErrorReason_ERROR_REASON_FILE_HANDLE_NOT_FOUND:
		_ = handles.CloseFile(handleID)
		return fsops.HandleNotFoundError(handleID)
	case execwirev1.ErrorReason_ERROR_REASON_FILE_WORKER_ENDED:
		_ = handles.CloseFile(handleID)
	}
	return err
}

// ReadBlock implements the RPC.
func (s *confinedFiles) ReadBlock(ctx context.Context, req *execwirev1.ReadBlockRequest) (*execwirev1.ReadBlockResponse, error) {
	return handleCall(ctx, s, req, s.fileSystemService.ReadBlock, execwirev1.FileSystemServiceClient.ReadBlock)
}

// WriteBlock implements the RPC.
func (s *confinedFiles) WriteBlock(ctx context.Context, req *execwirev1.WriteBlockRequest) (*execwirev1.WriteBlockResponse, error) {
	return handleCall(ctx, s, req, s.fileSystemService.WriteBlock, execwirev1.FileSystemServiceClient.WriteBlock)
}

// CloseFile implements the RPC.
func (s *confinedFiles) CloseFile(ctx context.Context, req *execwirev1.CloseFileRequest) (*execwirev1.CloseFileResponse, error) {
	return handleCall(ctx, s, req, s.fileSystemService.CloseFile, execwirev1.FileSystemServiceClient.CloseFile)
}

// handleCall makes a call about a handle, here or by the worker that has its file open.
func handleCall[Req interface {
	handleReference
	proto.Message
}, Res any](ctx context.Context, s *confinedFiles, req Req, here func(context.Context, Req) (Res, error),
	remote func(execwirev1.FileSystemServiceClient, context.Context, Req, ...grpc.CallOption) (Res, error),
) (none Res, err error) {
	handles, err := s.handles(ctx, req.GetSessionId())
	if err != nil {
		return none, err
	}
	by, done := handles.External(req.GetHandleId())
	if by == nil {
		return here(ctx, req)
	}
	defer done()
	if _, closes := any(req).(*execwirev1.CloseFileRequest); closes {
		_ = handles.CloseFile(req.GetHandleId()) // the worker reports errors of the file
	}
	file, request := by.(*workerFile), workerRequest(req)
	fields := request.ProtoReflect()
	fields.Set(fields.Descriptor().Fields().ByName("handle_id"), protoreflect.ValueOfString(file.id))
	response, err := remote(file.client(), workerContext(ctx), request)
	if err != nil {
		return none, dropLostHandle(handles, req.GetHandleId(), fromWorkerCall(ctx, file.lease, err))
	}
	s.noteContent(contentBytes(req) + contentBytes(response))
	return response, nil
}

// countUpload keeps a worker while it receives an upload, and counts the upload for
// the caller.
func (s *confinedFiles) countUpload(ctx context.Context, lease *fileworker.Lease, head *execwirev1.UploadHead) error {
	return lease.Pin(head.GetUploadId(), func() (func(), error) {
		return s.server.uploads.Count(caller(ctx), pathOf(head))
	})
}

// keepUpload keeps a worker while it stores what it has received of an upload, and
// lets it be found by the uploads it has completed.
func (s *confinedFiles) keepUpload(ctx context.Context, lease *fileworker.Lease, id string) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), workerCloseTimeout, context.DeadlineExceeded)
	defer cancel()
	response, err := execwirev1.NewFileSystemServiceClient(lease.Conn()).GetUpload(workerContext(ctx), &execwirev1.GetUploadRequest{UploadId: id})
	what, retention := fileworker.Unfinished, s.server.limits().GetUploadRetention().AsDuration()
	switch {
	case err != nil && status.Code(err) != codes.DeadlineExceeded, retention <= 0:
		what = fileworker.Gone
	case response.GetComplete():
		what = fileworker.Complete
	}
	lease.Unpin(id, what, retention)
}

// GetUpload implements the RPC. The request has no policy: it asks the workers of the
// caller that have an upload of that id, the last used first.
func (s *confinedFiles) GetUpload(ctx context.Context, req *execwirev1.GetUploadRequest) (*execwirev1.GetUploadResponse, error) {
	response, err := s.fileSystemService.GetUpload(ctx, req)
	if failed, is := err.(*fsops.Error); !is || failed.Kind != fsops.UploadNotFound {
		return response, err
	}
	owner, openErr := s.server.open(ctx, "")
	if openErr != nil {
		return nil, openErr
	}
	set, ok := s.server.workerSets.Find(owner)
	if !ok {
		return nil, err
	}
	leases := set.Pinned(req.GetUploadId())
	defer func() {
		for _, lease := range leases {
			lease.Release()
		}
	}()
	for _, lease := range leases {
		response, failed := execwirev1.NewFileSystemServiceClient(lease.Conn()).GetUpload(workerContext(ctx), workerRequest(req))
		switch status.Code(failed) {
		case codes.OK:
			return response, nil
		case codes.NotFound, codes.Unavailable:
		default:
			return nil, fromWorkerCall(ctx, lease, failed)
		}
	}
	return nil, err
}
