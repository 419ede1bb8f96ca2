package server

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/server/fileworker"
)

// confinedStream makes a call with a policy and a stream of answers, here or by a
// worker. For a watch, count is not nil: it counts the watch for its owner, and the
// worker gets an inotify instance. Answers that the client does not read wait in
// the worker, beyond the windows of the connection.
func confinedStream[Req interface {
	sandboxed
	proto.Message
}, Res any](ctx context.Context, s *confinedFiles, req Req, stream grpc.ServerStreamingServer[Res],
	here func(Req, grpc.ServerStreamingServer[Res]) error,
	remote func(execwirev1.FileSystemServiceClient, context.Context, Req, ...grpc.CallOption) (grpc.ServerStreamingClient[Res], error),
	count func(owner string) (leave func(), err error),
) error {
	lease, err := s.worker(ctx, "", "sandbox", req.GetSandbox())
	if err != nil {
		return err
	}
	if lease == nil {
		return here(req, stream)
	}
	defer lease.Release()
	if count != nil {
		owner := caller(ctx)
		leave, err := count(owner)
		if err != nil {
			return err
		}
		defer leave()
		defer lease.Long().Release()
		// A worker without an inotify instance of the server opens one, or its answer says why
		// it cannot.
		_ = lease.ShareDescriptor(ctx, func() (int, func(), error) { return s.server.watcher.Lend(owner) })
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	from, err := remote(execwirev1.NewFileSystemServiceClient(lease.Conn()), workerContext(ctx), workerRequest(req))
	var moved int64
	for err == nil {
		var m *Res
		if m, err = from.Recv(); err != nil {
			break
		}
		moved += contentBytes(m)
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	s.noteContent(moved)
	if errors.Is(err, io.EOF) {
		return nil
	}
	return fromWorkerCall(ctx, lease, err)
}

// DownloadFile implements the RPC.
func (s *confinedFiles) DownloadFile(req *execwirev1.DownloadFileRequest, stream grpc.ServerStreamingServer[execwirev1.DownloadFileResponse]) error {
	return confinedStream(stream.Context(), s, req, stream, s.fileSystemService.DownloadFile, execwirev1.FileSystemServiceClient.DownloadFile, nil)
}

// ReadDirectory implements the RPC.
func (s *confinedFiles) ReadDirectory(req *execwirev1.ReadDirectoryRequest, stream grpc.ServerStreamingServer[execwirev1.ReadDirectoryResponse]) error {
	return confinedStream(stream.Context(), s, req, stream, s.fileSystemService.ReadDirectory, execwirev1.FileSystemServiceClient.ReadDirectory, nil)
}

// WalkDirectory implements the RPC.
func (s *confinedFiles) WalkDirectory(req *execwirev1.WalkDirectoryRequest, stream grpc.ServerStreamingServer[execwirev1.WalkDirectoryResponse]) error {
	return confinedStream(stream.Context(), s, req, stream, s.fileSystemService.WalkDirectory, execwirev1.FileSystemServiceClient.WalkDirectory, nil)
}

// WatchDirectory implements the RPC.
func (s *confinedFiles) WatchDirectory(req *execwirev1.WatchDirectoryRequest, stream grpc.ServerStreamingServer[execwirev1.WatchDirectoryResponse]) error {
	ctx, leave := s.server.untilStopped(stream.Context())
	defer leave()
	return confinedStream(ctx, s, req, stream, s.fileSystemService.WatchDirectory, execwirev1.FileSystemServiceClient.WatchDirectory,
		func(owner string) (func(), error) { return s.server.watcher.CountWatch(owner, pathOf(req)) })
}

// AwaitPaths implements the RPC.
func (s *confinedFiles) AwaitPaths(req *execwirev1.AwaitPathsRequest, stream grpc.ServerStreamingServer[execwirev1.AwaitPathsResponse]) error {
	ctx, leave := s.server.untilStopped(stream.Context())
	defer leave()
	return confinedStream(ctx, s, req, stream, s.fileSystemService.AwaitPaths, execwirev1.FileSystemServiceClient.AwaitPaths,
		func(owner string) (func(), error) {
			return s.server.watcher.CountAwaited(owner, pathsOf(req.GetMissing()), pathsOf(req.GetPresent()))
		})
}

// UploadFile implements the RPC.
func (s *confinedFiles) UploadFile(stream uploadStream) error {
	head, err := receiveHead(stream)
	if err != nil {
		return err
	}
	lease, err := s.worker(stream.Context(), "", "head.sandbox", head.GetSandbox())
	if err != nil {
		return err
	}
	if lease == nil {
		return s.fileSystemService.receive(stream, head)
	}
	defer lease.Release()
	id := head.GetUploadId()
	if id != "" {
		if err := s.countUpload(stream.Context(), lease, head); err != nil {
			return err
		}
	}
	response, err := s.forwardUpload(stream, lease, head)
	if id != "" {
		s.keepUpload(stream.Context(), lease, id)
	}
	if err != nil {
		return err
	}
	s.noteContent(int64(response.GetSize()))
	return stream.SendAndClose(response)
}

// forwardUpload lets a worker receive an upload. A worker that needs no more data, for
// example after a failure, answers at once. Recv of the client's stream returns after
// the handler, so the goroutine that calls it belongs to the server.
func (s *confinedFiles) forwardUpload(stream uploadStream, lease *fileworker.Lease, head *execwirev1.UploadHead) (*execwirev1.UploadFileResponse, error) {
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	to, err := execwirev1.NewFileSystemServiceClient(lease.Conn()).UploadFile(workerContext(ctx))
	if err != nil {
		return nil, fromWorkerCall(ctx, lease, err)
	}
	s.server.receivers.Go(func() {
		m := &execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Head{Head: workerRequest(head)}}
		for {
			if to.Send(m) != nil {
				return // the answer says why
			}
			var err error
			m, err = stream.Recv()
			switch {
			case errors.Is(err, io.EOF):
				_ = to.CloseSend() // never fails
				return
			case err != nil:
				cancel(err)
				return
			case m.GetHead() != nil:
				m = &execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Head{Head: workerRequest(m.GetHead())}}
			}
		}
	})
	response := new(execwirev1.UploadFileResponse)
	if err := to.RecvMsg(response); err != nil {
		return nil, fromWorkerCall(ctx, lease, err)
	}
	return response, nil
}
