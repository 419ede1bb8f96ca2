package gateway

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// maxChanges is the most changes in one notification.
const maxChanges = 1000

// fsWatchParams are the parameters of fs/watch.
type fsWatchParams struct {
	WatchID   json.RawMessage `param:"watchId"`
	Path      string          `param:"path"`
	Recursive *bool           `param:"recursive,optional"`
	Ignore    []string        `param:"ignore,optional,nullable"`
	SettleMs  *uint64         `param:"settleMs,optional"`
	Sandbox   json.RawMessage `param:"sandbox,optional"`
	Policy    json.RawMessage `param:"sandboxPolicy,optional,named"`

	id   watchID
	path clientPath
	confinement
}

func (p *fsWatchParams) check() (err *jsonrpc.Error) {
	if p.id, err = parseWatchID(takeRaw(&p.WatchID)); err != nil {
		return err
	}
	return checkFile(&p.path, "path", p.Path, &p.confinement, &p.Sandbox, &p.Policy)
}

func (p *fsWatchParams) watchID() watchID { return p.id }

func (p *fsWatchParams) touches() ([]string, bool) { return []string{p.path.native}, false }

func (p *fsWatchParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	text, raw := p.path.forCore()
	req := &execwirev1.WatchDirectoryRequest{Path: text, RawPath: raw, Recursive: p.Recursive != nil && *p.Recursive, Ignore: p.Ignore, Sandbox: p.policy}
	if p.SettleMs != nil {
		const most = math.MaxInt64 / uint64(time.Millisecond)
		req.Settle = durationpb.New(time.Duration(min(*p.SettleMs, most)) * time.Millisecond)
	}
	changes := fsChanges{connection: r.connection, root: p.path}
	return begin(ctx, r.connection, p.id, func(ctx context.Context) (grpc.ServerStreamingClient[execwirev1.WatchDirectoryResponse], error) {
		return r.fileSystem.WatchDirectory(ctx, req)
	}, changes.follow)
}

// fsChanges tells a client what happens in a directory, as fast as it reads: what
// it does not read is dropped in the core, which says so.
type fsChanges struct {
	connection *connection
	root       clientPath
}

// fsChanged are the parameters of fs/changed.
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

// lostFailed is the reason where the core does not tell any more.
const lostFailed = "failed"

// changedType is what a name stands for, "" if it is gone.
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

// follow tells what comes, until the watch ends.
func (f fsChanges) follow(ctx context.Context, w *watch, stream grpc.ServerStreamingClient[execwirev1.WatchDirectoryResponse]) {
	for {
		message, err := stream.Recv()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			f.lose(w, &fsLost{Path: f.root.like(f.root.native), Reason: lostFailed, Message: whyEnded(err)})
			return
		}
		lost := message.GetLost()
		switch {
		case lost != nil && lost.GetPath() == "":
			f.lose(w, f.lost(lost))
			return
		case lost != nil:
			f.say(w, fsChanged{Lost: f.lost(lost)})
		case message.GetOverflow() != nil:
			f.say(w, fsChanged{Overflow: true})
		}
		for changes := message.GetChanges().GetChanges(); len(changes) > 0; {
			n := min(len(changes), maxChanges)
			f.say(w, fsChanged{Changes: f.changes(changes[:n])})
			changes = changes[n:]
		}
	}
}

// whyEnded is why there is nothing more to tell.
func whyEnded(err error) string {
	if err == io.EOF {
		return "the server does not tell any more"
	}
	return status.Convert(err).Message()
}

const changedMethod = "fs/changed"

// lose says that the watch is over. Its id may be used again by who knows that.
func (f fsChanges) lose(w *watch, lost *fsLost) {
	f.connection.sayLast(w, changedMethod, fsChanged{WatchID: json.RawMessage(w.id), Changes: []fsChange{}, Lost: lost})
}

func (f fsChanges) say(w *watch, changed fsChanged) {
	changed.WatchID = json.RawMessage(w.id)
	if changed.Changes == nil {
		changed.Changes = []fsChange{}
	}
	f.connection.sayNotification(changedMethod, changed)
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

// path returns a path below the root in the form that was asked in, and its bytes
// where that does not have them.
func (f fsChanges) path(relative string, raw []byte) (text, encoded string) {
	if len(raw) > 0 {
		relative = string(raw)
	}
	native := f.root.native
	switch {
	case relative == "":
	case native == "/":
		native += relative
	default:
		native += "/" + relative
	}
	if text = f.root.like(native); !f.root.uri && text != native {
		encoded = base64.StdEncoding.EncodeToString([]byte(native))
	}
	return text, encoded
}
