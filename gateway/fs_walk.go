package gateway

import (
	"context"
	"encoding/json"
	"io"
	"strings"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Bounds of fs/walk, as with the reference.
const (
	maxWalkDepth       = 64
	maxWalkDirectories = 10_000
	maxWalkEntries     = 50_000
	// maxWalkBytes is how large an answer may be, and walkItemBytes what each item
	// counts beside its texts.
	maxWalkBytes  = 4 << 20
	walkItemBytes = 64
)

type fsWalkParams struct {
	Path    string          `param:"path"`
	Options fsWalkOptions   `param:"options"`
	Sandbox json.RawMessage `param:"sandbox,optional"`
	Policy  json.RawMessage `param:"sandboxPolicy,optional,named"`

	path clientPath
	confinement
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

	bytes int
	full  bool // something was left out, and nothing is added any more
	leave func()
}

type fsWalkEntry struct {
	Path string `json:"path"`
	Kind string `json:"kind"`
}

type fsWalkError struct {
	Path    string `json:"path"`
	Message string `json:"message"`
}

func (w *fsWalk) wasSaid() { w.leave() }

func (p *fsWalkParams) check() *jsonrpc.Error {
	if err := checkFile(&p.path, "path", p.Path, &p.confinement, &p.Sandbox, &p.Policy); err != nil {
		return err
	}
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

func (p *fsWalkParams) touches() ([]string, bool) { return []string{p.path.native}, false }

func (p *fsWalkParams) run(ctx context.Context, r *request) (any, *jsonrpc.Error) {
	leave, failed := r.bulk.enter(ctx)
	if failed != nil {
		return nil, failed
	}
	result := &fsWalk{Entries: []fsWalkEntry{}, Errors: []fsWalkError{}, leave: leave}
	if failed := p.walk(ctx, r, result); failed != nil {
		leave()
		return nil, failed
	}
	return result, nil
}

// walk gathers what a core finds. A path that is no directory has nothing below.
func (p *fsWalkParams) walk(ctx context.Context, r *request, into *fsWalk) *jsonrpc.Error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	text, raw := p.path.forCore()
	stream, err := r.fileSystem.WalkDirectory(ctx, &execwirev1.WalkDirectoryRequest{
		Path: text, RawPath: raw, MaxDepth: &p.Options.MaxDepth, MaxDirectories: &p.Options.MaxDirectories,
		FollowDirectorySymlinks: isSet(p.Options.Follow), SkipHiddenDirectories: isSet(p.Options.PruneHidden), Sandbox: p.policy})
	if err != nil {
		return fileFailure(err)
	}
	for !into.full {
		message, err := stream.Recv()
		switch {
		case err == io.EOF, isNoDirectory(err):
			return nil
		case err != nil:
			return fileFailure(err)
		}
		into.add(p, message)
	}
	return nil
}

func isSet(flag *bool) bool { return flag != nil && *flag }

// isNoDirectory reports that the path exists and is something else.
func isNoDirectory(err error) bool {
	return err != nil && reasonOf(err) == execwirev1.ErrorReason_ERROR_REASON_NOT_A_DIRECTORY && coreInfo(err).GetMetadata()["errno"] == ""
}

// add adds what a core has found. Links are told only where they are followed to
// directories; neither they nor special files have a kind.
func (w *fsWalk) add(p *fsWalkParams, message *execwirev1.WalkDirectoryResponse) {
	for _, e := range message.GetEntries().GetEntries() {
		kind := ""
		switch {
		case e.GetTargetType() == execwirev1.FileType_FILE_TYPE_DIRECTORY:
			kind = "directory"
		case e.GetType() == execwirev1.FileType_FILE_TYPE_REGULAR:
			kind = "file"
		}
		switch path := p.below(e.GetPath(), e.GetRawPath()); {
		case kind == "":
		case len(e.GetRawPath()) > 0:
			w.addError(path, "file name is not valid UTF-8")
		case len(w.Entries) >= int(p.Options.MaxEntries):
			w.fill()
			return
		case w.hasRoom(len(path)):
			w.Entries = append(w.Entries, fsWalkEntry{Path: path, Kind: kind})
		}
	}
	if e := message.GetError(); e != nil {
		text := osErrorText(e.GetErrno())
		if text == "" {
			text = e.GetMessage()
		}
		w.addError(p.below(e.GetPath(), e.GetRawPath()), text)
	}
	if message.GetEnd().GetTruncated() {
		w.Truncated = true
	}
}

func (w *fsWalk) addError(path, text string) {
	if w.hasRoom(len(path) + len(text)) {
		w.Errors = append(w.Errors, fsWalkError{Path: path, Message: text})
	}
}

// hasRoom takes room for an item, or leaves it out if there is none.
func (w *fsWalk) hasRoom(bytes int) bool {
	w.bytes += walkItemBytes + bytes
	if w.bytes > maxWalkBytes {
		w.fill()
	}
	return !w.full
}

func (w *fsWalk) fill() { w.full, w.Truncated = true, true }

// below is a path that a core has found, in the form that was asked.
func (p *fsWalkParams) below(relative string, raw []byte) string {
	if len(raw) > 0 {
		relative = string(raw)
	}
	if relative == "" {
		return p.path.like(p.path.native)
	}
	path := strings.TrimSuffix(p.path.native, "/") + "/" + relative
	return p.path.like(path)
}
