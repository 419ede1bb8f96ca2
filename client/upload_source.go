package client

import (
	"io"
	"math"
)

// uploadSource is the content of an upload, in pieces that are not written to
// again. Offsets count from where the reader stood at first.
type uploadSource interface {
	// keep says before the first piece whether rewind will be needed.
	keep(bool)
	// next returns the next piece, or io.EOF, or both.
	next() ([]byte, error)
	// rewind makes next begin at an offset that was there before, and reports
	// whether it could.
	rewind(offset int64) bool
	// forget says that nothing before the offset is asked for again; kept is how
	// many bytes are in memory for rewind.
	forget(offset int64)
	kept() int64
}

// newUploadSource returns the content that a reader has, and its size, the
// largest there is if that is not known.
func newUploadSource(from io.Reader) (uploadSource, int64) {
	if seeker, ok := from.(io.ReadSeeker); ok {
		start, err := seeker.Seek(0, io.SeekCurrent)
		if err == nil {
			if end, err := seeker.Seek(0, io.SeekEnd); err == nil {
				if _, err := seeker.Seek(start, io.SeekStart); err == nil {
					return &seekingSource{from: seeker, start: start, pieces: pieceMemory{left: end - start + 1}}, end - start
				}
			}
		}
	}
	return &keepingSource{from: from, pieces: pieceMemory{left: math.MaxInt64}}, math.MaxInt64
}

// pieceMemory is the memory of pieces, which a server within this program gets as
// they are.
type pieceMemory struct {
	left int64 // how many bytes may still be asked for
	free []byte
}

// pieceMemoryBytes is how much is taken at once.
const pieceMemoryBytes = 16 * pieceBytes

func (m *pieceMemory) next() []byte {
	if len(m.free) < pieceBytes {
		m.free = make([]byte, max(1, min(m.left, pieceMemoryBytes)))
		m.left -= int64(len(m.free))
		m.left = max(m.left, pieceBytes) // files grow
	}
	return m.free[:min(len(m.free), pieceBytes)]
}

// read reads one piece, as large as it can be.
func (m *pieceMemory) read(from io.Reader) ([]byte, error) {
	n, err := io.ReadFull(from, m.next())
	piece := m.free[:n:n]
	m.free = m.free[n:]
	if err == io.ErrUnexpectedEOF {
		err = io.EOF
	}
	return piece, err
}

// seekingSource goes back where it came from.
type seekingSource struct {
	from   io.ReadSeeker
	start  int64
	pieces pieceMemory
}

func (s *seekingSource) keep(bool) {}

func (s *seekingSource) next() ([]byte, error) { return s.pieces.read(s.from) }

func (s *seekingSource) rewind(offset int64) bool {
	_, err := s.from.Seek(s.start+offset, io.SeekStart)
	return err == nil
}

func (s *seekingSource) forget(int64) {}

func (s *seekingSource) kept() int64 { return 0 }

// keepingSource keeps what it has read.
type keepingSource struct {
	from   io.Reader
	pieces pieceMemory
	keeps  bool
	err    error // of from; nil while there is more
	// list are the pieces from the offset base on; the next one to be returned is
	// the one at position, which is at the beginning of a piece or within it.
	list           [][]byte
	base, position int64
	read           int64 // bytes of from
}

func (s *keepingSource) keep(keep bool) { s.keeps = keep }

func (s *keepingSource) next() ([]byte, error) {
	if piece := s.again(); piece != nil {
		return piece, nil
	}
	if s.err != nil {
		return nil, s.err
	}
	piece, err := s.pieces.read(s.from)
	s.err = err
	s.read += int64(len(piece))
	s.position = s.read
	switch {
	case !s.keeps:
		s.base = s.read
	case len(piece) > 0:
		s.list = append(s.list, piece)
	}
	return piece, err
}

// again returns what follows the position of what was read before; nil if there
// is no more of that.
func (s *keepingSource) again() []byte {
	if s.position == s.read {
		return nil
	}
	at := s.base
	for _, piece := range s.list {
		if end := at + int64(len(piece)); s.position < end {
			rest := piece[s.position-at:]
			s.position = end
			return rest
		}
		at += int64(len(piece))
	}
	return nil
}

func (s *keepingSource) rewind(offset int64) bool {
	if offset < s.base || offset > s.read {
		return false
	}
	s.position = offset
	return true
}

func (s *keepingSource) forget(offset int64) {
	for len(s.list) > 0 && s.base+int64(len(s.list[0])) <= offset {
		s.base += int64(len(s.list[0]))
		s.list[0] = nil
		s.list = s.list[1:]
	}
}

func (s *keepingSource) kept() int64 { return s.read - s.base }
