package server

import (
	"context"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/fsops"
	"github.com/execwire/execwire/internal/session"
	"github.com/execwire/execwire/server/filehelper"
)

// closePatience is how long a helper may take to close a file that nobody waits for.
const closePatience = 10 * time.Second

// keptFile is a file that a helper has open for a handle.
type keptFile struct {
	lease *filehelper.Lease
	id    string // of the helper's own handle, which is never used twice
}

func (k *keptFile) client() execwirev1.FileSystemServiceClient {
	return execwirev1.NewFileSystemServiceClient(k.lease.Conn())
}

// OpenFile implements the RPC. A handle of a file that a helper has open is among
// those of the session, and keeps the helper.
func (s *confinedFiles) OpenFile(ctx context.Context, req *execwirev1.OpenFileRequest) (*execwirev1.OpenFileResponse, error) {
	lease, err := s.helper(ctx, req.GetSessionId(), "sandbox", req.GetSandbox())
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
	file := &keptFile{id: strconv.FormatUint(s.server.keptFiles.Add(1), 10)}
	var response *execwirev1.OpenFileResponse
	err = owner.AddTo(handlesKey{}, s.newHandles, func(b session.Belonging) error {
		kept := fsops.Kept{By: file, End: func() { s.server.receivers.Go(file.end) }}
		return b.(*fsops.Handles).Keep(req.GetHandleId(), kept, func() (err error) {
			file.lease = lease.Lasting()
			request := stripped(req)
			request.HandleId = file.id
			response, err = file.client().OpenFile(forwarded(ctx), request)
			if err == nil && ctx.Err() == nil {
				return nil
			}
			s.server.receivers.Go(file.end) // which the helper may have opened all the same
			return fromHelper(ctx, lease, orCause(ctx, err))
		})
	})
	if err != nil {
		return nil, err
	}
	return response, nil
}

// orCause is an error, or why a context is done.
func orCause(ctx context.Context, err error) error {
	if err == nil {
		err = context.Cause(ctx)
	}
	return err
}

// end closes the file, which nobody uses any more.
func (k *keptFile) end() {
	defer k.lease.Release()
	ctx, cancel := context.WithTimeoutCause(context.Background(), closePatience, context.DeadlineExceeded)
	defer cancel()
	_, _ = k.client().CloseFile(ctx, &execwirev1.CloseFileRequest{HandleId: k.id}) // a helper that has ended has closed it
}

// kept returns the file that a helper has open for a handle, until done is called,
// and the handles of the session; nil if no helper has it.
func (s *confinedFiles) kept(ctx context.Context, sessionID, handleID string) (file *keptFile, handles *fsops.Handles, done func(), err error) {
	handles, err = s.handles(ctx, sessionID)
	if err != nil {
		return nil, nil, nil, err
	}
	by, done := handles.KeptBy(handleID)
	if by == nil {
		return nil, handles, nil, nil
	}
	return by.(*keptFile), handles, done, nil
}

// lost drops a handle whose file the helper has closed, because reading failed, or
// because it has ended itself, and says what the caller is told.
func lost(handles *fsops.Handles, handleID string, err error) error {
	switch reason := reasonOf(err); {
	case reason == reasonName(execwirev1.ErrorReason_ERROR_REASON_FILE_HANDLE_NOT_FOUND):
		_ = handles.CloseFile(handleID)
		return &fsops.HandleError{Kind: fsops.HandleNotFound, ID: handleID}
	case reason == reasonName(execwirev1.ErrorReason_ERROR_REASON_FILE_HELPER_ENDED):
		_ = handles.CloseFile(handleID)
	}
	return err
}

// ReadBlock implements the RPC.
func (s *confinedFiles) ReadBlock(ctx context.Context, req *execwirev1.ReadBlockRequest) (*execwirev1.ReadBlockResponse, error) {
	file, handles, done, err := s.kept(ctx, req.GetSessionId(), req.GetHandleId())
	switch {
	case err != nil:
		return nil, err
	case file == nil:
		return s.fileSystemService.ReadBlock(ctx, req)
	}
	defer done()
	request := stripped(req)
	request.HandleId = file.id
	response, err := file.client().ReadBlock(forwarded(ctx), request)
	if err != nil {
		return nil, lost(handles, req.GetHandleId(), fromHelper(ctx, file.lease, err))
	}
	s.moved(dataOf(response))
	return response, nil
}

