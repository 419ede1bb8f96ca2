package server

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/fsops"
)

const (
	// MaxAwaitedPaths is how many paths one call of AwaitPaths may have.
	MaxAwaitedPaths = 1000
	// MaxSettle is the longest time for which changes may settle.
	MaxSettle = 10 * time.Second
	// defaultSettle is for how long they settle if nobody says.
	defaultSettle = 50 * time.Millisecond
	// changesBytes is the most that the paths of one message of changes have, and
	// maxChanges the most changes: with what is told of each, and paths that are
	// not UTF-8 told twice, it stays below the 4 MiB that clients take.
	changesBytes = 1 << 20
	maxChanges   = 10_000
)

// WatchDirectory implements the RPC.
func (s *fileSystemService) WatchDirectory(req *execwirev1.WatchDirectoryRequest, stream grpc.ServerStreamingServer[execwirev1.WatchDirectoryResponse]) error {
	ctx, leave := s.server.untilWatchesEnd(stream.Context())
	defer leave()
	owner, err := caller(ctx)
	if err != nil {
		return err
	}
	ignore, err := fsops.ParseGlobs(req.GetIgnore())
	if err != nil {
		return err
	}
	settle := defaultSettle
	if req.GetSettle() != nil {
		settle = req.GetSettle().AsDuration()
	}
	watch, err := s.server.watcher.Watch(ctx, fsops.WatchRequest{
		Owner: owner, Path: pathOf(req), Recursive: req.GetRecursive(), Ignore: ignore, Settle: settle})
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

// untilWatchesEnd returns a context that ends with the call, or because the server
// does.
func (s *Server) untilWatchesEnd(call context.Context) (ctx context.Context, leave func()) {
	ctx, cancel := context.WithCancelCause(call)
	stop := context.AfterFunc(s.watching, func() { cancel(context.Cause(s.watching)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// drainingError is what watches end with when the server stops.
func drainingError() error {
	return failure(codes.Unavailable, execwirev1.ErrorReason_ERROR_REASON_DRAINING, nil, "the server stops: watch again when it is back",
		&errdetails.RetryInfo{RetryDelay: durationpb.New(retryWhileDraining)})
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
		m.Path, m.RawPath = toText(c.Path)
		m.Kind, m.Type = changeKinds[c.Kind], toFileType(c.Type)
		messages[i] = m
	}
	return &execwirev1.WatchChanges{Changes: messages}
}

func toLost(l fsops.Lost) *execwirev1.WatchLost {
	m := &execwirev1.WatchLost{Reason: lostReasons[l.Reason], Message: valid(l.Message)}
	m.Path, m.RawPath = toText(l.Path)
	return m
}

// AwaitPaths implements the RPC.
func (s *fileSystemService) AwaitPaths(req *execwirev1.AwaitPathsRequest, stream grpc.ServerStreamingServer[execwirev1.AwaitPathsResponse]) error {
	ctx, leave := s.server.untilWatchesEnd(stream.Context())
	defer leave()
	owner, err := caller(ctx)
	if err != nil {
		return err
	}
	wait, err := s.server.watcher.AwaitPaths(owner, pathsOf(req.GetMissing()), pathsOf(req.GetPresent()))
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

func validateWatch(m *execwirev1.WatchDirectoryRequest) error {
	if err := validateFile("", m); err != nil {
		return err
	}
	if len(m.GetIgnore()) > fsops.MaxGlobs {
		return invalidField("ignore", fmt.Sprintf("has %d patterns: use at most %d", len(m.GetIgnore()), fsops.MaxGlobs))
	}
	for i, pattern := range m.GetIgnore() {
		if _, err := fsops.ParseGlob(pattern); err != nil {
			return invalidField(fmt.Sprintf("ignore[%d]", i), valid(err.Error()))
		}
	}
	if err := validateDuration("settle", m.GetSettle()); err != nil {
		return err
	}
	if settle := m.GetSettle().AsDuration(); settle > MaxSettle {
		return invalidField("settle", fmt.Sprintf("is %v: use at most %v", settle, MaxSettle))
	}
	return nil
}

func validateAwait(m *execwirev1.AwaitPathsRequest) error {
	switch n := len(m.GetMissing()) + len(m.GetPresent()); {
	case n == 0:
		return invalidField("missing", "and present are both empty: give a path")
	case n > MaxAwaitedPaths:
		return invalidField("missing", fmt.Sprintf("and present have %d paths: use at most %d", n, MaxAwaitedPaths))
	}
	for _, list := range []struct {
		field string
		paths []*execwirev1.AwaitedPath
	}{{"missing", m.GetMissing()}, {"present", m.GetPresent()}} {
		for i, p := range list.paths {
			at := fmt.Sprintf("%s[%d].", list.field, i)
			if err := validatePath(at+"path", at+"raw_path", p); err != nil {
				return err
			}
		}
	}
	return validateFileSandbox("", m)
}
