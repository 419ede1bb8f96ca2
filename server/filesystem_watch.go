package server

import (
	"time"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/fsops"
	"github.com/execwire/execwire/internal/gitignore"
)

const (
	// defaultSettle is the default settle time.
	defaultSettle = 50 * time.Millisecond
	// changesBytes bounds the paths of one message of changes, and maxChanges the
	// changes: with the rest of each change, and paths that are not UTF-8 sent twice,
	// a message stays below the 4 MiB that clients accept.
	changesBytes = 1 << 20
	maxChanges   = 10_000
)

// WatchDirectory implements the RPC.
func (s *fileSystemService) WatchDirectory(req *execwirev1.WatchDirectoryRequest, stream grpc.ServerStreamingServer[execwirev1.WatchDirectoryResponse]) error {
	ctx, leave := s.server.untilStopped(stream.Context())
	defer leave()
	ignore, err := gitignore.ParseAll(req.GetIgnore())
	if err != nil {
		return invalidField("ignore", "has what is no pattern: "+err.Error())
	}
	settle := defaultSettle
	if req.GetSettle() != nil {
		settle = req.GetSettle().AsDuration()
	}
	watch, err := s.server.watcher.Watch(ctx, fsops.WatchRequest{
		Owner: caller(ctx), Path: pathOf(req), Recursive: req.GetRecursive(), Ignore: ignore, Settle: settle})
	if err != nil {
		return err
	}
	defer watch.Close()
	started := &execwirev1.WatchDirectoryResponse_Started{Started: &execwirev1.WatchStarted{}}
	if err := stream.Send(&execwirev1.WatchDirectoryResponse{Event: started}); err != nil {
		return err
	}
	for {
		batch, err := watch.Next(ctx)
		if err != nil {
			return err
		}
		if err := sendBatch(stream, batch); err != nil {
			return err
		}
	}
}

func sendBatch(stream grpc.ServerStreamingServer[execwirev1.WatchDirectoryResponse], batch fsops.Batch) error {
	if batch.Overflowed {
		overflow := &execwirev1.WatchDirectoryResponse_Overflow{Overflow: &execwirev1.WatchOverflow{}}
		if err := stream.Send(&execwirev1.WatchDirectoryResponse{Event: overflow}); err != nil {
			return err
		}
	}
	for changes := batch.Changes; len(changes) > 0; {
		n, bytes := 0, 0
		for n < min(len(changes), maxChanges) && (n == 0 || bytes+len(changes[n].Path) <= changesBytes) {
			bytes += len(changes[n].Path)
			n++
		}
		some := &execwirev1.WatchDirectoryResponse_Changes{Changes: toChanges(changes[:n])}
		if err := stream.Send(&execwirev1.WatchDirectoryResponse{Event: some}); err != nil {
			return err
		}
		changes = changes[n:]
	}
	for _, l := range batch.Lost {
		lost := &execwirev1.WatchDirectoryResponse_Lost{Lost: toLost(l)}
		if err := stream.Send(&execwirev1.WatchDirectoryResponse{Event: lost}); err != nil {
			return err
		}
	}
	return nil
}

// changeKinds and lostReasons translate those of package fsops; tests prove them
// complete.
var (
	changeKinds = map[fsops.ChangeKind]execwirev1.WatchChangeKind{
		fsops.Created:         execwirev1.WatchChangeKind_WATCH_CHANGE_KIND_CREATED,
		fsops.Modified:        execwirev1.WatchChangeKind_WATCH_CHANGE_KIND_MODIFIED,
		fsops.MetadataChanged: execwirev1.WatchChangeKind_WATCH_CHANGE_KIND_METADATA,
		fsops.Removed:         execwirev1.WatchChangeKind_WATCH_CHANGE_KIND_REMOVED,
	}
	lostReasons = map[fsops.LostReason]execwirev1.WatchLostReason{
		fsops.LostRemoved:    execwirev1.WatchLostReason_WATCH_LOST_REASON_REMOVED,
		fsops.LostMoved:      execwirev1.WatchLostReason_WATCH_LOST_REASON_MOVED,
		fsops.LostUnmounted:  execwirev1.WatchLostReason_WATCH_LOST_REASON_UNMOUNTED,
		fsops.LostNoWatches:  execwirev1.WatchLostReason_WATCH_LOST_REASON_NO_WATCHES,
		fsops.LostNotAllowed: execwirev1.WatchLostReason_WATCH_LOST_REASON_NOT_ALLOWED,
	}
)

func toChanges(changes []fsops.Change) *execwirev1.WatchChanges {
	slab := make([]execwirev1.WatchChange, len(changes))
	messages := make([]*execwirev1.WatchChange, len(changes))
	for i, c := range changes {
		m := &slab[i]
		m.Path, m.RawPath = toUTF8(c.Path)
		m.Kind, m.Type = changeKinds[c.Kind], fileTypes[c.Type]
		messages[i] = m
	}
	return &execwirev1.WatchChanges{Changes: messages}
}

func toLost(l fsops.Lost) *execwirev1.WatchLost {
	m := &execwirev1.WatchLost{Reason: lostReasons[l.Reason], Message: toValidUTF8(l.Message)}
	m.Path, m.RawPath = toUTF8(l.Path)
	return m
}

// AwaitPaths implements the RPC.
func (s *fileSystemService) AwaitPaths(req *execwirev1.AwaitPathsRequest, stream grpc.ServerStreamingServer[execwirev1.AwaitPathsResponse]) error {
	ctx, leave := s.server.untilStopped(stream.Context())
	defer leave()
	wait, err := s.server.watcher.AwaitPaths(caller(ctx), pathsOf(req.GetMissing()), pathsOf(req.GetPresent()))
	if err != nil {
		return err
	}
	defer wait.Close()
	started := &execwirev1.AwaitPathsResponse_Started{Started: &execwirev1.AwaitStarted{}}
	if err := stream.Send(&execwirev1.AwaitPathsResponse{Event: started}); err != nil {
		return err
	}
	happened, err := wait.Next(ctx)
	if err != nil {
		return err
	}
	awaited := &execwirev1.AwaitPathsResponse_Awaited{Awaited: &execwirev1.PathAwaited{Index: uint32(happened.Index), Exists: happened.Exists}}
	return stream.Send(&execwirev1.AwaitPathsResponse{Event: awaited})
}

func pathsOf(awaited []*execwirev1.AwaitedPath) []string {
	paths := make([]string, 0, len(awaited))
	for _, a := range awaited {
		paths = append(paths, pathOf(a))
	}
	return paths
}
