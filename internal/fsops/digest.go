package fsops

import (
	"context"
	"crypto/sha256"
	"io"
	"time"

	"golang.org/x/sys/unix"
)

// timestampGranularity is the age of a change from which a later change has another timestamp on every file
// system.
const timestampGranularity = 2 * time.Second

// contentID identifies the content of a file at some time.
type contentID struct {
	version string // empty if the file may change without changing its version
	digest  []byte
}

// readContent reads the content of a regular file, and follows no link.
func readContent(ctx context.Context, p place) (contentID, error) {
	file, err := target{place: p}.openFile(unix.O_NOFOLLOW)
	if err != nil {
		return contentID{}, err
	}
	defer file.Close()
	digest, err := digestOf(ctx, file)
	if err != nil {
		return contentID{}, err
	}
	c := contentID{digest: digest}
	if changed, err := file.Changed(); err == nil && !changed && time.Since(file.metadata.ChangeTime) > timestampGranularity {
		c.version = file.metadata.Version()
	}
	return c, nil
}

// Digest returns the SHA-256 and the metadata of a regular file. With follow it follows links. It
// fails with Changed if the file changes meanwhile.
func Digest(ctx context.Context, path string, follow bool, options ...PathOption) ([]byte, Metadata, error) {
	flags := unix.O_NOFOLLOW
	if follow {
		flags = 0
	}
	f, err := open(path, flags, options)
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
		err = newError(Changed, "read", f.path, "it was changed while it was read: try again")
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
