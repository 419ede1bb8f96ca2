package fsops

import (
	"context"
	"errors"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/gitignore"
)

// Bounds of walks.
const (
	// MaxWalkDirectories is how many directories one walk reads at most. A queued one takes about 100
	// bytes of memory.
	MaxWalkDirectories = 250_000
	// maxWalkPath is the longest path, in bytes, of a directory that is read.
	maxWalkPath = 1 << 20
	// maxBatchBytes is how many bytes of paths are reported at once, but for one entry.
	maxBatchBytes = 32 << 10
	// walkFlushDelay is how long a batch of entries waits for further ones.
	walkFlushDelay = 100 * time.Millisecond
)

// WalkOptions select what is reported of a tree.
type WalkOptions struct {
	// MaxDepth is how deep directories are read: 0 reads the first alone.
	MaxDepth int
	// MaxDirectories is how many directories are read, the first one counted, at
	// most [MaxWalkDirectories].
	MaxDirectories int
	// MaxEntries is how many entries are reported.
	MaxEntries uint64
	// FollowDirectoryLinks follows links to directories. Each directory is read once.
	FollowDirectoryLinks bool
	// SkipHidden does not read directories whose names begin with a dot.
	SkipHidden bool
	// Ignore matches what is neither reported nor read.
	Ignore gitignore.Patterns
	// WantMetadata reports the metadata of each entry.
	WantMetadata bool
}

// WalkEntry is something below a directory that is walked.
type WalkEntry struct {
	// Path is relative to the directory, and need not be UTF-8.
	Path string
	// Type is its type.
	Type Type
	// Target is Type, or the type of the target of a link if links are followed, else 0.
	Target Type
	// Metadata is its metadata, if wanted and available.
	Metadata Metadata
	// LinkTarget is the target of a link, if metadata is wanted.
	LinkTarget string
}

// WalkLimit is the limit that ended a walk. The zero value is none.
type WalkLimit uint8

// The limits.
const (
	WalkedDirectories WalkLimit = iota + 1 // MaxDirectories
	WalkedEntries                          // MaxEntries
)

// WalkListener receives the results of a walk. An error that it returns ends the walk.
type WalkListener interface {
	// Entries receives at least one and at most [MaxEntries] entries, and owns the slice.
	Entries([]WalkEntry) error
	// Error receives why a directory below the first could not be read completely.
	Error(relative string, err *Error) error
}

// Walk reports the entries below a directory, breadth first, the names of each directory sorted by
// their bytes. It returns the limit that ended it, if any. Unless FollowDirectoryLinks is set it
// follows no links: a directory that was replaced by one meanwhile is an error. The root may be a
// link. A root that is no directory is NotADirectory without an errno.
func Walk(ctx context.Context, root string, options WalkOptions, listener WalkListener, pathOptions ...PathOption) (WalkLimit, error) {
	t, err := locate("walk", root, pathOptions)
	if err != nil {
		return 0, err
	}
	defer t.release()
	root = t.path
	fd, err := t.open(openDirRead, 0)
	if err != nil {
		if m, statErr := t.stat(); err == unix.ENOTDIR && statErr == nil && m.Type != Directory {
			return 0, newError(NotADirectory, "walk", root, "it is not a directory")
		}
		return 0, t.failed("walk", err)
	}
	w := &walk{ctx: ctx, options: options, listener: listener, rootPath: root}
	w.tree.root = fd
	defer w.tree.release()
	if options.FollowDirectoryLinks {
		w.read = make(map[identity]struct{})
	}
	err = w.run()
	if err == errWalkLimit {
		err = nil
	}
	if err == nil {
		err = w.flush()
	}
	return w.limit, err
}

// errWalkLimit ends a walk that has reported MaxEntries.
var errWalkLimit = errors.New("the maximum of entries was reported")

// walk is one call of Walk.
type walk struct {
	ctx      context.Context
	options  WalkOptions
	listener WalkListener
	rootPath string

	tree       openTree
	queue      []*walkNode           // directories that were found and not read
	found      int                   // directories that were in the queue
	read       map[identity]struct{} // directories that were read, if links are followed
	limit      WalkLimit
	reported   uint64      // entries
	batch      []WalkEntry // not reported yet
	batchBytes int         // bytes of their paths
	flushedAt  time.Time   // when the last were reported
}

func (w *walk) run() error {
	w.flushedAt = time.Now()
	w.enqueue(&walkNode{})
	for len(w.queue) > 0 {
		next := w.queue[0]
		w.queue[0], w.queue = nil, w.queue[1:]
		if w.ctx.Err() != nil {
			return context.Cause(w.ctx)
		}
		if w.isLate() {
			if err := w.flush(); err != nil {
				return err
			}
		}
		if err := w.directory(next); err != nil {
			return err
		}
	}
	return nil
}

