package execserver

import (
	"context"
	"path"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
)

// maxDirectories limits the directories of a walk, as in the contract.
const maxDirectories = 250_000

// walk is one WalkDirectory. It lists one directory after the other, because fs/walk
// omits links, and all but the first 50,000 entries.
type walk struct {
	files   *fileService
	request *execwirev1.WalkDirectoryRequest
	stream  grpc.ServerStreamingServer[execwirev1.WalkDirectoryResponse]
	root    target
	queue   []walkedDirectory
}

// walkedDirectory is a directory to be listed.
type walkedDirectory struct {
	path  string // relative to the root
	depth uint32
}

// WalkDirectory implements FileSystemServiceServer. Links to files are reported as files,
// unless metadata is requested.
func (s *fileService) WalkDirectory(request *execwirev1.WalkDirectoryRequest, stream grpc.ServerStreamingServer[execwirev1.WalkDirectoryResponse]) error {
	root, err := s.target(stream.Context(), request)
	if err != nil {
		return err
	}
	plain := &execwirev1.WalkDirectoryRequest{Path: request.GetPath(), RawPath: request.GetRawPath(),
		Sandbox: request.GetSandbox(), MaxDepth: request.MaxDepth, WantMetadata: request.GetWantMetadata()}
	if !proto.Equal(request, plain) {
		return unsupported("a walk that ignores or limits anything or follows links", "lists all of a tree")
	}
	w := &walk{files: s, request: request, stream: stream, root: root, queue: []walkedDirectory{{}}}
	end := &execwirev1.WalkEnd{}
	for read := 0; len(w.queue) > 0; read++ {
		if read == maxDirectories {
			end.Truncated, end.Limit = true, execwirev1.WalkLimit_WALK_LIMIT_DIRECTORIES
			break
		}
		next := w.queue[0]
		w.queue = w.queue[1:]
		if err := w.list(next); err != nil {
			return err
		}
	}
	return stream.Send(&execwirev1.WalkDirectoryResponse{Message: &execwirev1.WalkDirectoryResponse_End{End: end}})
}

// target returns a path below the root.
func (w *walk) target(relative string) (target, error) {
	t, err := newTarget(w.root.link, "path", path.Join(w.root.native, relative), nil, nil)
	t.Sandbox = w.root.Sandbox
	return t, err
}

// list sends the entries of a directory and queues its subdirectories.
func (w *walk) list(directory walkedDirectory) error {
	t, err := w.target(directory.path)
	if err != nil {
		return err
	}
	entries, err := w.files.list(w.stream.Context(), t)
	if err != nil {
		return w.sendError(directory.path, err)
	}
	slices.SortFunc(entries, func(a, b *execwirev1.DirectoryEntry) int { return strings.Compare(a.GetName(), b.GetName()) })
	walked := make([]*execwirev1.WalkEntry, len(entries))
	for i, e := range entries {
		relative := path.Join(directory.path, e.GetName())
		if walked[i], err = w.describe(relative, e.GetType()); err != nil {
			return err
		}
		isDeep := w.request.MaxDepth != nil && directory.depth >= w.request.GetMaxDepth()
		if walked[i].GetType() == execwirev1.FileType_FILE_TYPE_DIRECTORY && !isDeep {
			w.queue = append(w.queue, walkedDirectory{relative, directory.depth + 1})
		}
	}
	for part := range slices.Chunk(walked, maxEntries) {
		message := &execwirev1.WalkDirectoryResponse{Message: &execwirev1.WalkDirectoryResponse_Entries{Entries: &execwirev1.WalkEntries{Entries: part}}}
		if err := w.stream.Send(message); err != nil {
			return err
		}
	}
	return nil
}

// describe returns an entry. What is listed as a directory may be a link to one.
func (w *walk) describe(relative string, listed execwirev1.FileType) (*execwirev1.WalkEntry, error) {
	entry := &execwirev1.WalkEntry{Type: listed}
	entry.Path, entry.RawPath = nameFields(relative)
	if listed != execwirev1.FileType_FILE_TYPE_DIRECTORY && !w.request.GetWantMetadata() {
		return entry, nil
	}
	t, err := w.target(relative)
	if err != nil {
		return nil, err
	}
	m, err := w.files.describeLink(w.stream.Context(), t)
	switch {
	case err != nil && isFatal(w.stream.Context(), err):
		return nil, err
	case err != nil:
		return entry, nil // it was removed meanwhile, or is not accessible
	case m.GetIsSymlink():
		entry.Type = m.GetType()
	}
	if w.request.GetWantMetadata() {
		entry.Metadata = m
	}
	return entry, nil
}

// sendError reports a directory that could not be listed; an error of the root ends the
// walk.
func (w *walk) sendError(relative string, err error) error {
	if relative == "" || isFatal(w.stream.Context(), err) {
		return err
	}
	failed := &execwirev1.WalkError{Reason: errorinfo.Reason(err), Errno: errorinfo.Of(err).GetMetadata()["errno"], Message: status.Convert(err).Message()}
	failed.Path, failed.RawPath = nameFields(relative)
	return w.stream.Send(&execwirev1.WalkDirectoryResponse{Message: &execwirev1.WalkDirectoryResponse_Error{Error: failed}})
}

// isFatal reports whether an error concerns more than one path.
func isFatal(ctx context.Context, err error) bool {
	return ctx.Err() != nil || status.Code(err) == codes.Unavailable
}
