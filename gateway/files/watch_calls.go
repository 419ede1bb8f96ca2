package files

import (
	"context"
	"encoding/json"
	"slices"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/gateway/call"
	"github.com/execwire/execwire/gateway/param"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// fsUnwatchParams is the parameters of fs/unwatch.
type fsUnwatchParams struct{ call.OnWatch }

// run answers after the last notification of the watch.
func (p *fsUnwatchParams) run(ctx context.Context, s *Service) (any, *jsonrpc.Error) {
	return s.watches.End(ctx, p.WatchID())
}

// started returns the result of a call that starts a watch.
func started[M any](result *call.WatchStarted, _ *M, failed *jsonrpc.Error) (any, *jsonrpc.Error) {
	if failed != nil {
		return nil, failed
	}
	return result, nil
}

// fsWatchMissingParams is the parameters of fs/watchMissing. present is one path or a
// list.
type fsWatchMissingParams struct {
	call.OnWatch
	Missing []param.Path    `param:"missing"`
	Present json.RawMessage `param:"present,optional"`
	confined

	present []param.Path
}

// Check implements [call.Checked].
func (p *fsWatchMissingParams) Check() (err *jsonrpc.Error) {
	if err := p.OnWatch.Check(); err != nil {
		return err
	}
	present, err := parsePresent(param.Take(&p.Present))
	if err != nil {
		return err
	}
	p.present, err = param.ParsePaths("present", present)
	return err
}

// parsePresent parses one path, a list, or nothing.
func parsePresent(raw json.RawMessage) (paths []string, failed *jsonrpc.Error) {
	var one string
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return nil, nil
	case json.Unmarshal(raw, &one) == nil:
		return []string{one}, nil
	case json.Unmarshal(raw, &paths) == nil:
		return paths, nil
	}
	return nil, param.NewError(jsonrpc.CodeInvalidParams, "present", "invalid type: present is a path or a list of paths")
}

func (p *fsWatchMissingParams) touches() ([]param.Path, bool) {
	return slices.Concat(p.Missing, p.present), false
}

func (p *fsWatchMissingParams) run(ctx context.Context, s *Service) (any, *jsonrpc.Error) {
	if len(p.Missing)+len(p.present) == 0 {
		return &call.WatchStarted{}, nil
	}
	req := &execwirev1.AwaitPathsRequest{Missing: awaitedPaths(p.Missing), Present: awaitedPaths(p.present), Sandbox: p.policy}
	return started(call.StartWatch(ctx, s.watches, p.WatchID(), call.Stream[execwirev1.AwaitPathsResponse]{
		Open: func(ctx context.Context) (grpc.ServerStreamingClient[execwirev1.AwaitPathsResponse], error) {
			return s.client.AwaitPaths(ctx, req)
		},
		Explain: watchFailure, Follow: s.awaitMissing,
	}))
}

func awaitedPaths(paths []param.Path) (awaited []*execwirev1.AwaitedPath) {
	for _, p := range paths {
		text, raw := p.ProtoPath()
		awaited = append(awaited, &execwirev1.AwaitedPath{Path: text, RawPath: raw})
	}
	return awaited
}

// fsMissingChanged is the parameters of fs/missingChanged.
type fsMissingChanged struct {
	WatchID json.RawMessage `json:"watchId"`
}

// awaitMissing sends one notification when a path appeared or disappeared, or the watch
// failed: the client must look again. Then the watch has ended, and the client can
// reuse its id.
func (s *Service) awaitMissing(ctx context.Context, w *call.Watch, stream grpc.ServerStreamingClient[execwirev1.AwaitPathsResponse]) {
	_, _ = stream.Recv() // whatever the result, the client must look again
	if ctx.Err() != nil {
		return
	}
	s.watches.NotifyLast(w, "fs/missingChanged", fsMissingChanged{WatchID: w.ID()})
}
