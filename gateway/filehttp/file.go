package filehttp

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"unicode/utf8"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/inproc"
)

// openFile reads a file by DownloadFile, from any offset. It is for one goroutine.
type openFile struct {
	q        *request
	metadata *execwirev1.FileMetadata // when it was opened
	size     int64
	local    *os.File // the file itself, if the server passed it on

	offset int64
	left   int64 // how much is expected from offset; -1 is up to the end
	stream grpc.ServerStreamingClient[execwirev1.DownloadFileResponse]
	cancel context.CancelCauseFunc // of stream
	piece  []byte                  // received, and not read
	ended  error                   // how the stream ended; nil while it has not
}

// open opens the file of a request.
func (q *request) open() (*openFile, error) {
	f := &openFile{q: q, left: -1}
	none := uint64(0)
	req := q.downloadRequest()
	req.Length = &none
	passed := new(passedFile)
	stream, err := q.files.DownloadFile(q.Context(), req, inproc.TakeFile{To: passed.put})
	var first *execwirev1.DownloadFileResponse
	if err == nil {
		first, err = stream.Recv()
	}
	if err == nil {
		_, err = stream.Recv() // the end
	}
	f.local = passed.take()
	if err != io.EOF {
		f.close()
		return nil, cmp.Or(err, errNotHead)
	}
	f.metadata = first.GetHead().GetMetadata()
	f.size = int64(f.metadata.GetSize())
	return f, nil
}

// noteSent reports bytes that were sent from a file that the server has passed on, and
// why they are not all; nil if they are.
func (f *openFile) noteSent(bytes int64, err error) {
	if f.local != nil && f.q.access.Sent != nil {
		f.q.access.Sent(bytes, err)
	}
}

var errNotHead = errors.New("the server sent more than a head")

// passedFile is the file that the server passes on in place of its content, if it is in
// this program and the call is not confined.
type passedFile struct {
	mu    sync.Mutex
	file  *os.File // guarded by mu
	taken bool     // guarded by mu; a later file is closed
}

// take returns the file, or nil.
func (p *passedFile) take() *os.File {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken = true
	return p.file
}

// put keeps the file for take.
func (p *passedFile) put(file *os.File) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken {
		_ = file.Close()
		return
	}
	p.file = file
}

func (f *openFile) close() {
	f.stop()
	if f.local != nil {
		_ = f.local.Close()
	}
}

var errStopped = errors.New("the download is not needed any more")

// stop ends the stream, if there is one.
func (f *openFile) stop() {
	if f.stream != nil {
		f.cancel(errStopped)
		f.stream, f.piece, f.ended = nil, nil, nil
	}
}

// expect says how much will be read from here.
func (f *openFile) expect(length int64) {
	f.stop()
	f.left = length
}

// Seek implements io.Seeker.
func (f *openFile) Seek(offset int64, whence int) (int64, error) {
	f.stop()
	switch whence {
	case io.SeekCurrent:
		offset += f.offset
	case io.SeekEnd:
		offset += f.size
	}
	if f.local != nil {
		_, err := f.local.Seek(offset, io.SeekStart)
		return offset, err
	}
	f.offset, f.left = offset, -1
	return offset, nil
}

// Read implements io.Reader.
func (f *openFile) Read(p []byte) (int, error) {
	if f.local != nil {
		return f.local.Read(p) // whose offset is its own
	}
	for len(f.piece) == 0 {
		if err := f.receive(); err != nil {
			return 0, err
		}
	}
	n := copy(p, f.piece)
	f.piece = f.piece[n:]
	f.offset += int64(n)
	return n, nil
}

// receive receives the next message of the stream, and begins one if there is none.
func (f *openFile) receive() error {
	if f.ended != nil {
		return f.ended
	}
	if f.stream == nil {
		req := f.q.downloadRequest()
		req.Offset, req.IfVersion = uint64(f.offset), f.metadata.GetVersion()
		if f.left >= 0 {
			length := uint64(f.left)
			req.Length = &length
		}
		ctx, cancel := context.WithCancelCause(f.q.Context())
		stream, err := f.q.files.DownloadFile(ctx, req, inproc.HandBack{})
		if err != nil {
			cancel(err)
			return err
		}
		f.stream, f.cancel = stream, cancel
	}
	message, err := f.stream.Recv()
	f.piece, f.ended = message.GetData(), err
	return err
}

// unchanged returns nil if everything was read that was expected, and the file had not
// changed then.
func (f *openFile) unchanged() error {
	if f.local != nil {
		now, err := f.local.Stat()
		if err == nil && (now.Size() != f.size || !now.ModTime().Equal(f.metadata.GetModifyTime().AsTime())) {
			err = errChanged
		}
		return err
	}
	for {
		switch err := f.receive(); {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case len(f.piece) > 0:
			return errChanged // it grew
		}
	}
}

// wirePath returns the two forms of a path in a message.
func wirePath(path string) (text string, raw []byte) {
	if utf8.ValidString(path) {
		return path, nil
	}
	return "", []byte(path)
}
