package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// FileClient accesses the files of a server. It is a part of every [Client].
type FileClient struct {
	files execwirev1.FileSystemServiceClient
	life  *lifetime
}

// FileInfo describes a file.
type FileInfo struct {
	// Metadata is the metadata of the file.
	Metadata *execwirev1.FileMetadata
	// LinkTarget is the target of a symbolic link, as written in it; set by
	// [Client.Lstat] only.
	LinkTarget string
	// SHA256 is the digest of a regular file; set by [Client.StatSHA256] only.
	SHA256 []byte
}

// DirEntry is an entry of a directory.
type DirEntry struct {
	// Name is the name in the bytes of the server. It is never "", "." or "..", and has
	// no slash.
	Name string
	// Type is the type of the entry.
	Type execwirev1.FileType
	// TargetType is Type or, for a symbolic link, the type of its target; unspecified
	// if that does not exist.
	TargetType execwirev1.FileType
}

// The file methods take absolute paths of the server's machine, which need not be
// UTF-8. They block until the server has answered. Mkdir, Remove, Rename, RenameNew,
// Symlink and Copy are sent once; all others are retried for 75 seconds after a lost
// connection. Errors are [*Error], which match fs.ErrNotExist, fs.ErrExist and
// fs.ErrPermission, or wrap the cause of ctx.

// Stat describes a file, following symbolic links.
func (c *FileClient) Stat(ctx context.Context, path string) (FileInfo, error) {
	return c.stat(ctx, path, &execwirev1.GetMetadataRequest{})
}

// Exists reports whether a path exists, following symbolic links.
func (c *FileClient) Exists(ctx context.Context, path string) (bool, error) {
	_, err := c.Stat(ctx, path)
	if Reason(err) == execwirev1.ErrorReason_ERROR_REASON_PATH_NOT_FOUND {
		return false, nil
	}
	return err == nil, err
}

// Edit replaces old in a text file by replacement, atomically, and returns how often. It
// fails with an [*EditError], and changes nothing, if old does not occur, or more than once
// without every; and with CONTENT_NOT_MATCHED if the file was changed meanwhile. The whole
// file is in memory.
func (c *FileClient) Edit(ctx context.Context, path, old, replacement string, every bool) (int, error) {
	content, err := c.ReadFile(ctx, path)
	if err != nil {
		return 0, err
	}
	count := bytes.Count(content, []byte(old))
	if old == "" || count == 0 || count > 1 && !every {
		return 0, &EditError{Path: path, Count: count}
	}
	digest := sha256.Sum256(content)
	edited := bytes.ReplaceAll(content, []byte(old), []byte(replacement))
	_, err = c.Upload(ctx, path, bytes.NewReader(edited), UploadOptions{IfMatchSHA256: digest[:]})
	return count, err
}

// EditError reports that the text to replace is not unique, or not there.
type EditError struct {
	// Path is the file, and Count is how often the text occurs in it.
	Path  string
	Count int
}

func (e *EditError) Error() string {
	return fmt.Sprintf("the text to replace occurs %d times in %s: it must occur once", e.Count, e.Path)
}

// StatSHA256 is Stat with the digest of a regular file.
func (c *FileClient) StatSHA256(ctx context.Context, path string) (FileInfo, error) {
	return c.stat(ctx, path, &execwirev1.GetMetadataRequest{WantSha256: true})
}

// Lstat describes a file without following a symbolic link.
func (c *FileClient) Lstat(ctx context.Context, path string) (FileInfo, error) {
	return c.stat(ctx, path, &execwirev1.GetMetadataRequest{NoFollow: true})
}

