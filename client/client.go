// Package client runs processes on an execwire server and works on its files.
//
// [Dial] connects to a server over the network, [New] wraps a channel that is
// already there, in-process ones included. [Client.Run] is what `ssh host
// command` is: it starts a process, passes its input and output, and survives
// lost connections without losing or repeating a byte. [Client.Resume] does the
// same with a process that is already there, [Client.AttachSession] with all
// processes of a session at once; [Client.Follow] only looks, and [Client.Wait]
// waits.
//
// [Client.Stat], [Client.ReadDir] and the other methods about files are those of
// package os, for paths of the server. [Client.Upload] and [Client.Download] pass
// content of any size and go on where a lost connection left them; [Client.Push]
// and [Client.Pull] copy files and directories there and back.
//
// [Client.WithSandbox] confines what is run and done; [Sandbox] writes the policies
// that most want.
//
// Everything else the server offers is reached through the generated stubs, see
// [Client.Processes], [Client.Sessions] and [Client.Files]; [FromRPC] restores the
// typed errors of their calls.
package client

import (
	"io"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Client talks to one server. It may be used concurrently.
type Client struct {
	processes execwirev1.ProcessServiceClient
	sessions  execwirev1.SessionServiceClient
	files     execwirev1.FileSystemServiceClient
	environ   execwirev1.EnvironmentServiceClient
	channel   grpc.ClientConnInterface // of the stubs
	// conn is what Close closes; nil when the channel belongs to the caller.
	conn io.Closer
}

// New returns a client that uses conn. The caller keeps conn: Close does not
// close it. It never blocks.
func New(conn grpc.ClientConnInterface) *Client {
	return &Client{
		channel:   conn,
		processes: execwirev1.NewProcessServiceClient(conn),
		sessions:  execwirev1.NewSessionServiceClient(conn),
		files:     execwirev1.NewFileSystemServiceClient(conn),
		environ:   execwirev1.NewEnvironmentServiceClient(conn),
	}
}

// Close releases the connection that Dial made. Runs that are going on see it
// as a lost connection. Closing a client made by New does nothing.
func (c *Client) Close() error {
	if c.conn == nil {
		return nil
	}
	return c.conn.Close()
}

// Processes returns the generated stub of the process service. Its errors are
// gRPC statuses; [FromRPC] and [Reason] read them.
func (c *Client) Processes() execwirev1.ProcessServiceClient { return c.processes }

// Sessions returns the generated stub of the session service, for lists, grants
// and the end of sessions; [Client.AttachSession] attaches. Its errors are those
// of Processes.
func (c *Client) Sessions() execwirev1.SessionServiceClient { return c.sessions }

// Files returns the generated stub of the file system service. Its errors are
// those of Processes.
func (c *Client) Files() execwirev1.FileSystemServiceClient { return c.files }

// Environment returns the generated stub of the environment service, which tells
// what machine and what server this is, and what sandboxes work there. Its errors
// are those of Processes.
func (c *Client) Environment() execwirev1.EnvironmentServiceClient { return c.environ }
