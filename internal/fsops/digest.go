package fsops

import (
	"context"
	"crypto/sha256"
	"io"
	"time"

	"golang.org/x/sys/unix"
)

// settled is how old a change has to be so that a later one has another time on
// every file system.
const settled = 2 * time.Second

// content is what a file had in it at a time.
type content struct {
	version string // empty if the file may change without getting another one
	digest  []byte
}

// contentAt reads the content of a regular file, which is not a link.
func contentAt(ctx context.Context, p place, found Metadata) (content, error) {
	if found.Type != Regular {
		return content{}, notRegular("read", p.path)
	}
	fd, err := p.open(always | unix.O_RDONLY | unix.O_NOFOLLOW)
	if err != nil {
		return content{}, notOpened("read", p.dir, p.name, p.path, err)
	}
	file := &File{fd: fd, path: p.path}
	defer file.Close()
	if file.metadata, err = fd.stat(); err != nil {
		return content{}, failed("read", p.path, err)
	}
	if file.metadata.Type != Regular {
		return content{}, notRegular("read", p.path)
	}
	digest, err := digestOf(ctx, file)
	if err != nil {
		return content{}, err
	}
	c := content{digest: digest}
	if m, err := fd.stat(); err == nil && m.Version() == file.metadata.Version() && time.Since(m.ChangeTime) > settled {
		c.version = m.Version()
	}
	return c, nil
}

// Digest reads a regular file, following links if asked to, and returns its
// SHA-256 with its metadata. One that is changed meanwhile is Changed.
func Digest(ctx context.Context, path string, follow bool, how ...How) ([]byte, Metadata, error) {
	flags := unix.O_NOFOLLOW
	if follow {
		flags = 0
	}
	f, err := open(path, flags, how)
	if err != nil {
		return nil, Metadata{}, err
	}
	defer f.Close()
	digest, err := digestOf(ctx, f)
	if err != nil {
		return nil, Metadata{}, err
	}
	changed, err := f.Changed()
	if err == nil && changed {
		err = refused(Changed, "read", f.path, "it was changed while it was read: try again")
	}
	return digest, f.metadata, err
}

// digestOf returns the SHA-256 of what can be read.
func digestOf(ctx context.Context, from io.Reader) ([]byte, error) {
	digest := sha256.New()
	buffer := make([]byte, 128<<10)
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		n, err := from.Read(buffer)
		_, _ = digest.Write(buffer[:n]) // which never fails
		switch {
		case err == io.EOF:
			return digest.Sum(nil), nil
		case err != nil:
			return nil, err
		}
	}
}
