package client

import (
	"io"
	"math"
)

// uploadSource is the content of an upload, in pieces that are not modified afterwards:
// a server within this program receives them without a copy. Offsets count from the
// initial position of the reader. It is rewound by seeking, or else buffers pieces.
type uploadSource struct {
	from   io.Reader
	seeker io.Seeker // nil if from cannot seek
	start  int64     // the initial position of seeker
	left   int64     // how much is expected
	err    error     // of from; nil while there is more
	// buffering is whether to keep pieces for rewind.
	buffering bool
	// list are the pieces after the offset base; position is the next offset, at the
	// beginning of a piece or within it.
	list           [][]byte
	base, position int64
	read           int64 // bytes of from
}

// newUploadSource returns the content of a reader and its size, or the maximum if
// unknown.
func newUploadSource(from io.Reader) (*uploadSource, int64) {
	if seeker, ok := from.(io.Seeker); ok {
		start, err := seeker.Seek(0, io.SeekCurrent)
		if err == nil {
			if end, err := seeker.Seek(0, io.SeekEnd); err == nil {
				if _, err := seeker.Seek(start, io.SeekStart); err == nil {
					return &uploadSource{from: from, seeker: seeker, start: start, left: end - start}, end - start
				}
			}
		}
	}
	return &uploadSource{from: from, left: math.MaxInt64 - 1}, math.MaxInt64
}

// next returns the next piece, as large as it can be, or io.EOF, or both.
func (s *uploadSource) next() ([]byte, error) {
	if piece := s.replay(); piece != nil {
		return piece, nil
	}
	if s.err != nil {
		return nil, s.err
	}
	size := s.left + 1 // detects the end
	if size <= 0 || size > pieceBytes {
		size = pieceBytes // files grow
	}
	piece := make([]byte, size)
	n, err := io.ReadFull(s.from, piece)
	if err == io.ErrUnexpectedEOF {
		err = io.EOF
	}
	piece, s.err = piece[:n:n], err
	s.left -= int64(n)
	s.read += int64(n)
	s.position = s.read
	switch {
	case !s.buffering:
		s.base = s.read
	case n > 0:
		s.list = append(s.list, piece)
	}
	return piece, err
}

// replay returns buffered data after the position; nil if there is none.
func (s *uploadSource) replay() []byte {
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

// rewind continues at an earlier offset, and reports whether it could.
func (s *uploadSource) rewind(offset int64) bool {
	if s.seeker != nil {
		_, err := s.seeker.Seek(s.start+offset, io.SeekStart)
		s.left += s.read - offset
		s.base, s.position, s.read, s.err = offset, offset, offset, nil
		return err == nil
	}
	if offset < s.base || offset > s.read {
		return false
	}
	s.position = offset
	return true
}

// forget releases everything buffered before the offset.
func (s *uploadSource) forget(offset int64) {
	for len(s.list) > 0 && s.base+int64(len(s.list[0])) <= offset {
		s.base += int64(len(s.list[0]))
		s.list[0] = nil
		s.list = s.list[1:]
	}
}

// kept returns how much is buffered.
func (s *uploadSource) kept() int64 { return s.read - s.base }
