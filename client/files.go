package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// FileInfo describes a file.
type FileInfo struct {
	// Metadata is what the server says of it.
	Metadata *execwirev1.FileMetadata
	// LinkTarget is where a link leads, as written in it; only of [Client.Lstat].
	LinkTarget string
	// SHA256 is the digest of the content of a regular file; only of
	// [Client.StatSHA256].
	SHA256 []byte
}

// DirEntry is a name in a directory.
type DirEntry struct {
	// Name is the name, in the bytes it has on the server. It is never "", "."
	// or "..", and has no slash.
	Name string
	// Type is what the name stands for.
	Type execwirev1.FileType
	// TargetType is Type, or what a link leads to; unspecified if that is
	// nothing.
	TargetType execwirev1.FileType
}

// The methods about files take absolute paths of the server's machine, which
// need not be UTF-8. They block until the server has answered; all but Mkdir, Remove,
// Rename, RenameNew, Symlink and Copy, which are sent once, go on after a lost
// connection for a minute and a quarter. Errors are [*Error], of which errors.Is finds
// fs.ErrNotExist, fs.ErrExist and fs.ErrPermission, or wrap the cause of ctx.

// Stat describes what a path leads to.
func (c *Client) Stat(ctx context.Context, path string) (FileInfo, error) {
	return c.stat(ctx, path, &execwirev1.GetMetadataRequest{})
}

// StatSHA256 is Stat that has the server read a regular file too, for its digest.
func (c *Client) StatSHA256(ctx context.Context, path string) (FileInfo, error) {
	return c.stat(ctx, path, &execwirev1.GetMetadataRequest{WantSha256: true})
}

// Lstat describes the path itself, should it be a link.
func (c *Client) Lstat(ctx context.Context, path string) (FileInfo, error) {
	return c.stat(ctx, path, &execwirev1.GetMetadataRequest{NoFollow: true})
}

func (c *Client) stat(ctx context.Context, path string, request *execwirev1.GetMetadataRequest) (FileInfo, error) {
	request.Path, request.RawPath = pathFields(path)
	response, err := repeat(ctx, c, func(ctx context.Context) (*execwirev1.GetMetadataResponse, error) {
		return c.files.GetMetadata(ctx, request)
	})
	if err != nil {
		return FileInfo{}, err
	}
	return FileInfo{
		Metadata:   response.GetMetadata(),
		LinkTarget: bytesOf(response.GetLinkTarget(), response.GetRawLinkTarget()),
		SHA256:     response.GetSha256(),
	}, nil
}

// ReadDir returns the entries of a directory, in no particular order.
func (c *Client) ReadDir(ctx context.Context, path string) ([]DirEntry, error) {
	request := &execwirev1.ReadDirectoryRequest{}
	request.Path, request.RawPath = pathFields(path)
	return repeat(ctx, c, func(ctx context.Context) ([]DirEntry, error) {
		stream, err := c.files.ReadDirectory(ctx, request)
		if err != nil {
			return nil, err
		}
		var entries []DirEntry
		for {
			message, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return entries, nil
			}
			if err != nil {
				return nil, err
			}
			for _, e := range message.GetEntries() {
				entry := DirEntry{Name: bytesOf(e.GetName(), e.GetRawName()), Type: e.GetType(), TargetType: e.GetTargetType()}
				if !isName(entry.Name) {
					return nil, fmt.Errorf("failed to read directory %s: the server broke the contract: %q is no name", path, entry.Name)
				}
				entries = append(entries, entry)
			}
		}
	})
}

// Mkdir makes a directory with the permission bits, of mode 07777; nil is 0777
// without the bits of the server's umask. Its parent has to exist, the directory
// must not.
func (c *Client) Mkdir(ctx context.Context, path string, permissions *uint32) error {
	request := &execwirev1.CreateDirectoryRequest{Permissions: permissions}
	request.Path, request.RawPath = pathFields(path)
	_, err := c.files.CreateDirectory(ctx, request)
	return answered(ctx, err)
}

// MkdirAll is Mkdir that makes missing parents too, without the permission bits.
// A directory that exists is as good, and keeps its own.
func (c *Client) MkdirAll(ctx context.Context, path string, permissions *uint32) error {
	request := &execwirev1.CreateDirectoryRequest{Recursive: true, Permissions: permissions}
	request.Path, request.RawPath = pathFields(path)
	_, err := repeat(ctx, c, func(ctx context.Context) (*execwirev1.CreateDirectoryResponse, error) {
		return c.files.CreateDirectory(ctx, request)
	})
	return err
}

