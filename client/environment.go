package client

import (
	"context"
	"io"
	"net"

	"github.com/execwire/execwire/client/internal/portconn"
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

// Ports returns the generated stub of the port service. Its errors are those of Processes.
func (c *Client) Ports() execwirev1.PortServiceClient {
	return execwirev1.NewPortServiceClient(c.channel)
}

// ListPorts returns the TCP ports on which the processes of a session listen, or one of them. It
// blocks until the server has answered, and is retried for 75 seconds after a lost connection;
// errors are [*Error] or wrap the cause of ctx.
func (c *Client) ListPorts(ctx context.Context, request *execwirev1.ListPortsRequest) (*execwirev1.ListPortsResponse, error) {
	return repeatCall(ctx, c.life, c.Ports().ListPorts, request)
}

// WatchPorts calls do for the ports that are open, also if there are none, and then for each change,
// until do returns an error, which is returned. It returns nil when the only process to watch has
// closed. When the connection is lost it fails: what has changed meanwhile is not known. Other
// errors are those of ListPorts.
func (c *Client) WatchPorts(ctx context.Context, request *execwirev1.WatchPortsRequest, do func(*execwirev1.WatchPortsResponse) error) error {
	return receiveAll(ctx, c.Ports().WatchPorts, request, do)
}

// PortAddress is where [Client.DialPort] connects to.
type PortAddress struct {
	// SessionID is the session whose processes listen. Empty: the default session.
	SessionID string
	// Host is a name or an address in the server's network. Empty: the server's loopback.
	Host string
	// Port is the port, 1 to 65535.
	Port uint16
}

// PortConn is a connection to a port, from [Client.DialPort], or one that a [PortListener] has accepted.
// It implements net.Conn, with CloseWrite and SetLinger like net.TCPConn.
type PortConn = portconn.Conn

// PortListener is a port on which the server listens, from [Client.ListenPort]. It implements
// net.Listener; its connections are [*PortConn].
type PortListener = portconn.Listener

// DialPort connects to a TCP port through the server, by default to one on which a process of the
// session listens. It blocks until the connection is established, or ctx is done, which does not
// affect an established one. It must be closed, and does not survive the loss of the connection to
// the server: Read and Write then fail, and never return io.EOF.
//
// Errors are [*Error], for example with ERROR_REASON_PORT_DENIED, or wrap the cause of ctx. Reset and
// refused connections match syscall.ECONNRESET and syscall.ECONNREFUSED.
func (c *Client) DialPort(ctx context.Context, to PortAddress) (*PortConn, error) {
	return openPort(ctx, c.life, func(streaming context.Context, end context.CancelCauseFunc) (*PortConn, error) {
		stream, err := c.Ports().ConnectPort(streaming)
		if err != nil {
			return nil, err
		}
		connect := &execwirev1.PortConnect{SessionId: to.SessionID, Host: to.Host, Port: uint32(to.Port)}
		first, err := firstAnswer(stream, &execwirev1.ConnectPortRequest{Message: &execwirev1.ConnectPortRequest_Connect{Connect: connect}}, "connected")
		if err != nil {
			return nil, err
		}
		remote, err := portconn.ParseAddr(first.GetConnected().GetAddress())
		if err != nil {
			return nil, err
		}
		return portconn.New(streaming, stream, end, FromRPC, portconn.Caller{}, remote, &c.life.background), nil
	})
}

// openPort calls open with a context that ends with the client, and until open has returned with ctx.
// end ends it, and must be called, unless open fails.
func openPort[T any](ctx context.Context, life *lifetime, open func(streaming context.Context, end context.CancelCauseFunc) (T, error)) (none T, _ error) {
	leave, err := life.enter()
	if err != nil {
		return none, err
	}
	defer leave()
	streaming, done := life.within(context.WithoutCancel(ctx))
	streaming, cancel := context.WithCancelCause(streaming)
	end := func(cause error) {
		cancel(cause)
		done()
	}
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	opened, err := open(streaming, end)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		end(err)
		return none, answered(ctx, err)
	}
	return opened, nil
}

// ListenAddress is where [Client.ListenPort] listens.
type ListenAddress struct {
	// SessionID is the session that the port belongs to. Empty: the default session.
	SessionID string
	// Address is an IP address of the server's machine. Empty: 127.0.0.1. "0.0.0.0": all IPv4
	// addresses. "::": all addresses.
	Address string
	// Port is the port. 0: a free one.
	Port uint16
	// ListenerID, chosen by the caller, lets a later call with the same id take over, for example
	// after a lost connection of which the server does not know yet. Empty: none takes over.
	ListenerID string
}

// ListenPort listens on a TCP port of the server's machine. It blocks until the port is open, or ctx is
// done, which does not affect an open one. The listener must be closed, and does not survive the loss of
// the connection to the server: Accept then fails, and so do the connections. A connection that is not
// accepted in time (port_accept_timeout of the server, 10 s) is reset.
//
// Errors are [*Error], for example with ERROR_REASON_PORT_LISTEN_DENIED, or wrap the cause of ctx. A
// port in use matches syscall.EADDRINUSE.
func (c *Client) ListenPort(ctx context.Context, at ListenAddress) (*PortListener, error) {
	return openPort(ctx, c.life, func(streaming context.Context, end context.CancelCauseFunc) (*PortListener, error) {
		arrivals, err := c.Ports().ListenPort(streaming, &execwirev1.ListenPortRequest{
			SessionId: at.SessionID, Address: at.Address, Port: uint32(at.Port), ListenerId: at.ListenerID})
		if err != nil {
			return nil, err
		}
		return portconn.NewListener(streaming, end, arrivals, FromRPC, func(ctx context.Context, connectionID string, local, remote net.Addr) (*PortConn, error) {
			return c.acceptPort(ctx, &execwirev1.PortAccept{SessionId: at.SessionID, ConnectionId: connectionID}, local, remote)
		})
	})
}

// acceptPort accepts a connection. It does not wait for the answer of the server.
func (c *Client) acceptPort(ctx context.Context, accept *execwirev1.PortAccept, local, remote net.Addr) (*PortConn, error) {
	return openPort(ctx, c.life, func(streaming context.Context, end context.CancelCauseFunc) (*PortConn, error) {
		stream, err := c.Ports().ConnectPort(streaming)
		if err != nil {
			return nil, err
		}
		// The error of Send has no cause; Recv returns it.
		_ = stream.Send(&execwirev1.ConnectPortRequest{Message: &execwirev1.ConnectPortRequest_Accept{Accept: accept}})
		return portconn.New(streaming, stream, end, FromRPC, local, remote, &c.life.background), nil
	})
}
