package fsops

import (
	"context"
	"io"
	"math"

	"golang.org/x/sys/unix"
)

// extent is a part of a file that has content, from begin to before end. What is
// between extents is a hole, which reads as zeros and takes no room.
type extent struct{ begin, end int64 }

// nextExtent returns what of a file has content at or after a place; io.EOF if
// nothing has. Where the file system does not know, all that follows has.
func (d descriptor) nextExtent(at int64) (extent, error) {
	e := extent{at, math.MaxInt64}
	begin, err := unix.Seek(int(d), at, unix.SEEK_DATA)
	switch {
	case err == unix.ENXIO:
		return e, io.EOF
	case err != nil:
		return e, nil
	}
	e.begin = begin
	if end, err := unix.Seek(int(d), begin, unix.SEEK_HOLE); err == nil {
		e.end = end
	}
	return e, nil
}

// extents gives an empty file the content of another one, with its holes: a small
// file can be of any size, and its copy would fill the disk.
func (c *copying) extents(in, out descriptor, from, to string) error {
	m, err := in.stat()
	if err != nil {
		return failed("copy", from, err)
	}
	if m.Size == 0 { // as many files of /proc that have content
		_, err := c.data(in, out, extent{0, math.MaxInt64}, from, to)
		return err
	}
	for at := int64(0); ; {
		e, err := in.nextExtent(at)
		if err == io.EOF {
			return c.lastHole(in, out, at, from, to)
		}
		if e.begin > at {
			if _, err := unix.Seek(int(out), e.begin, io.SeekStart); err != nil {
				return failed("copy to", to, err)
			}
		}
		if at, err = c.data(in, out, e, from, to); err != nil || at < e.end {
			return err
		}
	}
}

// lastHole gives a copy the size of its source, which has a hole behind at.
func (c *copying) lastHole(in, out descriptor, at int64, from, to string) error {
	m, err := in.stat()
	if err != nil {
		return failed("copy", from, err)
	}
	if m.Size <= at {
		return nil
	}
	if err := unix.Ftruncate(int(out), m.Size); err != nil {
		return failed("copy to", to, err)
	}
	return nil
}

// kernelBytes is how much the kernel copies before we look whether it is still
// wanted.
const kernelBytes = 8 << 20

// data copies an extent to the place where out is, and returns where it ended:
// before the end of the extent if the file did.
func (c *copying) data(in, out descriptor, e extent, from, to string) (end int64, err error) {
	at, err := c.withinKernel(in, out, e)
	switch {
	case c.ctx.Err() != nil:
		return at, context.Cause(c.ctx)
	case err != nil && at > e.begin:
		return at, failed("copy to", to, err)
	}
	return c.throughBuffer(in, out, extent{at, e.end}, from, to)
}

// withinKernel lets the kernel copy, which may share the blocks, and returns how
// far it came. Not every file system can; some say that there is nothing to copy.
// It stops when the copy is not wanted any more.
func (c *copying) withinKernel(in, out descriptor, e extent) (at int64, err error) {
	for at = e.begin; at < e.end && c.ctx.Err() == nil; {
		n, err := retried(func() (int, error) {
			place := at
			return unix.CopyFileRange(int(in), &place, int(out), nil, int(min(kernelBytes, e.end-at)), 0)
		})
		if err != nil || n == 0 {
			return at, err
		}
		at += int64(n)
	}
	return at, nil
}

func (c *copying) throughBuffer(in, out descriptor, e extent, from, to string) (at int64, err error) {
	if c.buffer == nil {
		c.buffer = make([]byte, 128<<10)
	}
	for at = e.begin; at < e.end; {
		if c.ctx.Err() != nil {
			return at, context.Cause(c.ctx)
		}
		n, err := in.readAt(c.buffer[:min(int64(len(c.buffer)), e.end-at)], at)
		if err != nil {
			return at, failed("copy", from, err)
		}
		if n == 0 {
			return at, nil
		}
		if err := out.write(c.buffer[:n]); err != nil {
			return at, failed("copy to", to, err)
		}
		at += int64(n)
	}
	return at, nil
}
