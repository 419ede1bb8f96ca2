package fsops

import (
	"context"
	"io"
	"math"

	"golang.org/x/sys/unix"
)

// extent is a part of a file that has content, from begin to before end. Between extents are holes,
// which read as zeros and occupy no blocks.
type extent struct{ begin, end int64 }

// nextExtent returns the first extent at or after an offset, or io.EOF. If the file system does not
// know its extents the rest of the file is one.
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

// extents copies content to an empty file, and keeps holes: a sparse file could otherwise fill the
// disk.
func (c *copier) extents(in, out descriptor, from, to string) error {
	for at := int64(0); ; {
		e, err := in.nextExtent(at)
		if err == io.EOF {
			return c.extendToSize(in, out, at, from, to)
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

// extendToSize extends a copy to the size of its source, which has a hole from at on.
func (c *copier) extendToSize(in, out descriptor, at int64, from, to string) error {
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

// kernelBytes is how much the kernel copies between checks of the context.
const kernelBytes = 8 << 20

// data copies an extent to the current offset of out, and returns where it ended: before the end of
// the extent if the file is shorter.
func (c *copier) data(in, out descriptor, e extent, from, to string) (end int64, err error) {
	at, err := c.copyFileRange(in, out, e)
	switch {
	case c.ctx.Err() != nil:
		return at, context.Cause(c.ctx)
	case err != nil && at > e.begin:
		return at, failed("copy to", to, err)
	}
	return c.copyBuffered(in, out, extent{at, e.end}, from, to)
}

// copyFileRange copies by copy_file_range(2), which may share blocks, and returns where it stopped: if
// ctx ends, or if the file system cannot do it, which some report as an empty copy.
func (c *copier) copyFileRange(in, out descriptor, e extent) (at int64, err error) {
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

func (c *copier) copyBuffered(in, out descriptor, e extent, from, to string) (at int64, err error) {
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
