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

// Create opens a file for writing in place: an existing one is truncated and
// keeps its mode, owner and names, a new one has mode 0666 without the bits of
// the umask. Links are followed. Devices are written to, FIFOs and sockets are
// NotRegular.
func Create(path string, how ...How) (*Writer, error) {
	fd, _, err := create(path, how, FIFO, Socket)
	if err != nil {
		return nil, err
	}
	return &Writer{fd: fd, path: path}, nil
}

// create opens a file for writing in place, but none of some types.
func create(path string, how []How, except ...Type) (descriptor, Metadata, error) {
	path, err := cleaned("write", path)
	if err != nil {
		return 0, Metadata{}, err
	}
	t, err := locate("write", path, how)
	if err != nil {
		return 0, Metadata{}, err
	}
	defer t.release()
	if t.isOf(except...) {
		return 0, Metadata{}, notRegular("write", path)
	}
	if err := hasRoom(callShare); err != nil {
		return 0, Metadata{}, failed("write", path, err)
	}
	fd, err := t.open(always|unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC, createMode)
	if err != nil {
		return 0, Metadata{}, t.notOpened("write", err)
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

// Write implements io.Writer. It writes all or fails, and may have written a
// part then.
func (w *Writer) Write(p []byte) (int, error) {
	if err := w.fd.write(p); err != nil {
		return 0, failed("write", w.path, err)
	}
	return len(p), nil
}

// Close ends the writing. It must be called once, and its error is one of
// writing.
func (w *Writer) Close() error {
	if err := w.fd.close(); err != nil {
		return failed("write", w.path, err)
	}
	return nil
}

// WriteFile makes a file have exactly this content, as [Create] does. It can
// leave a part of it when it fails.
func WriteFile(ctx context.Context, path string, data []byte, how ...How) error {
	w, err := Create(path, how...)
	if err != nil {
		return err
	}
	for len(data) > 0 {
		if ctx.Err() != nil {
			w.fd.release()
			return context.Cause(ctx)
		}
		piece := data[:min(len(data), pieceBytes)]
		if _, err := w.Write(piece); err != nil {
			w.fd.release()
			return err
		}
		data = data[len(piece):]
	}
	return w.Close()
}