// enqueue queues a directory, unless that exceeds the limit.
func (w *walk) enqueue(n *walkNode) {
	if w.found >= w.options.MaxDirectories {
		w.limit = WalkedDirectories
		return
	}
	w.found++
	w.queue = append(w.queue, n)
}

// directory reports the entries of a directory.
func (w *walk) directory(n *walkNode) error {
	fd, err := w.tree.open(n)
	if err != nil {
		return w.failed(n.path(), err)
	}
	defer fd.release()
	if w.read != nil {
		m, err := fd.stat()
		if err != nil {
			return w.failed(n.path(), err)
		}
		if _, again := w.read[m.identity]; again {
			return nil
		}
		w.read[m.identity] = struct{}{}
	}
	list, relative := newListing(fd, levelBytes), n.path()
	for after, more := "", true; more; {
		var entries []Entry
		entries, more, err = list.sorted(w.ctx, after, maxSortedNames)
		if err != nil {
			if w.ctx.Err() != nil {
				return context.Cause(w.ctx)
			}
			return w.failed(relative, err)
		}
		for _, e := range entries {
			if err := w.entry(n, fd, relative, e); err != nil {
				return err
			}
			after = e.Name
		}
	}
	return nil
}

// failed reports why a directory could not be read. It may have been replaced by a link.
func (w *walk) failed(relative string, err error) error {
	if err := w.flush(); err != nil {
		return err
	}
	p := path.Join(w.rootPath, relative)
	if err == unix.ELOOP && !w.options.FollowDirectoryLinks {
		return w.listener.Error(relative, newError(SymlinkRefused, "list", p, "a part of the path has become a symbolic link"))
	}
	return w.listener.Error(relative, failed("list", p, err))
}

// entry reports an entry of a directory, and queues it if it is a directory.
func (w *walk) entry(n *walkNode, dir descriptor, relative string, e Entry) error {
	told := WalkEntry{Path: e.Name}
	if relative != "" {
		told.Path = relative + "/" + e.Name
	}
	if !w.look(dir, e, &told) {
		return nil
	}
	isDirectory := told.Type == Directory || told.Target == Directory
	if w.options.Ignore.Match(told.Path, isDirectory) {
		return nil
	}
	if w.reported == w.options.MaxEntries {
		w.limit = WalkedEntries
		return errWalkLimit
	}
	w.reported++
	w.batch, w.batchBytes = append(w.batch, told), w.batchBytes+len(told.Path)
	if len(w.batch) == MaxEntries || w.batchBytes >= maxBatchBytes || w.options.WantMetadata && w.isLate() {
		if err := w.flush(); err != nil {
			return err
		}
	}
	switch {
	case !isDirectory, n.depth >= w.options.MaxDepth, w.options.SkipHidden && strings.HasPrefix(e.Name, "."):
		return nil
	case len(told.Path) > maxWalkPath:
		return w.failed(told.Path, unix.ENAMETOOLONG)
	}
	w.enqueue(&walkNode{parent: n, name: e.Name, depth: n.depth + 1, isLink: told.Type == Symlink})
	return nil
}

// look fills in what is wanted of an entry, and reports whether it still exists.
func (w *walk) look(dir descriptor, e Entry, into *WalkEntry) bool {
	into.Type = e.Type
	if e.Type == 0 || w.options.WantMetadata {
		m, err := statAt(dir, e.Name, unix.AT_SYMLINK_NOFOLLOW)
		switch {
		case err == unix.ENOENT:
			return false
		case err == nil:
			into.Type = m.Type
		}
		if w.options.WantMetadata {
			into.Metadata = m
		}
	}
	if into.Type != Symlink {
		into.Target = into.Type
		return true
	}
	if w.options.WantMetadata {
		into.LinkTarget, _ = readLinkAt(dir, e.Name)
	}
	if w.options.FollowDirectoryLinks {
		m, _ := statAt(dir, e.Name, 0)
		into.Target = m.Type
	}
	return true
}

// isLate reports whether the batch has waited long enough.
func (w *walk) isLate() bool { return time.Since(w.flushedAt) >= walkFlushDelay }

// flush reports the batch.
func (w *walk) flush() error {
	if len(w.batch) == 0 {
		return nil
	}
	batch := w.batch
	w.batch, w.batchBytes = nil, 0
	err := w.listener.Entries(batch)
	w.flushedAt = time.Now()
	return err
}
