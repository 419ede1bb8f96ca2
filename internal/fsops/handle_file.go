package fsops

import (
	"math"

	"golang.org/x/sys/unix"
)

// OpenMode is what a file is opened for. There is no zero mode.
type OpenMode uint8

// The modes.
const (
	ReadMode    OpenMode = iota + 1 // to be read
	ReplaceMode                     // to be written anew: truncated, or made
)

// openRegular opens and describes a regular file. Other files are rejected without being opened.
func openRegular(path string, mode OpenMode, options []PathOption) (descriptor, Metadata, error) {
	if err := checkFDBudget(handleBudget); err != nil {
		return 0, Metadata{}, failed("open", path, err)
	}
	if mode == ReplaceMode {
		return create(path, options, FIFO, Socket, CharacterDevice, BlockDevice)
	}
	f, err := Open(path, options...)
	if err != nil {
		return 0, Metadata{}, err
	}
	return f.fd, f.metadata, nil
}

// misused ends the use of a handle in the wrong mode, with the error of the kernel.
func (t *Handles) misused(h *handle, verb string) error {
	_ = t.done(h)
	return failed(verb, h.path, unix.EBADF)
}

// smallBlock is the size of a block up to which the size of the file is not looked up.
const smallBlock = 16 << 10

// readBlock reads up to length bytes, into memory if it is large enough, else into a new slice that
// is not much larger than the data.
func (d descriptor) readBlock(length int, offset int64, memory []byte) ([]byte, error) {
	if space := math.MaxInt64 - offset; space < int64(length) { // the kernel counts no further
		length = int(space)
	}
	if len(memory) < length {
		memory = make([]byte, d.likelyBytes(length, offset))
	}
	data, filled := memory[:min(len(memory), length)], 0
	for filled < length {
		if filled == len(data) { // it grew, or is a file of /proc
			data = append(data, make([]byte, length-filled)...)
		}
		n, err := d.readAt(data[filled:], offset+int64(filled))
		switch {
		case err != nil:
			return nil, err
		case n == 0:
			return data[:filled], nil
		}
		filled += n
	}
	return data[:filled], nil
}

// likelyBytes returns how much memory a block of up to length bytes needs, or a little more.
func (d descriptor) likelyBytes(length int, offset int64) int {
	if length > smallBlock {
		if m, err := d.stat(); err == nil {
			return int(min(int64(length), max(m.Size-offset, 0)+smallBlock))
		}
	}
	return length
}
