package gateway

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// fsWatchMissingParams are the parameters of fs/watchMissing. What is present is
// one path or a list of them.
type fsWatchMissingParams struct {
	WatchID json.RawMessage `param:"watchId"`
	Missing []string        `param:"missing"`
	Present json.RawMessage `param:"present,optional"`
	Sandbox json.RawMessage `param:"sandbox,optional"`
	Policy  json.RawMessage `param:"sandboxPolicy,optional,named"`

	id      watchID
	missing []clientPath
	present []clientPath
	confinement
}

func (p *fsWatchMissingParams) check() (err *jsonrpc.Error) {
	if p.id, err = parseWatchID(takeRaw(&p.WatchID)); err != nil {
		return err
	}
	present, err := parsePresent(takeRaw(&p.Present))
	if err != nil {
		return err
	}
	if p.missing, err = parsePaths("missing", p.Missing); err != nil {
		return err
	}
	if p.present, err = parsePaths("present", present); err != nil {
		return err
	}
	p.Missing = nil
	return p.confinement.read(p.like(), &p.Sandbox, &p.Policy)
}

// like is one of the paths, for the form that the client writes them in.
func (p *fsWatchMissingParams) like() clientPath {
	for _, list := range [][]clientPath{p.missing, p.present} {
		if len(list) > 0 {
			return list[0]
		}
	}
	return clientPath{}
}

// parsePresent reads one path or a list, or nothing.
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
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "invalid type: present is a path or a list of paths",
		Data: jsonrpc.InvalidField{Reason: "INVALID_FIELD", Field: "present"}}
}

func parsePaths(field string, raw []string) ([]clientPath, *jsonrpc.Error) {
	paths := make([]clientPath, 0, len(raw))
	for i, text := range raw {
		path, err := parsePath(fmt.Sprintf("%s[%d]", field, i), text)
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

func (p *fsWatchMissingParams) watchID() watchID { return p.id }

func (p *fsWatchMissingParams) touches() (paths []string, changes bool) {
	for _, list := range [][]clientPath{p.missing, p.present} {
		for _, path := range list {
			paths = append(paths, path.native)
		}
	}
	return paths, false
}

func (p *fsWatchMissingParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	if len(p.missing)+len(p.present) == 0 {
		return &watchBegun{}, nil
	}
	req := &execwirev1.AwaitPathsRequest{Missing: awaitedPaths(p.missing), Present: awaitedPaths(p.present), Sandbox: p.policy}
	return begin(ctx, r.connection, p.id, func(ctx context.Context) (grpc.ServerStreamingClient[execwirev1.AwaitPathsResponse], error) {
		return r.fileSystem.AwaitPaths(ctx, req)
	}, r.connection.awaitMissing)
}

func awaitedPaths(paths []clientPath) (awaited []*execwirev1.AwaitedPath) {
	for _, p := range paths {
		text, raw := p.forCore()
		awaited = append(awaited, &execwirev1.AwaitedPath{Path: text, RawPath: raw})
	}
	return awaited
}

// fsMissingChanged are the parameters of fs/missingChanged.
type fsMissingChanged struct {
	WatchID json.RawMessage `json:"watchId"`
}

// awaitMissing tells the client to look again when something has come or gone, or
// nobody can know any more. Then the watch is over, and its id may be used again.
func (c *connection) awaitMissing(ctx context.Context, w *watch, stream grpc.ServerStreamingClient[execwirev1.AwaitPathsResponse]) {
	_, _ = stream.Recv() // whatever it is, the client has to look
	if ctx.Err() != nil {
		return
	}
	c.sayLast(w, "fs/missingChanged", fsMissingChanged{WatchID: json.RawMessage(w.id)})
}
