package fsops

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// MaxBlockBytes is the most that is read from or written to a handle at once.
const MaxBlockBytes = 1 << 20

// HandleLimits bound a table of handles.
type HandleLimits struct {
	// Handles is how many may be open. 0: no bound.
	Handles int
	// Idle is how long one stays open that is not used. 0: for ever.
	Idle time.Duration
}

// Handles is a table of open files, by ids that callers choose. All methods may be called
// concurrently, also for one handle. The table must be closed, unless it is empty.
type Handles struct {
	limits  HandleLimits
	emptied func()

	mu     sync.Mutex
	byID   map[string]*handle // guarded by mu; those being opened too
	closed bool               // guarded by mu
}

// handle is one open file. Its descriptor is closed when it is out of the table and no call uses
// it, so that no call can use a descriptor that was reused.
type handle struct {
	id       string
	path     string
	mode     OpenMode
	external *ExternalFile // another process has the file open; nil: fd

	// Guarded by the table's mu.
	fd     descriptor
	isOpen bool        // fd is set, or the file is open elsewhere
	users  int         // calls that use fd
	gone   bool        // out of the table
	used   time.Time   // if it can become idle
	timer  *time.Timer // of that
}

// NewHandles returns an empty table. emptied, unless nil, is called without a lock whenever the
// last handle was removed.
func NewHandles(limits HandleLimits, emptied func()) *Handles {
	if emptied == nil {
		emptied = func() {}
	}
	return &Handles{limits: limits, emptied: emptied, byID: make(map[string]*handle)}
}

// IsEmpty reports whether nothing is open, nor being opened. It never blocks.
func (t *Handles) IsEmpty() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byID) == 0
}

// Open opens a regular file under an id that is not taken, and describes it. It
// does not wait for the file, and refuses anything else as [Open] does.
func (t *Handles) Open(id, path string, mode OpenMode, options ...PathOption) (Metadata, error) {
	h := &handle{id: id, path: path, mode: mode}
	if err := t.reserve(h); err != nil {
		return Metadata{}, err
	}
	fd, m, err := openRegular(path, mode, options)
	if err != nil {
		_ = t.drop(h)
		return Metadata{}, err
	}
	if !t.opened(h, fd) {
		fd.release()
		return Metadata{}, HandleNotFoundError(id)
	}
	return m, nil
}

// reserve reserves the id of a handle that is being opened.
func (t *Handles) reserve(h *handle) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return HandleNotFoundError(h.id)
	case t.byID[h.id] != nil:
		return &Error{Kind: HandleExists, Handle: h.id, Err: fmt.Errorf("file handle %q already exists: choose another id, or close it first", h.id)}
	case t.limits.Handles > 0 && len(t.byID) >= t.limits.Handles:
		return &Error{Kind: TooManyHandles, Handle: h.id, Limit: int64(t.limits.Handles),
			Err: fmt.Errorf("%d file handles are open, and no more may be: close one", t.limits.Handles)}
	}
	t.byID[h.id] = h
	return nil
}

// opened gives a handle its file, unless it was closed before it was open.
func (t *Handles) opened(h *handle, fd descriptor) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h.gone {
		return false
	}
	h.fd, h.isOpen = fd, true
	if idle := t.limits.Idle; idle > 0 {
		h.used = time.Now()
		h.timer = time.AfterFunc(idle, func() { t.expire(h) })
	}
	return true
}

// ReadBlock returns up to length bytes from an offset, fewer only at the end of
// the file. Neither may be negative, nor length above [MaxBlockBytes]. They are in
// memory if that has length bytes; nil is as good. When the system cannot read, it
// closes the handle.
func (t *Handles) ReadBlock(id string, length int, offset int64, memory []byte) ([]byte, error) {
	h, err := t.use(id)
	if err != nil {
		return nil, err
	}
	if h.mode != ReadMode {
		return nil, t.misused(h, "read")
	}
	data, err := h.fd.readBlock(length, offset, memory)
	if err != nil {
		_ = t.drop(h)
		err = failed("read", h.path, err)
	}
	_ = t.done(h)
	return data, err
}

// WriteBlock writes all of data at an offset, which must not be negative, or
// fails, and may have written a part then.
func (t *Handles) WriteBlock(id string, data []byte, offset int64) error {
	h, err := t.use(id)
	if err != nil {
		return err
	}
	if h.mode != ReplaceMode {
		return t.misused(h, "write")
	}
	err = h.fd.writeAt(data, offset)
	if closeErr := t.done(h); err == nil {
		err = closeErr
	}
	if err != nil {
		return failed("write", h.path, err)
	}
	return nil
}

// CloseFile takes a handle out of the table; no such handle is as good. Its file
// is closed when no call uses it any more. An error is one of writing.
func (t *Handles) CloseFile(id string) error {
	t.mu.Lock()
	h := t.byID[id]
	t.mu.Unlock()
	if h == nil {
		return nil
	}
	if err := t.drop(h); err != nil && h.mode == ReplaceMode {
		return failed("write", h.path, err)
	}
	return nil
}

// Close closes all handles, and has those fail that are being opened. It may be
// called more than once.
func (t *Handles) Close() {
	t.mu.Lock()
	t.closed = true
	all := slices.Collect(maps.Values(t.byID))
	t.mu.Unlock()
	for _, h := range all {
		_ = t.drop(h)
	}
}

// use finds an open handle, and keeps its descriptor until done.
func (t *Handles) use(id string) (*handle, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.byID[id]
	if h == nil || !h.isOpen || h.external != nil {
		return nil, HandleNotFoundError(id)
	}
	h.users++
	return h, nil
}

// done ends a use, and closes the descriptor if it was the last of a handle that
// is gone.
func (t *Handles) done(h *handle) error {
	t.mu.Lock()
	h.users--
	if h.timer != nil {
		h.used = time.Now()
	}
	last := h.gone && h.users == 0
	t.mu.Unlock()
	if last {
		return h.close()
	}
	return nil
}

// drop takes a handle out of the table, once, and closes the descriptor if nobody
// uses it.
func (t *Handles) drop(h *handle) error {
	t.mu.Lock()
	if h.gone {
		t.mu.Unlock()
		return nil
	}
	h.gone = true
	delete(t.byID, h.id)
	if h.timer != nil {
		h.timer.Stop()
	}
	closes, empty := h.isOpen && h.users == 0, len(t.byID) == 0
	t.mu.Unlock()
	var err error
	if closes {
		err = h.close()
	}
	if empty {
		t.emptied()
	}
	return err
}

// expire closes a handle that was not used for as long as it may be.
func (t *Handles) expire(h *handle) {
	t.mu.Lock()
	left := t.limits.Idle - time.Since(h.used)
	if h.users > 0 {
		left = t.limits.Idle
	}
	again := left > 0 && !h.gone
	if again {
		h.timer.Reset(left)
	}
	t.mu.Unlock()
	if !again {
		_ = t.drop(h)
	}
}

// HandleNotFoundError returns the error for a handle that is not open.
func HandleNotFoundError(id string) *Error {
	return &Error{Kind: HandleNotFound, Handle: id, Err: fmt.Errorf("file handle %q does not exist: open the file again", id)}
}