// WriteBlock implements the RPC.
func (s *confinedFiles) WriteBlock(ctx context.Context, req *execwirev1.WriteBlockRequest) (*execwirev1.WriteBlockResponse, error) {
	file, handles, done, err := s.kept(ctx, req.GetSessionId(), req.GetHandleId())
	switch {
	case err != nil:
		return nil, err
	case file == nil:
		return s.fileSystemService.WriteBlock(ctx, req)
	}
	defer done()
	request := stripped(req)
	request.HandleId = file.id
	response, err := file.client().WriteBlock(forwarded(ctx), request)
	if err != nil {
		return nil, lost(handles, req.GetHandleId(), fromHelper(ctx, file.lease, err))
	}
	s.moved(dataOf(req))
	return response, nil
}

// CloseFile implements the RPC.
func (s *confinedFiles) CloseFile(ctx context.Context, req *execwirev1.CloseFileRequest) (*execwirev1.CloseFileResponse, error) {
	file, handles, done, err := s.kept(ctx, req.GetSessionId(), req.GetHandleId())
	switch {
	case err != nil:
		return nil, err
	case file == nil:
		return s.fileSystemService.CloseFile(ctx, req)
	}
	defer done()
	_ = handles.CloseFile(req.GetHandleId()) // the helper says what is wrong with the file
	request := stripped(req)
	request.HandleId = file.id
	response, err := file.client().CloseFile(forwarded(ctx), request)
	return response, fromHelper(ctx, file.lease, err)
}

// receives has a helper stay while it receives an upload, and counts that among those
// that the caller sends.
func (s *confinedFiles) receives(ctx context.Context, lease *filehelper.Lease, head *execwirev1.UploadHead) error {
	return lease.Receive(head.GetUploadId(), func() (func(), error) {
		owner, err := caller(ctx)
		if err != nil {
			return nil, err
		}
		return s.server.uploads.Count(owner, pathOf(head))
	})
}

// hasReceived has a helper stay for as long as it keeps what it has received of an
// upload, after the stream that brought it, and be found by what it has completed.
func (s *confinedFiles) hasReceived(ctx context.Context, lease *filehelper.Lease, id string) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), closePatience, context.DeadlineExceeded)
	defer cancel()
	response, err := execwirev1.NewFileSystemServiceClient(lease.Conn()).GetUpload(forwarded(ctx), &execwirev1.GetUploadRequest{UploadId: id})
	what, retention := filehelper.Unfinished, s.server.cfg.Limits.UploadRetention
	switch {
	case err != nil && status.Code(err) != codes.DeadlineExceeded, retention <= 0:
		what = filehelper.Gone
	case response.GetComplete():
		what = filehelper.Complete
	}
	lease.Received(id, what, retention)
}

// GetUpload implements the RPC. It names no policy: of the helpers of the caller
// that have an upload of that id the one is asked first that was used last.
func (s *confinedFiles) GetUpload(ctx context.Context, req *execwirev1.GetUploadRequest) (*execwirev1.GetUploadResponse, error) {
	response, err := s.fileSystemService.GetUpload(ctx, req)
	if failed, is := err.(*fsops.Error); !is || failed.Kind != fsops.UploadNotFound {
		return response, err
	}
	owner, openErr := s.server.open(ctx, "")
	if openErr != nil {
		return nil, openErr
	}
	set, ok := owner.Belonging(helpersKey{}).(*filehelper.Set)
	if !ok {
		return nil, err
	}
	leases := set.Having(req.GetUploadId())
	defer func() {
		for _, lease := range leases {
			lease.Release()
		}
	}()
	for _, lease := range leases {
		response, failed := execwirev1.NewFileSystemServiceClient(lease.Conn()).GetUpload(forwarded(ctx), stripped(req))
		switch status.Code(failed) {
		case codes.OK:
			return response, nil
		case codes.NotFound, codes.Unavailable:
		default:
			return nil, fromHelper(ctx, lease, failed)
		}
	}
	return nil, err
}
