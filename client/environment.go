package client

import (
	"context"
	"io"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Environment is a machine to run processes on and to work on the files of, local
// or remote: which one, a URL in a configuration says. [*Client] is one, whatever
// it is connected by; programs take an Environment so that tests can give them
// another. What each method does is said there.
type Environment interface {
	ProcessRunner
	FileSystem

	// Describe tells what machine and what server this is.
	Describe(ctx context.Context) (*execwirev1.GetEnvironmentResponse, error)
	// Close ends the use of the environment.
	Close() error
}

// ProcessRunner runs processes.
type ProcessRunner interface {
	// Run starts a process, passes its input and output, and blocks until it has
	// closed.
	Run(ctx context.Context, options RunOptions) (Exit, error)
	// Output runs a command and returns what it wrote.
	Output(ctx context.Context, command Command) ([]byte, error)
	// Start starts a process and returns it once it runs.
	Start(ctx context.Context, options StartOptions) (*Process, error)
	// Attach takes up a process that is already there.
	Attach(ctx context.Context, process ProcessRef, options StartOptions) (*Process, error)
	// Resume takes up a process that is already there and blocks until it has
	// closed.
	Resume(ctx context.Context, process ProcessRef, options RunOptions) (Exit, error)
	// Follow looks on as a process writes, and blocks until it has closed.
	Follow(ctx context.Context, process ProcessRef, options FollowOptions) (Exit, error)
	// Wait blocks until something is true of a process.
	Wait(ctx context.Context, request *execwirev1.WaitProcessRequest) (*execwirev1.WaitProcessResponse, error)
}

// FileSystem works on files, by absolute paths of the machine they are on.
type FileSystem interface {
	// ReadFile returns the content of a file.
	ReadFile(ctx context.Context, path string) ([]byte, error)
	// WriteFile replaces the content of a file.
	WriteFile(ctx context.Context, path string, content []byte) error
	// Download passes content of any size on.
	Download(ctx context.Context, path string, to io.Writer, options DownloadOptions) (Downloaded, error)
	// Upload gives a file content of any size.
	Upload(ctx context.Context, path string, from io.Reader, options UploadOptions) (Uploaded, error)
	// Push copies a local file or directory there.
	Push(ctx context.Context, local, remote string, options TransferOptions) (Transferred, error)
	// Pull copies a file or directory from there.
	Pull(ctx context.Context, remote, local string, options TransferOptions) (Transferred, error)

	// Stat describes what a path leads to.
	Stat(ctx context.Context, path string) (FileInfo, error)
	// Lstat describes the path itself, should it be a link.
	Lstat(ctx context.Context, path string) (FileInfo, error)
	// RealPath returns a path without links.
	RealPath(ctx context.Context, path string) (string, error)
	// ReadDir returns the entries of a directory.
	ReadDir(ctx context.Context, path string) ([]DirEntry, error)
	// Walk calls do with everything below a directory.
	Walk(ctx context.Context, path string, options WalkOptions, do func(WalkEntry) error) error
	// Watch calls do with what changes below a path.
	Watch(ctx context.Context, path string, options WatchOptions, do func(WatchEvent) error) error

	// Mkdir makes a directory.
	Mkdir(ctx context.Context, path string, permissions *uint32) error
	// MkdirAll makes a directory and its missing parents.
	MkdirAll(ctx context.Context, path string, permissions *uint32) error
	// Symlink makes a symbolic link.
	Symlink(ctx context.Context, target, path string) error
	// Rename moves a file or directory.
	Rename(ctx context.Context, source, destination string) error
	// Copy copies a file or directory within the machine.
	Copy(ctx context.Context, source, destination string, recursive bool) (omitted uint64, err error)
	// Remove removes a file or an empty directory.
	Remove(ctx context.Context, path string) error
	// RemoveAll removes a file or directory with all that is in it.
	RemoveAll(ctx context.Context, path string) error
}

var _ Environment = (*Client)(nil)

// Describe tells what machine and what server this is, and what sandboxes work
// there. It blocks until the server has answered, and goes on after a lost
// connection for a minute and a quarter; errors are [*Error] or wrap the cause of
// ctx. What it returns must not be changed.
func (c *Client) Describe(ctx context.Context) (*execwirev1.GetEnvironmentResponse, error) {
	return repeat(ctx, c, func(ctx context.Context) (*execwirev1.GetEnvironmentResponse, error) {
		return c.environ.GetEnvironment(ctx, &execwirev1.GetEnvironmentRequest{})
	})
}