func (c *FileClient) stat(ctx context.Context, path string, request *execwirev1.GetMetadataRequest) (FileInfo, error) {
	request.Path, request.RawPath = pathFields(path)
	response, err := repeatCall(ctx, c.life, c.files.GetMetadata, request)
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
func (c *FileClient) ReadDir(ctx context.Context, path string) ([]DirEntry, error) {
	request := &execwirev1.ReadDirectoryRequest{}
	request.Path, request.RawPath = pathFields(path)
	return repeat(ctx, c.life, func(ctx context.Context) (entries []DirEntry, err error) {
		err = receiveAll(ctx, c.files.ReadDirectory, request, func(message *execwirev1.ReadDirectoryResponse) error {
			for _, e := range message.GetEntries() {
				entry := DirEntry{Name: bytesOf(e.GetName(), e.GetRawName()), Type: e.GetType(), TargetType: e.GetTargetType()}
				if !isName(entry.Name) {
					return fmt.Errorf("failed to read directory %s: the server broke the contract: %q is not a valid name", path, entry.Name)
				}
				entries = append(entries, entry)
			}
			return nil
		})
		return entries, err
	})
}

// FileURLOptions are the options of [FileClient.SignFileURL]. The zero value is for
// reading, for 15 minutes.
type FileURLOptions struct {
	// Upload is for a URL that replaces the file, by PUT; otherwise it reads it.
	Upload bool
	// Expiry is how long the URL is valid; 0 is the default of the server, and its
	// signed_url_max_age the most.
	Expiry time.Duration
	// MaxBytes is the largest upload; nil is any.
	MaxBytes *uint64
}

// SignFileURL returns a URL by which anyone can read or replace a file over HTTP, as this
// client may, until it expires. It is relative to the address of the server, and begins
// with "/v1/files/".
func (c *FileClient) SignFileURL(ctx context.Context, path string, options FileURLOptions) (url string, expires time.Time, err error) {
	request := &execwirev1.SignFileURLRequest{Method: execwirev1.FileURLMethod_FILE_URL_METHOD_GET, MaxBytes: options.MaxBytes}
	request.Path, request.RawPath = pathFields(path)
	if options.Upload {
		request.Method = execwirev1.FileURLMethod_FILE_URL_METHOD_PUT
	}
	if options.Expiry != 0 {
		request.Expiry = durationpb.New(options.Expiry)
	}
	response, err := repeatCall(ctx, c.life, c.files.SignFileURL, request)
	return response.GetUrl(), response.GetExpireTime().AsTime(), err
}

// Mkdir makes a directory with the permission bits, of mode 07777; nil is 0777 without
// the umask of the server. The parent must exist, the directory must not.
func (c *FileClient) Mkdir(ctx context.Context, path string, permissions *uint32) error {
	request := &execwirev1.CreateDirectoryRequest{Permissions: permissions}
	request.Path, request.RawPath = pathFields(path)
	_, err := once(ctx, c.life, c.files.CreateDirectory, request)
	return err
}

// MkdirAll is Mkdir that also makes missing parents, with default permissions. It
// succeeds, and changes nothing, if the directory exists.
func (c *FileClient) MkdirAll(ctx context.Context, path string, permissions *uint32) error {
	request := &execwirev1.CreateDirectoryRequest{Recursive: true, Permissions: permissions}
	request.Path, request.RawPath = pathFields(path)
	_, err := repeatCall(ctx, c.life, c.files.CreateDirectory, request)
	return err
}

// MetadataChanges are changes of metadata. The zero value changes nothing.
type MetadataChanges struct {
	// Permissions are the bits of mode 07777; nil leaves them.
	Permissions *uint32
	// ModifyTime is the modification time; zero leaves it.
	ModifyTime time.Time
	// Touch sets the modification and access time to the current one of the server,
	// instead of ModifyTime.
	Touch bool
	// NoSymlinks fails with SYMLINK_REFUSED if any component of the path is a symbolic
	// link; otherwise links are followed.
	NoSymlinks bool
}

// SetMetadata changes the metadata of a file of any type.
func (c *FileClient) SetMetadata(ctx context.Context, path string, changes MetadataChanges) error {
	request := &execwirev1.SetMetadataRequest{Permissions: changes.Permissions, Touch: changes.Touch, NoSymlinks: changes.NoSymlinks}
	request.Path, request.RawPath = pathFields(path)
	if !changes.ModifyTime.IsZero() {
		request.ModifyTime = timestamppb.New(changes.ModifyTime)
	}
	_, err := repeatCall(ctx, c.life, c.files.SetMetadata, request)
	return err
}

// Remove removes a file, a symbolic link or an empty directory.
func (c *FileClient) Remove(ctx context.Context, path string) error {
	request := &execwirev1.RemovePathRequest{}
	request.Path, request.RawPath = pathFields(path)
	_, err := once(ctx, c.life, c.files.RemovePath, request)
	return err
}

// RemoveAll removes a path recursively. It succeeds if the path does not exist, and
// does not follow symbolic links.
func (c *FileClient) RemoveAll(ctx context.Context, path string) error {
	request := &execwirev1.RemovePathRequest{Recursive: true, IgnoreMissing: true}
	request.Path, request.RawPath = pathFields(path)
	_, err := repeatCall(ctx, c.life, c.files.RemovePath, request)
	return err
}

// Rename renames atomically and replaces an existing file, link or empty directory.
// Across file systems it fails with CROSS_DEVICE.
func (c *FileClient) Rename(ctx context.Context, source, destination string) error {
	return c.rename(ctx, source, destination, false)
}

// RenameNew is Rename that fails with PATH_ALREADY_EXISTS if the destination exists.
func (c *FileClient) RenameNew(ctx context.Context, source, destination string) error {
	return c.rename(ctx, source, destination, true)
}

func (c *FileClient) rename(ctx context.Context, source, destination string, noReplace bool) error {
	request := &execwirev1.RenamePathRequest{NoReplace: noReplace}
	request.SourcePath, request.RawSourcePath = pathFields(source)
	request.DestinationPath, request.RawDestinationPath = pathFields(destination)
	_, err := once(ctx, c.life, c.files.RenamePath, request)
	return err
}

// Symlink makes a symbolic link to target. The path must not exist.
func (c *FileClient) Symlink(ctx context.Context, target, path string) error {
	request := &execwirev1.CreateSymlinkRequest{}
	request.Path, request.RawPath = pathFields(path)
	request.Target, request.RawTarget = pathFields(target)
	_, err := once(ctx, c.life, c.files.CreateSymlink, request)
	return err
}

// Copy copies a file or a symbolic link within the server, and with recursive a
// directory. It returns how many FIFOs, sockets and devices of a directory were
// omitted.
func (c *FileClient) Copy(ctx context.Context, source, destination string, recursive bool) (omitted uint64, err error) {
	request := &execwirev1.CopyPathRequest{Recursive: recursive}
	request.SourcePath, request.RawSourcePath = pathFields(source)
	request.DestinationPath, request.RawDestinationPath = pathFields(destination)
	response, err := once(ctx, c.life, c.files.CopyPath, request)
	return response.GetOmittedSpecialFiles(), err
}

// RealPath returns the path with all symbolic links resolved.
func (c *FileClient) RealPath(ctx context.Context, path string) (string, error) {
	request := &execwirev1.CanonicalizePathRequest{}
	request.Path, request.RawPath = pathFields(path)
	response, err := repeatCall(ctx, c.life, c.files.CanonicalizePath, request)
	return bytesOf(response.GetPath(), response.GetRawPath()), err
}

// pathFields returns the two request fields of a path.
func pathFields(path string) (text string, raw []byte) {
	if utf8.ValidString(path) {
		return path, nil
	}
	return "", []byte(path)
}

// bytesOf returns a name in the bytes of the server.
func bytesOf(text string, raw []byte) string {
	if len(raw) > 0 {
		return string(raw)
	}
	return text
}

// isName reports whether name is a valid directory entry.
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
