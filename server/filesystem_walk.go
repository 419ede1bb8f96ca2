package server

import (
	"math"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/fsops"
	"github.com/execwire/execwire/internal/gitignore"
)

// WalkDirectory implements the RPC.
func (s *fileSystemService) WalkDirectory(req *execwirev1.WalkDirectoryRequest, stream grpc.ServerStreamingServer[execwirev1.WalkDirectoryResponse]) error {
	options, err := walkOptions(req)
	if err != nil {
		return err
	}
	limit, err := fsops.Walk(stream.Context(), pathOf(req), options, walkStream{stream, req.GetWantMetadata()}, pathOptions(req)...)
	if err != nil {
		return err
	}
	return stream.Send(&execwirev1.WalkDirectoryResponse{Message: &execwirev1.WalkDirectoryResponse_End{
		End: &execwirev1.WalkEnd{Truncated: limit != 0, Limit: walkLimits[limit]}}})
}

var walkLimits = map[fsops.WalkLimit]execwirev1.WalkLimit{
	fsops.WalkedDirectories: execwirev1.WalkLimit_WALK_LIMIT_DIRECTORIES,
	fsops.WalkedEntries:     execwirev1.WalkLimit_WALK_LIMIT_ENTRIES,
}

// walkOptions translates the options of a request.
func walkOptions(req *execwirev1.WalkDirectoryRequest) (fsops.WalkOptions, error) {
	globs, err := gitignore.ParseAll(req.GetIgnore())
	if err != nil {
		return fsops.WalkOptions{}, invalidField("ignore", "has what is no pattern: "+err.Error())
	}
	options := fsops.WalkOptions{
		MaxDepth: math.MaxInt, MaxDirectories: fsops.MaxWalkDirectories, MaxEntries: math.MaxUint64,
		FollowDirectoryLinks: req.GetFollowDirectorySymlinks(), SkipHidden: req.GetSkipHiddenDirectories(),
		Ignore: globs, WantMetadata: req.GetWantMetadata(),
	}
	if req.MaxDepth != nil {
		options.MaxDepth = int(req.GetMaxDepth())
	}
	if req.MaxDirectories != nil {
		options.MaxDirectories = int(req.GetMaxDirectories())
	}
	if req.MaxEntries != nil {
		options.MaxEntries = req.GetMaxEntries()
	}
	return options, nil
}

// walkStream sends the results of a walk.
type walkStream struct {
	stream       grpc.ServerStreamingServer[execwirev1.WalkDirectoryResponse]
	wantMetadata bool
}

// Entries implements fsops.WalkListener.
func (w walkStream) Entries(entries []fsops.WalkEntry) error {
	slab := make([]execwirev1.WalkEntry, len(entries))
	messages := make([]*execwirev1.WalkEntry, len(entries))
	for i, e := range entries {
		m := &slab[i]
		m.Path, m.RawPath = toUTF8(e.Path)
		m.Type, m.TargetType = fileTypes[e.Type], fileTypes[e.Target]
		m.LinkTarget, m.RawLinkTarget = toUTF8(e.LinkTarget)
		if w.wantMetadata && e.Metadata.Type != 0 {
			m.Metadata = toMetadata(e.Metadata)
		}
		messages[i] = m
	}
	return w.stream.Send(&execwirev1.WalkDirectoryResponse{Message: &execwirev1.WalkDirectoryResponse_Entries{
		Entries: &execwirev1.WalkEntries{Entries: messages}}})
}

// Error implements fsops.WalkListener.
func (w walkStream) Error(relative string, err *fsops.Error) error {
	text, _ := toUTF8(err.Error())
	m := &execwirev1.WalkError{Reason: fileErrors[err.Kind].reason, Errno: err.ErrnoName(), Message: truncate(text, maxMessageBytes)}
	m.Path, m.RawPath = toUTF8(relative)
	return w.stream.Send(&execwirev1.WalkDirectoryResponse{Message: &execwirev1.WalkDirectoryResponse_Error{Error: m}})
}