// Remove removes a file, a link or an empty directory.
func (c *Client) Remove(ctx context.Context, path string) error {
	request := &execwirev1.RemovePathRequest{}
	request.Path, request.RawPath = pathFields(path)
	_, err := c.files.RemovePath(ctx, request)
	return answered(ctx, err)
}

// RemoveAll removes a path with all that is below it. One that is not there is
// as good. Links are removed, not followed.
func (c *Client) RemoveAll(ctx context.Context, path string) error {
	request := &execwirev1.RemovePathRequest{Recursive: true, IgnoreMissing: true}
	request.Path, request.RawPath = pathFields(path)
	_, err := repeat(ctx, c, func(ctx context.Context) (*execwirev1.RemovePathResponse, error) {
		return c.files.RemovePath(ctx, request)
	})
	return err
}

// Rename gives what is at one path another one, in one step, in the place of a
// file, link or empty directory that is there. Across file systems it fails with
// CROSS_DEVICE.
func (c *Client) Rename(ctx context.Context, source, destination string) error {
	return c.rename(ctx, source, destination, false)
}

// RenameNew is Rename that fails with PATH_ALREADY_EXISTS if anything is there.
func (c *Client) RenameNew(ctx context.Context, source, destination string) error {
	return c.rename(ctx, source, destination, true)
}

func (c *Client) rename(ctx context.Context, source, destination string, noReplace bool) error {
	request := &execwirev1.RenamePathRequest{NoReplace: noReplace}
	request.SourcePath, request.RawSourcePath = pathFields(source)
	request.DestinationPath, request.RawDestinationPath = pathFields(destination)
	_, err := c.files.RenamePath(ctx, request)
	return answered(ctx, err)
}

// Symlink makes a link that leads to target. Nothing must be at its path.
func (c *Client) Symlink(ctx context.Context, target, path string) error {
	request := &execwirev1.CreateSymlinkRequest{}
	request.Path, request.RawPath = pathFields(path)
	request.Target, request.RawTarget = pathFields(target)
	_, err := c.files.CreateSymlink(ctx, request)
	return answered(ctx, err)
}

// Copy copies a file, or a link as a link, from one path of the server to
// another, and with recursive a directory. It returns how many FIFOs, sockets and
// devices were left out of a directory's copy.
func (c *Client) Copy(ctx context.Context, source, destination string, recursive bool) (omitted uint64, err error) {
	request := &execwirev1.CopyPathRequest{Recursive: recursive}
	request.SourcePath, request.RawSourcePath = pathFields(source)
	request.DestinationPath, request.RawDestinationPath = pathFields(destination)
	response, err := c.files.CopyPath(ctx, request)
	return response.GetOmittedSpecialFiles(), answered(ctx, err)
}

// RealPath returns the path of what a path leads to, without links.
func (c *Client) RealPath(ctx context.Context, path string) (string, error) {
	request := &execwirev1.CanonicalizePathRequest{}
	request.Path, request.RawPath = pathFields(path)
	response, err := repeat(ctx, c, func(ctx context.Context) (*execwirev1.CanonicalizePathResponse, error) {
		return c.files.CanonicalizePath(ctx, request)
	})
	return bytesOf(response.GetPath(), response.GetRawPath()), err
}

// pathFields are the two fields that a request has for a path.
func pathFields(path string) (text string, raw []byte) {
	if utf8.ValidString(path) {
		return path, nil
	}
	return "", []byte(path)
}

// bytesOf is a name in the bytes it has on the server.
func bytesOf(text string, raw []byte) string {
	if len(raw) > 0 {
		return string(raw)
	}
	return text
}

// isName is whether a name names something in a directory, and nothing else.
func isName(name string) bool {
	if name == "" || name == "." || name == ".." {
		return false
	}
	for i := range len(name) {
		if name[i] == '/' || name[i] == 0 {
			return false
		}
	}
	return true
}

// repeat makes a call that may be repeated, again and again while the connection
// is lost.
func repeat[R any](ctx context.Context, c *Client, call func(context.Context) (R, error)) (R, error) {
	ctx, done := c.life.within(ctx)
	defer done()
	var connection link
	for {
		response, err := call(ctx)
		if err == nil {
			return response, nil
		}
		if err := connection.again(ctx, err); err != nil {
			return response, err
		}
	}
}

// again waits before another attempt after err, or returns what is to be failed
// with.
func (l *link) again(ctx context.Context, err error) error {
	if err := answered(ctx, err); ctx.Err() != nil {
		return err
	}
	if err := l.retry(ctx, FromRPC(err)); err != nil {
		return answered(ctx, err)
	}
	return nil
}

// answered is what a call fails with whose stub returned err.
func answered(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("failed before the server had answered: %w", context.Cause(ctx))
	}
	return FromRPC(err)
}
