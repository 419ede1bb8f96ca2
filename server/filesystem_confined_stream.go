package server

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/server/filehelper"
)

// confinedStream makes a call with a policy that is answered by a stream: here, or
// by a helper. Of one that watches count is not nil: it counts it among what its owner
// has, and the helper is lent an inotify instance.
// What the client does not read waits in the helper, but for the windows of the
// connection.
func confinedStream[Req interface {
	sandboxed
	proto.Message
}, Res any](ctx context.Context, s *confinedFiles, req Req, stream grpc.ServerStreamingServer[Res],
	here func(Req, grpc.ServerStreamingServer[Res]) error,
	remote func(execwirev1.FileSystemServiceClient, context.Context, Req, ...grpc.CallOption) (grpc.ServerStreamingClient[Res], error),
	count func(owner string) (leave func(), err error),
) error {
	lease, err := s.helper(ctx, "", "sandbox", req.GetSandbox())
	if err != nil {
		return err
	}
	if lease == nil {
		return here(req, stream)
	}
	defer lease.Release()
	if count != nil {
		owner, err := caller(ctx)
		if err != nil {
			return err
		}
		leave, err := count(owner)
		if err != nil {
			return err
		}
		defer leave()
		defer lease.Lasting().Release()
		// A helper that is lent no inotify instance opens one, or its answer says why it cannot.
		_ = lease.Lend(ctx, func() (int, func(), error) { return s.server.watcher.Lend(owner) })
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	from, err := remote(execwirev1.NewFileSystemServiceClient(lease.Conn()), forwarded(ctx), stripped(req))
	var moved int64
	for err == nil {
		var m *Res
		if m, err = from.Recv(); err != nil {
			break
		}
		moved += dataOf(m)
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	s.moved(moved)
	if errors.Is(err, io.EOF) {
		return nil
	}
	return fromHelper(ctx, lease, err)
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
	ctx, leave := s.server.untilWatchesEnd(stream.Context())
	defer leave()
	return confinedStream(ctx, s, req, stream, s.fileSystemService.WatchDirectory, execwirev1.FileSystemServiceClient.WatchDirectory,
		func(owner string) (func(), error) { return s.server.watcher.CountWatch(owner, pathOf(req)) })
}

// AwaitPaths implements the RPC.
func (s *confinedFiles) AwaitPaths(req *execwirev1.AwaitPathsRequest, stream grpc.ServerStreamingServer[execwirev1.AwaitPathsResponse]) error {
	ctx, leave := s.server.untilWatchesEnd(stream.Context())
	defer leave()
	return confinedStream(ctx, s, req, stream, s.fileSystemService.AwaitPaths, execwirev1.FileSystemServiceClient.AwaitPaths,
		func(owner string) (func(), error) {
			return s.server.watcher.CountAwaited(owner, pathsOf(req.GetMissing()), pathsOf(req.GetPresent()))
		})
}

// UploadFile implements the RPC.
func (s *confinedFiles) UploadFile(stream uploadStream) error {
	first, err := stream.Recv()
	if err != nil || first.GetHead() == nil {
		return s.fileSystemService.UploadFile(&begunUpload{uploadStream: stream, first: first, err: err})
	}
	head := first.GetHead()
	lease, err := s.helper(stream.Context(), "", "head.sandbox", head.GetSandbox())
	if err != nil {
		return err
	}
	if lease == nil {
		return s.fileSystemService.UploadFile(&begunUpload{uploadStream: stream, first: first})
	}
	defer lease.Release()
	id := head.GetUploadId()
	if id != "" {
		if err := s.receives(stream.Context(), lease, head); err != nil {
			return err
		}
	}
	response, err := s.upload(stream, lease, head)
	if id != "" {
		s.hasReceived(stream.Context(), lease, id)
	}
	if err != nil {
		return err
	}
	s.moved(int64(response.GetSize()))
	return stream.SendAndClose(response)
}

// begunUpload is a stream of which the first message was received already.
type begunUpload struct {
	uploadStream
	first *execwirev1.UploadFileRequest
	err   error
}

// Recv implements the stream.
func (b *begunUpload) Recv() (*execwirev1.UploadFileRequest, error) {
	first, err := b.first, b.err
	if first == nil && err == nil {
		return b.uploadStream.Recv()
	}
	b.first = nil
	return first, err
}

// upload has a helper receive an upload. A helper that has no use for more, as
// after a failure, answers at once. Recv of the client's stream returns when the
// handler has, so the goroutine that waits in it is the server's.
func (s *confinedFiles) upload(stream uploadStream, lease *filehelper.Lease, head *execwirev1.UploadHead) (*execwirev1.UploadFileResponse, error) {
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	to, err := execwirev1.NewFileSystemServiceClient(lease.Conn()).UploadFile(forwarded(ctx))
	if err != nil {
		return nil, fromHelper(ctx, lease, err)
	}
	s.server.receivers.Go(func() {
		m := &execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Head{Head: stripped(head)}}
		for {
			if to.Send(m) != nil {
				return // why, the answer says
			}
			var err error
			m, err = stream.Recv()
			switch {
			case errors.Is(err, io.EOF):
				_ = to.CloseSend() // which never fails
				return
			case err != nil:
				cancel(err)
				return
			case m.GetHead() != nil:
				m = &execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Head{Head: stripped(m.GetHead())}}
			}
		}
	})
	response := new(execwirev1.UploadFileResponse)
	if err := to.RecvMsg(response); err != nil {
		return nil, fromHelper(ctx, lease, err)
	}
	return response, nil
}
