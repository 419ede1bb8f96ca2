package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// fakeUploads accepts uploads as a server does, and cuts their streams.
type fakeUploads struct {
	execwirev1.UnimplementedFileSystemServiceServer

	mu       sync.Mutex
	cuts     []int // guarded by mu; bytes that the next streams receive before they are cut
	lateCuts int   // guarded by mu; number of streams cut after the file was replaced
	unseen   int   // guarded by mu; number of streams cut after they were received completely but not processed
	forgets  bool  // guarded by mu; nothing of a cut upload is kept
	// completed are the sizes of completed uploads.
	completed map[string]uint64
	partial   map[string][]byte
	files     map[string][]byte
	heads     []*execwirev1.UploadHead // guarded by mu
	received  int                      // guarded by mu; bytes of all streams
}

func newFakeUploads() *fakeUploads {
	return &fakeUploads{partial: map[string][]byte{}, files: map[string][]byte{}}
}

func (f *fakeUploads) UploadFile(stream grpc.ClientStreamingServer[execwirev1.UploadFileRequest, execwirev1.UploadFileResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	head := first.GetHead()
	f.heads = append(f.heads, head)
	cut := -1
	if len(f.cuts) > 0 {
		cut, f.cuts = f.cuts[0], f.cuts[1:]
	}
	if size, completed := f.completed[head.GetUploadId()]; completed && head.GetOffset() > 0 {
		return stream.SendAndClose(&execwirev1.UploadFileResponse{Size: size})
	}
	content := f.partial[head.GetUploadId()]
	if uint64(len(content)) < head.GetOffset() {
		return serverError(codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_UPLOAD_NOT_FOUND)
	}
	content = content[:head.GetOffset()]
	var digest []byte
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		content = append(content, request.GetData()...)
		f.received += len(request.GetData())
		if head.GetUploadId() != "" && !f.forgets {
			f.partial[head.GetUploadId()] = content
		}
		if cut >= 0 && len(content) > cut {
			return errCut
		}
		digest = request.GetEnd().GetSha256()
	}
	delete(f.partial, head.GetUploadId())
	if f.unseen > 0 && len(content) > 0 {
		f.unseen--
		return errCut
	}
	delete(f.completed, head.GetUploadId())
	sum := sha256.Sum256(content)
	if digest != nil && !bytes.Equal(digest, sum[:]) {
		return serverError(codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_DIGEST_MISMATCH)
	}
	if _, exists := f.files[head.GetPath()]; exists && head.GetIfMissing() {
		return serverError(codes.AlreadyExists, execwirev1.ErrorReason_ERROR_REASON_PATH_ALREADY_EXISTS)
	}
	f.files[head.GetPath()] = content
	if f.lateCuts > 0 {
		f.lateCuts--
		if head.GetUploadId() != "" {
			f.completed = map[string]uint64{head.GetUploadId(): uint64(len(content))}
		}
		return errCut
	}
	return stream.SendAndClose(&execwirev1.UploadFileResponse{Size: uint64(len(content)), Sha256: sum[:]})
}

func (f *fakeUploads) GetMetadata(_ context.Context, request *execwirev1.GetMetadataRequest) (*execwirev1.GetMetadataResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &execwirev1.GetMetadataResponse{Metadata: &execwirev1.FileMetadata{Size: uint64(len(f.files[request.GetPath()]))}}, nil
}

func (f *fakeUploads) GetUpload(_ context.Context, request *execwirev1.GetUploadRequest) (*execwirev1.GetUploadResponse, error) {
	// A stream holds the lock until its end; the state is read meanwhile.
	if !f.mu.TryLock() {
		return &execwirev1.GetUploadResponse{}, nil
	}
	defer f.mu.Unlock()
	content, ok := f.partial[request.GetUploadId()]
	if size, completed := f.completed[request.GetUploadId()]; completed {
		return &execwirev1.GetUploadResponse{ReceivedBytes: size, Complete: true}, nil
	}
	if !ok {
		return nil, serverError(codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_UPLOAD_NOT_FOUND)
	}
	return &execwirev1.GetUploadResponse{ReceivedBytes: uint64(len(content))}, nil
}
