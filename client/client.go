// Package client runs processes on an execwire server and works with its files.
//
// [Dial] connects to a server over the network. Open of package daemon also runs a
// server inside the program, so that a URL in a configuration selects the machine. Both
// return a [Client]; code that takes an [Environment] works with any of them.
//
// # Processes
//
// A [Command] describes what to run. [Client.Output] runs it and returns its output.
// [Client.Run] works like `ssh host command`: it forwards input, output and signals,
// and returns when the process has closed. [Client.Start] returns a [Process]: any
// number of readers receive its events, and it can be written to, waited for,
// signalled, terminated or detached. [Client.Attach] and [Client.Resume] do the same
// with an existing process, [Client.AttachSession] with all processes of a session.
// [Client.Follow] observes a process and [Client.Wait] waits for a condition.
//
// All of these except the last two own the process. An owned process survives lost
// connections without losing or repeating a byte: the client reconnects, and both sides
// send again what was not acknowledged. A slow reader blocks its process, as with a
// pipe, and nothing else.
//
// # Files
//
// [FileClient.Stat], [FileClient.ReadDir] and the other file methods mirror package os, for
// paths on the server. [FileClient.Upload] and [FileClient.Download] transfer content of any
// size and resume after a lost connection. [FileClient.Push] and [FileClient.Pull] copy files
// and directories.
//
// # Ports
//
// [Client.ListPorts] and [Client.WatchPorts] find the TCP ports on which processes
// listen, and [Client.DialPort] connects to them. [Client.ListenPort] opens a port there whose
// connections arrive here.
//
// [Client.WithSandbox] confines processes and file calls; [Sandbox] builds common
// policies.
//
// # Lost connections
//
// Read-only and idempotent calls are retried for 75 seconds when the connection is lost
// before the answer. The following are sent only once: [FileClient.Mkdir],
// [FileClient.Symlink], [FileClient.Rename], [FileClient.RenameNew], [FileClient.Copy],
// [FileClient.Remove], [Client.Signal], [Client.StartDetached] and [Client.CloseSession].
// When the connection is lost they fail with a [*NotDoneError] or an [*UnknownError],
// which says whether the call was carried out. Both wrap the [*Error].
//
// # Errors
//
// An error that the server returns is an [*Error], over every transport: branch on its
// Reason, or use errors.Is with fs.ErrNotExist and the like. The end of a process,
// however it ended, is not an error, except for Output, which returns an [*ExitError].
// A process that cannot be resumed is a [*LostError]. After Close, every call fails
// with [ErrClosed]; once the connection is permanently lost, with a
// [*ConnectionLostError]. Both also end pending calls.
//
// # Memory
//
// Memory is bounded: a Process receives at most the window of the server ahead of its
// readers, and fails beyond [MaxUnreadBytes]; it keeps [DefaultKeepBytes] for late
// readers, and collects at most [MaxOutputBytes]. Run keeps no output.
//
// Everything else that the server offers is available through the generated stubs, see
// [Client.Processes], [Client.Sessions] and [Client.Files]; [FromRPC] restores the
// typed errors of their calls.
package client

import (
	"io"
	"sync"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Client is a connection to one server, and the [Environment] there. It may be used
// concurrently.
type Client struct {
	FileClient

	processes execwirev1.ProcessServiceClient
	sessions  execwirev1.SessionServiceClient
	environ   execwirev1.EnvironmentServiceClient
	channel   lifetimeConn // used by the stubs
	// owned is what Close closes; nil when the channel belongs to the caller.
	owned     io.Closer
	closeOnce sync.Once
}

// New returns a client that uses conn. The caller owns conn: Close does nothing. New
// never blocks.
func New(conn grpc.ClientConnInterface) *Client { return NewOwning(conn, nil) }

// NewOwning returns a client that uses conn and whose Close closes owned: the
// connection, or the server behind it. It never blocks.
func NewOwning(conn grpc.ClientConnInterface, owned io.Closer) *Client {
	life := newLifetime()
	_, life.reportsPeer = conn.(*grpc.ClientConn)
	return newClient(lifetimeConn{ClientConnInterface: conn, life: life}, owned)
}

func newClient(channel lifetimeConn, owned io.Closer) *Client {
	return &Client{
		FileClient: FileClient{files: execwirev1.NewFileSystemServiceClient(channel), life: channel.life},

		channel:   channel,
		owned:     owned,
		processes: execwirev1.NewProcessServiceClient(channel),
		sessions:  execwirev1.NewSessionServiceClient(channel),
		environ:   execwirev1.NewEnvironmentServiceClient(channel),
	}
}

// Close releases the connection that Dial made, or the closer given to NewOwning, and
// blocks until it is closed. Pending and later calls fail with [ErrClosed]. The server
// loses the owner of their processes and terminates them after their grace period.
// Uploads in progress are aborted on the server first, except those with an ID, see
// [UploadOptions]; Close waits for that, for a reader that does not return, and for the
// server to receive the last acknowledgements of processes that have closed, at most one
// second. Connections to ports are reset. Closing again, or closing a client made by New,
// does nothing.
func (c *Client) Close() error {
	if c.owned == nil {
		return nil
	}
	var err error
	c.closeOnce.Do(func() {
		c.life.close()
		c.life.finishing.wait(finishTimeout)
		err = c.owned.Close()
		c.life.background.Wait()
	})
	return err
}

// Processes returns the generated stub of the process service. Its errors are gRPC
// statuses; [FromRPC] and [Reason] decode them.
func (c *Client) Processes() execwirev1.ProcessServiceClient { return c.processes }

// Sessions returns the generated stub of the session service, to list, grant and close
// sessions; [Client.AttachSession] attaches. Its errors are those of Processes.
func (c *Client) Sessions() execwirev1.SessionServiceClient { return c.sessions }

// Files returns the generated stub of the file system service. Its errors are
// those of Processes.
func (c *Client) Files() execwirev1.FileSystemServiceClient { return c.files }

// Conn returns the connection for generated clients of further services. Its errors are
// those of Processes.
func (c *Client) Conn() grpc.ClientConnInterface { return c.channel }

// Admin returns the generated stub of the admin service, which operates the server. Its
// errors are those of Processes.
func (c *Client) Admin() execwirev1.AdminServiceClient {
	return execwirev1.NewAdminServiceClient(c.channel)
}

// HTTP returns the generated stub of the HTTP service, which makes requests from the
// server's machine. Its errors are those of Processes.
func (c *Client) HTTP() execwirev1.HttpServiceClient {
	return execwirev1.NewHttpServiceClient(c.channel)
}
