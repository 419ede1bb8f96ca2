package files

import (
	"cmp"
	"context"
	"io"

	"github.com/execwire/execwire/gateway/param"
	"github.com/execwire/execwire/gateway/rpcerror"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// Limits of fs/walk, as in the reference.
const (
	maxWalkDepth       = 64
	maxWalkDirectories = 10_000
	maxWalkEntries     = 50_000
	// maxWalkBytes is the largest answer; walkItemBytes is the size of an item beside
	// its texts.
	maxWalkBytes  = 4 << 20
	walkItemBytes = 64
)

type fsWalkParams struct {
	Path    param.Path    `param:"path"`
	Options fsWalkOptions `param:"options"`
	confined
}

type fsWalkOptions struct {
	MaxDepth       uint32 `param:"maxDepth"`
	MaxDirectories uint32 `param:"maxDirectories"`
	MaxEntries     uint32 `param:"maxEntries"`
	Follow         *bool  `param:"followDirectorySymlinks,optional"`
	PruneHidden    *bool  `param:"pruneHiddenDirectories,optional"`
}

// fsWalk is the result of fs/walk.
type fsWalk struct {
	Entries   []fsWalkEntry `json:"entries"`
	Errors    []fsWalkError `json:"errors"`
	Truncated bool          `json:"truncated"`

	bytes   int
	full    bool // an item was omitted; later ones are too
	release func()
}

type fsWalkEntry struct {
	Path string `json:"path"`
	Kind string `json:"kind"`
}

type fsWalkError struct {
	Path    string `json:"path"`
	Message string `json:"message"`
}

func (w *fsWalk) Sent() { w.release() }

// Check implements [call.Checked].
func (p *fsWalkParams) Check() *jsonrpc.Error {
	for _, bound := range []struct {
		name        string
		asked, most uint32
	}{
		{"maxDepth", p.Options.MaxDepth, maxWalkDepth},
		{"maxDirectories", p.Options.MaxDirectories, maxWalkDirectories},
		{"maxEntries", p.Options.MaxEntries, maxWalkEntries},
	} {
		if bound.asked > bound.most {
			return jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "fs/walk %s must be at most %d", bound.name, bound.most)
		}
	}
	return nil
}

func (p *fsWalkParams) touches() ([]param.Path, bool) { return []param.Path{p.Path}, false }

func (p *fsWalkParams) run(ctx context.Context, s *Service) (any, *jsonrpc.Error) {
	return s.answers.Prepare(ctx, func(release func()) (any, *jsonrpc.Error) {
		result := &fsWalk{Entries: []fsWalkEntry{}, Errors: []fsWalkError{}, release: release}
		return result, p.walk(ctx, s, result)
	})
}

// walk collects the entries. A path that is not a directory has none.
func (p *fsWalkParams) walk(ctx context.Context, s *Service, into *fsWalk) *jsonrpc.Error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	text, raw := p.Path.ProtoPath()
	stream, err := s.client.WalkDirectory(ctx, &execwirev1.WalkDirectoryRequest{
		Path: text, RawPath: raw, MaxDepth: &p.Options.MaxDepth, MaxDirectories: &p.Options.MaxDirectories,
		FollowDirectorySymlinks: isSet(p.Options.Follow), SkipHiddenDirectories: isSet(p.Options.PruneHidden), Sandbox: p.policy})
	if err != nil {
		return fileError(err)
	}
	for !into.full {
		message, err := stream.Recv()
		switch {
		case err == io.EOF, isNoDirectory(err):
			return nil
		case err != nil:
			return fileError(err)
		}
		into.add(p, message)
	}
	return nil
}

// isNoDirectory reports that the path exists and is not a directory.
func isNoDirectory(err error) bool {
	return err != nil && errorinfo.Reason(err) == execwirev1.ErrorReason_ERROR_REASON_NOT_A_DIRECTORY && errorinfo.Of(err).GetMetadata()["errno"] == ""
}

// add adds entries from the server. It includes links only if they are followed to
// directories; links and special files have no kind.
func (w *fsWalk) add(p *fsWalkParams, message *execwirev1.WalkDirectoryResponse) {
	for _, e := range message.GetEntries().GetEntries() {
		kind := ""
		switch {
		case e.GetTargetType() == execwirev1.FileType_FILE_TYPE_DIRECTORY:
			kind = "directory"
		case e.GetType() == execwirev1.FileType_FILE_TYPE_REGULAR:
			kind = "file"
		}
		switch path := p.Path.Like(p.Path.Below(e.GetPath(), e.GetRawPath())); {
		case kind == "":
		case len(e.GetRawPath()) > 0:
			w.addError(path, "file name is not valid UTF-8")
		case len(w.Entries) >= int(p.Options.MaxEntries):
			w.fill()
			return
		case w.reserve(len(path)):
			w.Entries = append(w.Entries, fsWalkEntry{Path: path, Kind: kind})
		}
	}
	if e := message.GetError(); e != nil {
		text := cmp.Or(rpcerror.OSText(e.GetErrno()), e.GetMessage())
		w.addError(p.Path.Like(p.Path.Below(e.GetPath(), e.GetRawPath())), text)
	}
	if message.GetEnd().GetTruncated() {
		w.Truncated = true
	}
}

func (w *fsWalk) addError(path, text string) {
	if w.reserve(len(path) + len(text)) {
		w.Errors = append(w.Errors, fsWalkError{Path: path, Message: text})
	}
}

// reserve reserves space for an item, or returns false.
func (w *fsWalk) reserve(bytes int) bool {
	w.bytes += walkItemBytes + bytes
	if w.bytes > maxWalkBytes {
		w.fill()
	}
	return !w.full
}

func (w *fsWalk) fill() { w.full, w.Truncated = true, true }
