package fsops

// ExternalFile is a file that another process has open. Its handle counts like any other.
type ExternalFile struct {
	// Holder identifies the process, for the caller.
	Holder any
	// Close is called once, when the handle is out of the table and no call uses it.
	Close func()
}

// OpenExternal registers a handle for a file that open makes another process open. It blocks as long
// as open does. It fails as [Handles.Open] does if the id is taken, there are too many handles or the
// table is closed, and with the error of open; then ExternalFile.Close is not called.
func (t *Handles) OpenExternal(id string, file ExternalFile, open func() error) error {
	h := &handle{id: id, external: &file}
	if err := t.reserve(h); err != nil {
		return err
	}
	if err := open(); err != nil {
		_ = t.drop(h)
		return err
	}
	if !t.opened(h, 0) {
		file.Close()
		return HandleNotFoundError(id)
	}
	return nil
}

// External returns the holder of the file of a handle, which stays open until done is called. It
// returns nil if there is no such handle or its file is not external.
func (t *Handles) External(id string) (by any, done func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.byID[id]
	if h == nil || !h.isOpen || h.external == nil {
		return nil, nil
	}
	h.users++
	return h.external.Holder, func() { _ = t.done(h) }
}

// close closes the file of a handle that no call uses any more.
func (h *handle) close() error {
	if h.external != nil {
		h.external.Close()
		return nil
	}
	return h.fd.close()
}
