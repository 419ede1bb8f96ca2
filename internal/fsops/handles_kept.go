package fsops

// Kept is a file that somebody else has open for a handle, which counts like any other.
type Kept struct {
	// By is who has it open.
	By any
	// End is called once, when the handle is out of the table and nobody uses it.
	End func()
}

// Keep takes an id that is not taken for a file that open has somebody else open. It blocks as long as open does, and
// fails as [Handles.Open] does if the id is taken, there are too many handles or the table is closed, and with what open
// fails with; then nothing is kept, and End not called.
func (t *Handles) Keep(id string, kept Kept, open func() error) error {
	h := &handle{id: id, kept: &kept}
	if err := t.reserve(h); err != nil {
		return err
	}
	if err := open(); err != nil {
		_ = t.drop(h)
		return err
	}
	if !t.opened(h, 0) {
		kept.End()
		return &HandleError{Kind: HandleNotFound, ID: id}
	}
	return nil
}

// KeptBy returns who has the file of a handle open, until done is called; nil if it is nobody else.
func (t *Handles) KeptBy(id string) (by any, done func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.byID[id]
	if h == nil || !h.isOpen || h.kept == nil {
		return nil, nil
	}
	h.users++
	return h.kept.By, func() { _ = t.done(h) }
}

// close closes the file of a handle that nobody uses any more.
func (h *handle) close() error {
	if h.kept != nil {
		h.kept.End()
		return nil
	}
	return h.fd.close()
}
