// Package client runs processes on an execwire server and works on its files.
//
// [Dial] connects to a server over the network; package daemon has Open, which also
// makes one inside the program, so that a URL in a configuration chooses the machine.
// Either way it is a [Client], and what takes an [Environment] works with any.
//
// # Processes
//
// A [Command] says what to run. [Client.Output] runs it and returns what it wrote;
// [Client.Run] is what `ssh host command` is: it passes input, output and signals, and
// returns when the process has closed. [Client.Start] returns a [Process] to talk to:
// its events are pushed to any number of readers, it is written to, waited for,
// signalled, terminated, or given up to go on alone. [Client.Attach] and
// [Client.Resume] do the same with a process that is already there,
// [Client.AttachSession] with all processes of a session at once; [Client.Follow] only
// looks, and [Client.Wait] waits.
//
// A process that has an owner, which all of these but the last two are, survives lost
// connections without losing or repeating a byte: the connection is made again, and
// what either side had not yet acknowledged is sent once more. A reader that is slow
// holds up its process, as with a pipe, and nothing else.
//
// # Files
//
// [Client.Stat], [Client.ReadDir] and the other methods about files are those of
// package os, for paths of the server. [Client.Upload] and [Client.Download] pass
// content of any size and go on where a lost connection left them; [Client.Push]
// and [Client.Pull] copy files and directories there and back.
//
// [Client.WithSandbox] confines what is run and done; [Sandbox] writes the policies
// that most want.
//
// # Lost connections
//
// What only looks, and what does no harm when it is done twice, is asked again for a
// minute and a quarter when the connection is lost before it was answered. Sent only
// once are [Client.Mkdir], [Client.Symlink], [Client.Rename], [Client.RenameNew],
// [Client.Copy], [Client.Remove], [Client.Signal], [Client.StartDetached] and
// [Client.CloseSession]: they fail with an [*Error] whose Code is codes.Unavailable
// then, and whether they were carried out is not known.
//
// # Errors
//
// What a server refuses is an [*Error], the same over every kind of connection: branch
// on its Reason, or ask errors.Is for fs.ErrNotExist and the like. That a process
// ended, however it did, is no error but of Output, whose [*ExitError] says so. A
// process that could not be resumed is a [*LostError]. Once a client was closed every
// call fails with [ErrClosed], and with a [*ConnectionLostError] once its connection is
// gone for good, those that were waiting included.
//
// # Memory
//
// What a program holds is bounded: a Process receives at most [MaxUntakenBytes] ahead
// of its readers, keeps [DefaultKeepBytes] for late ones, and what is gathered in
// memory ends at [MaxOutputBytes]. Run holds no output at all.
//
// Everything else the server offers is reached through the generated stubs, see
// [Client.Processes], [Client.Sessions] and [Client.Files]; [FromRPC] restores the
// typed errors of their calls.
package client

import (
	"io"
	"sync"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// Client talks to one server, and is the [Environment] there. It may be used
// concurrently.
type Client struct {
	processes execwirev1.ProcessServiceClient
	sessions  execwirev1.SessionServiceClient
	files     execwirev1.FileSystemServiceClient
	environ   execwirev1.EnvironmentServiceClient
	channel   gate // of the stubs
	life      *lifetime
	// owned is what Close closes; nil when the channel belongs to the caller.
	owned     io.Closer
	closeOnce sync.Once
}

// New returns a client that uses conn. The caller keeps conn: Close does not
// close it, and does nothing. It never blocks.
func New(conn grpc.ClientConnInterface) *Client { return newClient(conn, newLifetime(), nil) }

// NewOwning returns a client that uses conn and whose Close closes owned: the
// connection, or the server behind it. It never blocks.
func NewOwning(conn grpc.ClientConnInterface, owned io.Closer) *Client {
	return newClient(conn, newLifetime(), owned)
}

func newClient(conn grpc.ClientConnInterface, life *lifetime, owned io.Closer) *Client {
	channel := gate{ClientConnInterface: conn, life: life}
	return &Client{
		channel:   channel,
		life:      life,
		owned:     owned,
		processes: execwirev1.NewProcessServiceClient(channel),
		sessions:  execwirev1.NewSessionServiceClient(channel),
		files:     execwirev1.NewFileSystemServiceClient(channel),
		environ:   execwirev1.NewEnvironmentServiceClient(channel),
	}
}

// Close releases the connection that Dial made, or what NewOwning was given, and
// blocks until that is closed. Calls that are going on fail with [ErrClosed], and
// so does every later one; the processes they follow are lost to the server, which
// terminates them after their grace. Uploads that are going on are aborted on the
// server first, but those with an ID, see [UploadOptions]; that, and a reader that
// does not return, is waited for a second at most. Closing a second time, or a client
// made by New, does nothing.
func (c *Client) Close() error {
	if c.owned == nil {
		return nil
	}
	var err error
	c.closeOnce.Do(func() {
		c.life.end(ErrClosed)
		c.life.uploads.wait(dropWithin)
		err = c.owned.Close()
	})
	return err
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
