package client

import (
	"context"
	"io"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Environment is a machine, local or remote, to run processes and access files on.
// [*Client] implements it for every transport; programs accept an Environment so that
// tests can replace it. [Client] documents the methods.
type Environment interface {
	ProcessRunner
	FileSystem

	// Describe returns a description of the machine and the server.
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
	// Attach takes over an existing process.
	Attach(ctx context.Context, process ProcessRef, options StartOptions) (*Process, error)
	// Resume takes over an existing process and blocks until it has closed.
	Resume(ctx context.Context, process ProcessRef, options RunOptions) (Exit, error)
	// Follow observes the output of a process and blocks until it has closed.
	Follow(ctx context.Context, process ProcessRef, options FollowOptions) (Exit, error)
	// Wait blocks until a condition of a process holds.
	Wait(ctx context.Context, request *execwirev1.WaitProcessRequest) (*execwirev1.WaitProcessResponse, error)
}

// FileSystem accesses files by absolute paths of their machine.
type FileSystem interface {
	// ReadFile returns the content of a file.
	ReadFile(ctx context.Context, path string) ([]byte, error)
	// WriteFile replaces the content of a file.
	WriteFile(ctx context.Context, path string, content []byte) error
	// Download writes a file of any size to a writer.
	Download(ctx context.Context, path string, to io.Writer, options DownloadOptions) (Downloaded, error)
	// Upload writes content of any size to a file.
	Upload(ctx context.Context, path string, from io.Reader, options UploadOptions) (Uploaded, error)
	// Push copies a local file or directory to the machine.
	Push(ctx context.Context, local, remote string, options TransferOptions) (Transferred, error)
	// Pull copies a file or directory from the machine.
	Pull(ctx context.Context, remote, local string, options TransferOptions) (Transferred, error)

	// Stat describes a file, following symbolic links.
	Stat(ctx context.Context, path string) (FileInfo, error)
	// Lstat describes a file without following a symbolic link.
	Lstat(ctx context.Context, path string) (FileInfo, error)
	// RealPath resolves symbolic links.
	RealPath(ctx context.Context, path string) (string, error)
	// ReadDir returns the entries of a directory.
	ReadDir(ctx context.Context, path string) ([]DirEntry, error)
	// Walk calls do for everything below a directory.
	Walk(ctx context.Context, path string, options WalkOptions, do func(WalkEntry) error) error
	// Watch calls do for changes below a path.
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
	// RemoveAll removes a file or directory recursively.
	RemoveAll(ctx context.Context, path string) error
}

var _ Environment = (*Client)(nil)

// Describe returns a description of the machine and the server, with the available
// sandboxes. It blocks until the server has answered, and is retried for 75 seconds
// after a lost connection; errors are [*Error] or wrap the cause of ctx. The result
// must not be modified.
func (c *Client) Describe(ctx context.Context) (*execwirev1.GetEnvironmentResponse, error) {
	return repeatCall(ctx, c.life, c.environ.GetEnvironment, &execwirev1.GetEnvironmentRequest{})
}
