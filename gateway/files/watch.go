package files

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/execwire/execwire/gateway/call"
	"github.com/execwire/execwire/gateway/param"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// maxChanges is the largest number of changes in a notification.
const maxChanges = 1000

// fsWatchParams is the parameters of fs/watch.
type fsWatchParams struct {
	call.OnWatch
	Path      param.Path `param:"path"`
	Recursive *bool      `param:"recursive,optional"`
	Ignore    []string   `param:"ignore,optional,nullable"`
	SettleMs  *uint64    `param:"settleMs,optional"`
	confined
}

func (p *fsWatchParams) touches() ([]param.Path, bool) { return []param.Path{p.Path}, false }

func (p *fsWatchParams) run(ctx context.Context, s *Service) (any, *jsonrpc.Error) {
	text, raw := p.Path.ProtoPath()
	req := &execwirev1.WatchDirectoryRequest{Path: text, RawPath: raw, Recursive: isSet(p.Recursive), Ignore: p.Ignore, Sandbox: p.policy}
	if p.SettleMs != nil {
		req.Settle = durationpb.New(param.Milliseconds(*p.SettleMs))
	}
	changes := fsChanges{service: s, root: p.Path}
	return started(call.StartWatch(ctx, s.watches, p.WatchID(), call.Stream[execwirev1.WatchDirectoryResponse]{
		Open: func(ctx context.Context) (grpc.ServerStreamingClient[execwirev1.WatchDirectoryResponse], error) {
			return s.client.WatchDirectory(ctx, req)
		},
		Explain: watchFailure, Follow: changes.follow,
	}))
}

// fsChanges sends the changes of a directory as fast as the client reads. The server
// drops what the client does not read, and reports it.
type fsChanges struct {
	service *Service
	root    param.Path
}

// fsChanged is the parameters of fs/changed.
type fsChanged struct {
	WatchID  json.RawMessage `json:"watchId"`
	Changes  []fsChange      `json:"changes"`
	Overflow bool            `json:"overflow,omitempty"`
	Lost     *fsLost         `json:"lost,omitempty"`
}

type fsChange struct {
	Path string `json:"path"`
	Kind string `json:"kind"`
	Type string `json:"type,omitempty"`

	PathBase64 string `json:"pathBase64,omitempty"`
}

type fsLost struct {
	Path    string `json:"path"`
	Reason  string `json:"reason"`
	Message string `json:"message"`

	PathBase64 string `json:"pathBase64,omitempty"`
}

var changeKinds = map[execwirev1.WatchChangeKind]string{
	execwirev1.WatchChangeKind_WATCH_CHANGE_KIND_CREATED:  "created",
	execwirev1.WatchChangeKind_WATCH_CHANGE_KIND_MODIFIED: "modified",
	execwirev1.WatchChangeKind_WATCH_CHANGE_KIND_METADATA: "metadata",
	execwirev1.WatchChangeKind_WATCH_CHANGE_KIND_REMOVED:  "removed",
}

var lostReasons = map[execwirev1.WatchLostReason]string{
	execwirev1.WatchLostReason_WATCH_LOST_REASON_REMOVED:     "removed",
	execwirev1.WatchLostReason_WATCH_LOST_REASON_MOVED:       "moved",
	execwirev1.WatchLostReason_WATCH_LOST_REASON_UNMOUNTED:   "unmounted",
	execwirev1.WatchLostReason_WATCH_LOST_REASON_NO_WATCHES:  "noWatches",
	execwirev1.WatchLostReason_WATCH_LOST_REASON_NOT_ALLOWED: "notAllowed",
}

// lostFailed is the reason of a watch that failed.
const lostFailed = "failed"

// changedType returns the type of the changed file; "" if it is gone.
func changedType(t execwirev1.FileType) string {
	switch t {
	case execwirev1.FileType_FILE_TYPE_UNSPECIFIED:
		return ""
	case execwirev1.FileType_FILE_TYPE_REGULAR:
		return "file"
	case execwirev1.FileType_FILE_TYPE_DIRECTORY:
		return "directory"
	case execwirev1.FileType_FILE_TYPE_SYMLINK:
		return "symlink"
	}
	return "other"
}

// follow sends changes until the watch ends.
func (f fsChanges) follow(ctx context.Context, w *call.Watch, stream grpc.ServerStreamingClient[execwirev1.WatchDirectoryResponse]) {
	for {
		message, err := stream.Recv()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			f.sendLost(w, &fsLost{Path: f.root.Like(f.root.Native), Reason: lostFailed, Message: whyEnded(err)})
			return
		}
		lost := message.GetLost()
		switch {
		case lost != nil && lost.GetPath() == "":
			f.sendLost(w, f.lost(lost))
			return
		case lost != nil:
			f.send(w, fsChanged{Lost: f.lost(lost)})
		case message.GetOverflow() != nil:
			f.send(w, fsChanged{Overflow: true})
		}
		for changes := message.GetChanges().GetChanges(); len(changes) > 0; {
			n := min(len(changes), maxChanges)
			f.send(w, fsChanged{Changes: f.changes(changes[:n])})
			changes = changes[n:]
		}
	}
}

// whyEnded returns the reason of the end.
func whyEnded(err error) string {
	if err == io.EOF {
		return "the server ended the watch without an error"
	}
	return status.Convert(err).Message()
}

const changedMethod = "fs/changed"

// sendLost sends that the watch has ended. The client can reuse its id.
func (f fsChanges) sendLost(w *call.Watch, lost *fsLost) {
	f.service.watches.NotifyLast(w, changedMethod, fsChanged{WatchID: w.ID(), Changes: []fsChange{}, Lost: lost})
}

func (f fsChanges) send(w *call.Watch, changed fsChanged) {
	changed.WatchID = w.ID()
	if changed.Changes == nil {
		changed.Changes = []fsChange{}
	}
	f.service.watches.Notify(changedMethod, changed)
}

func (f fsChanges) changes(changes []*execwirev1.WatchChange) []fsChange {
	all := make([]fsChange, len(changes))
	for i, c := range changes {
		all[i] = fsChange{Kind: changeKinds[c.GetKind()], Type: changedType(c.GetType())}
		all[i].Path, all[i].PathBase64 = f.path(c.GetPath(), c.GetRawPath())
	}
	return all
}

func (f fsChanges) lost(l *execwirev1.WatchLost) *fsLost {
	lost := &fsLost{Reason: lostReasons[l.GetReason()], Message: l.GetMessage()}
	lost.Path, lost.PathBase64 = f.path(l.GetPath(), l.GetRawPath())
	return lost
}

// path returns a path below the root in the form of the request, and its bytes if that
// form cannot represent them.
func (f fsChanges) path(relative string, raw []byte) (text, encoded string) {
	native := f.root.Below(relative, raw)
	if text = f.root.Like(native); !f.root.URI && text != native {
		encoded = base64.StdEncoding.EncodeToString([]byte(native))
	}
	return text, encoded
}
