package fsops

import (
	"context"

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
func Create(path string) (*Writer, error) {
	path, err := cleaned("write", path)
	if err != nil {
		return nil, err
	}
	if special(unix.AT_FDCWD, path, FIFO, Socket) {
		return nil, notRegular("write", path)
	}
	fd, err := openPath(path, always|unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC, createMode)
	if err != nil {
		return nil, notOpened("write", unix.AT_FDCWD, path, path, err)
	}
	m, err := fd.stat()
	switch {
	case err != nil:
		fd.release()
		return nil, failed("write", path, err)
	case m.Type == FIFO:
		fd.release()
		return nil, notRegular("write", path)
	}
	return &Writer{fd: fd, path: path}, nil
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
func WriteFile(ctx context.Context, path string, data []byte) error {
	w, err := Create(path)
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
