package fsops

import (
	"context"
	"slices"

	"golang.org/x/sys/unix"
)

// createMode is that of new files, without the bits of the umask.
const createMode = 0o666

// Writer is a file that is open for writing. It is for one goroutine.
type Writer struct {
	fd   descriptor
	path string
}

// Create opens a file for writing in place: an existing one is truncated and keeps its mode, owner
// and names, a new one has mode 0666 without the bits of the umask. Links are followed. Devices are
// accepted, FIFOs and sockets are NotRegular.
func Create(path string, options ...PathOption) (*Writer, error) {
	fd, _, err := create(path, options, FIFO, Socket)
	if err != nil {
		return nil, err
	}
	return &Writer{fd: fd, path: path}, nil
}

// create is Create, but rejects files of the given types.
func create(path string, options []PathOption, except ...Type) (descriptor, Metadata, error) {
	t, err := locate("write", path, options)
	if err != nil {
		return 0, Metadata{}, err
	}
	defer t.release()
	path = t.path
	if t.hasType(except...) {
		return 0, Metadata{}, notRegular("write", path)
	}
	if err := checkFDBudget(callBudget); err != nil {
		return 0, Metadata{}, failed("write", path, err)
	}
	fd, err := t.open(commonFlags|unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC, createMode)
	if err != nil {
		return 0, Metadata{}, t.openError("write", err)
	}
	m, err := fd.stat()
	switch {
	case err != nil:
		fd.release()
		return 0, Metadata{}, failed("write", path, err)
	case slices.Contains(except, m.Type):
		fd.release()
		return 0, Metadata{}, notRegular("write", path)
	}
	return fd, m, nil
}

// Write implements io.Writer. If it fails it may have written a part.
func (w *Writer) Write(p []byte) (int, error) {
	if err := w.fd.write(p); err != nil {
		return 0, failed("write", w.path, err)
	}
	return len(p), nil
}

// Close closes the file. It must be called once. Its error may be a delayed write error.
func (w *Writer) Close() error {
	if err := w.fd.close(); err != nil {
		return failed("write", w.path, err)
	}
	return nil
}

// WriteFile writes a file as [Create] does. If it fails it may have written a part.
func WriteFile(ctx context.Context, path string, data []byte, options ...PathOption) error {
	w, err := Create(path, options...)
	if err != nil {
		return err
	}
	for len(data) > 0 {
		if ctx.Err() != nil {
			w.fd.release()
			return context.Cause(ctx)
		}
		piece := data[:min(len(data), chunkBytes)]
		if _, err := w.Write(piece); err != nil {
			w.fd.release()
			return err
		}
		data = data[len(piece):]
	}
	return w.Close()
}
