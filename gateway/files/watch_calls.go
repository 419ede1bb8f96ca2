package files

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/gateway/call"
	"github.com/execwire/execwire/gateway/param"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// startWatch starts a watch and waits until it is active.
func startWatch[M any](ctx context.Context, s *Service, id watchID, open func(context.Context) (grpc.ServerStreamingClient[M], error), follow func(context.Context, *watch, grpc.ServerStreamingClient[M])) (any, *jsonrpc.Error) {
	w, failed := s.watches.reserve(id)
	if failed != nil {
		return nil, failed
	}
	ctx, w.cancel = context.WithCancelCause(ctx)
	stream, err := open(ctx)
	if err == nil {
		_, err = stream.Recv() // the watch is active
	}
	if err != nil {
		w.cancel(nil)
		s.watches.forget(w)
		return nil, watchFailure(err)
	}
	return &watchStarted{Watching: true, follow: func() {
		s.connection.Spawn(func() {
			defer close(w.ended)
			defer s.watches.forget(w)
			defer w.cancel(nil)
			follow(ctx, w, stream)
		})
	}}, nil
}

// watchStarted is the result of fs/watch and fs/watchMissing. Notifications follow it.
type watchStarted struct {
	Watching bool `json:"watching"`

	follow func() // nil if nothing is watched
}

// Sent implements [call.SendObserver].
func (b *watchStarted) Sent() {
	if b.follow != nil {
		b.follow()
	}
}

// notify sends one notification. It blocks while the client does not read.
func (s *Service) notify(method string, params any) {
	_ = s.connection.Send(func(dst []byte) []byte { return jsonrpc.AppendNotification(dst, method, params) })
}

// notifyLast sends the last notification of a watch and releases its id just before:
// fs/unwatch waits for a watch that it finds.
func (s *Service) notifyLast(w *watch, method string, params any) {
	_ = s.connection.Send(func(dst []byte) []byte {
		s.watches.forget(w)
		return jsonrpc.AppendNotification(dst, method, params)
	})
}

// fsUnwatchParams is the parameters of fs/unwatch.
type fsUnwatchParams struct {
	WatchID json.RawMessage `param:"watchId"`

	id watchID
}

func (p *fsUnwatchParams) Check() (err *jsonrpc.Error) {
	p.id, err = parseWatchID(param.Take(&p.WatchID))
	return err
}

func (p *fsUnwatchParams) watchID() watchID { return p.id }

var errUnwatched = errors.New("the client does not watch any more")

// run answers after the last notification of the watch.
func (p *fsUnwatchParams) run(ctx context.Context, s *Service) (any, *jsonrpc.Error) {
	w := s.watches.find(p.id)
	if w == nil {
		return nothing{}, nil
	}
	w.cancel(errUnwatched)
	select {
	case <-w.ended:
		return nothing{}, nil
	case <-ctx.Done():
		return nil, call.Closing()
	}
}

// fsWatchMissingParams is the parameters of fs/watchMissing. present is one path or a
// list.
type fsWatchMissingParams struct {
	WatchID json.RawMessage `param:"watchId"`
	Missing []param.Path    `param:"missing"`
	Present json.RawMessage `param:"present,optional"`
	confined

	id      watchID
	present []param.Path
}

// Check implements [call.Checked].
func (p *fsWatchMissingParams) Check() (err *jsonrpc.Error) {
	if p.id, err = parseWatchID(param.Take(&p.WatchID)); err != nil {
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

func (p *fsWatchMissingParams) watchID() watchID { return p.id }

func (p *fsWatchMissingParams) touches() ([]param.Path, bool) {
	return slices.Concat(p.Missing, p.present), false
}

func (p *fsWatchMissingParams) run(ctx context.Context, s *Service) (any, *jsonrpc.Error) {
	if len(p.Missing)+len(p.present) == 0 {
		return &watchStarted{}, nil
	}
	req := &execwirev1.AwaitPathsRequest{Missing: awaitedPaths(p.Missing), Present: awaitedPaths(p.present), Sandbox: p.policy}
	return startWatch(ctx, s, p.id, func(ctx context.Context) (grpc.ServerStreamingClient[execwirev1.AwaitPathsResponse], error) {
		return s.client.AwaitPaths(ctx, req)
	}, s.awaitMissing)
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
func (s *Service) awaitMissing(ctx context.Context, w *watch, stream grpc.ServerStreamingClient[execwirev1.AwaitPathsResponse]) {
	_, _ = stream.Recv() // whatever the result, the client must look again
	if ctx.Err() != nil {
		return
	}
	s.notifyLast(w, "fs/missingChanged", fsMissingChanged{WatchID: json.RawMessage(w.id)})
}
