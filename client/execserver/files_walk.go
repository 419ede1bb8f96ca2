package execserver

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// maxWalked is the most directories that a walk reads, as in the contract.
const maxWalked = 250_000

// walk is one WalkDirectory: directories are listed one after the other, because
// fs/walk leaves links out, and more than 50,000 entries.
type walk struct {
	files   *fileService
	ctx     context.Context
	request *execwirev1.WalkDirectoryRequest
	stream  grpc.ServerStreamingServer[execwirev1.WalkDirectoryResponse]
	root    string
	entries []*execwirev1.WalkEntry // that were not sent yet
	told    uint64
	end     execwirev1.WalkEnd
}

// walked is a directory to be read.
type walked struct {
	path  string // relative to the root, in bytes
	depth uint32
}

// WalkDirectory implements FileSystemServiceServer. Links to files are told as files
// unless metadata is asked for, which is asked for one by one.
func (s *fileService) WalkDirectory(request *execwirev1.WalkDirectoryRequest, stream grpc.ServerStreamingServer[execwirev1.WalkDirectoryResponse]) error {
	where, err := s.wire(stream.Context(), request)
	switch {
	case err != nil:
		return err
	case len(request.GetIgnore()) > 0:
		return unsupported("ignore", "knows no patterns")
	case request.GetFollowDirectorySymlinks():
		return unsupported("follow_directory_symlinks", "does not tell directories apart that are reached by several names")
	case request.GetMaxDirectories() > maxWalked:
		return invalidField("max_directories", "is more than 250,000")
	}
	m, err := s.describe(stream.Context(), where)
	switch {
	case err != nil:
		return err
	case m.GetType() != execwirev1.FileType_FILE_TYPE_DIRECTORY:
		return failure(execwirev1.ErrorReason_ERROR_REASON_NOT_A_DIRECTORY, "%s is not a directory", where.native)
	}
	w := &walk{files: s, ctx: stream.Context(), request: request, stream: stream, root: cmp.Or(string(request.GetRawPath()), request.GetPath())}
	if err := w.run(); err != nil {
		return err
	}
	if err := w.flush(1); err != nil {
		return err
	}
	return stream.Send(&execwirev1.WalkDirectoryResponse{Message: &execwirev1.WalkDirectoryResponse_End{End: &w.end}})
}

// run reads one level after the other.
func (w *walk) run() error {
	most := cmp.Or(w.request.GetMaxDirectories(), maxWalked)
	for waiting, read := []walked{{}}, uint32(0); len(waiting) > 0 && !w.end.GetTruncated(); waiting = waiting[1:] {
		if read == most {
			w.end.Truncated, w.end.Limit = true, execwirev1.WalkLimit_WALK_LIMIT_DIRECTORIES
			break
		}
		read++
		below, err := w.read(waiting[0])
		if err != nil {
			return err
		}
		waiting = append(waiting, below...)
	}
	return nil
}

func (w *walk) wire(relative string) (wireWhere, error) {
	text, raw := pathFields(path.Join(w.root, relative))
	return w.files.wire(w.ctx, &execwirev1.ReadDirectoryRequest{Path: text, RawPath: raw, Sandbox: w.request.GetSandbox()})
}

// pathFields are the two fields that requests have for a path.
func pathFields(native string) (text string, raw []byte) {
	if text, raw = nameFields(native); raw != nil {
		text = ""
	}
	return text, raw
}

// read tells what is in a directory, and returns the directories of it that are to be
// read.
func (w *walk) read(directory walked) (below []walked, err error) {
	where, err := w.wire(directory.path)
	if err != nil {
		return nil, err
	}
	entries, err := w.files.list(w.ctx, where)
	if err != nil {
		return nil, w.failed(directory.path, err)
	}
	name := func(e *execwirev1.DirectoryEntry) string { return cmp.Or(string(e.GetRawName()), e.GetName()) }
	slices.SortFunc(entries, func(a, b *execwirev1.DirectoryEntry) int { return strings.Compare(name(a), name(b)) })
	for _, e := range entries {
		if w.request.MaxEntries != nil && w.told == w.request.GetMaxEntries() {
			w.end.Truncated, w.end.Limit = true, execwirev1.WalkLimit_WALK_LIMIT_ENTRIES
			return nil, nil
		}
		entry := &execwirev1.WalkEntry{Type: e.GetType()}
		relative := path.Join(directory.path, name(e))
		entry.Path, entry.RawPath = nameFields(relative)
		if err := w.look(relative, entry); err != nil {
			return nil, err
		}
		w.told++
		w.entries = append(w.entries, entry)
		isHidden := w.request.GetSkipHiddenDirectories() && strings.HasPrefix(name(e), ".")
		isDeep := w.request.MaxDepth != nil && directory.depth >= w.request.GetMaxDepth()
		if entry.GetType() == execwirev1.FileType_FILE_TYPE_DIRECTORY && !isHidden && !isDeep {
			below = append(below, walked{relative, directory.depth + 1})
		}
	}
	return below, w.flush(maxListed)
}

// look asks what a directory is, which may be a link to one, and about anything else
// if its metadata is wanted.
func (w *walk) look(relative string, entry *execwirev1.WalkEntry) error {
	if entry.GetType() != execwirev1.FileType_FILE_TYPE_DIRECTORY && !w.request.GetWantMetadata() {
		return nil
	}
	where, err := w.wire(relative)
	if err != nil {
		return err
	}
	m, err := w.files.describe(w.ctx, where)
	if err != nil {
		if isFatal(w.ctx, err) {
			return err
		}
		return nil // it is gone meanwhile, or nobody may look at it
	}
	if m.GetIsSymlink() {
		entry.Type, m.Type, m.Size = execwirev1.FileType_FILE_TYPE_SYMLINK, execwirev1.FileType_FILE_TYPE_SYMLINK, 0
	}
	if w.request.GetWantMetadata() {
		entry.Metadata = m
	}
	return nil
}

// failed tells of a directory that could not be read; the first one ends the walk.
func (w *walk) failed(relative string, err error) error {
	if relative == "" || isFatal(w.ctx, err) {
		return err
	}
	if err := w.flush(1); err != nil {
		return err
	}
	failed := &execwirev1.WalkError{Reason: reasonOf(err), Errno: errnoOf(err), Message: status.Convert(err).Message()}
	failed.Path, failed.RawPath = nameFields(relative)
	return w.stream.Send(&execwirev1.WalkDirectoryResponse{Message: &execwirev1.WalkDirectoryResponse_Error{Error: failed}})
}

// isFatal is whether an error is about more than one path.
func isFatal(ctx context.Context, err error) bool {
	return ctx.Err() != nil || status.Code(err) == codes.Unavailable
}

// flush sends the entries if there are so many, or more.
func (w *walk) flush(least int) error {
	if len(w.entries) < least {
		return nil
	}
	for part := range slices.Chunk(w.entries, maxListed) {
		message := &execwirev1.WalkDirectoryResponse{Message: &execwirev1.WalkDirectoryResponse_Entries{Entries: &execwirev1.WalkEntries{Entries: part}}}
		if err := w.stream.Send(message); err != nil {
			return err
		}
	}
	w.entries = nil
	return nil
}

// errnoOf is the name of the error of the operating system in a status, "" for none.
func errnoOf(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info.GetMetadata()["errno"]
		}
	}
	return ""
}
