package sandbox

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Helper is this program once more, confined, with connections to it as its standard input and its standard output. All
// methods may be called concurrently.
type Helper struct {
	input, output net.Conn
	release       func()
	done          chan struct{}

	mu        sync.Mutex
	pid       int    // guarded by mu; also that of its process group; 0: nothing is left of it
	complaint []byte // guarded by mu
}

// HelperPatience is how long a helper may take to end when its connections are closed, before it is ended by force.
const HelperPatience = 2 * time.Second

// StartHelper starts this program, the very file that runs, with arguments, argv[0] first, and exactly an environment.
// Its main function is to go and serve the connections, and to end when they do. The file itself need not be within what
// the plan grants, but what it loads at its start has to be: a static program loads nothing. It blocks until the program
// was executed inside the sandbox, or ctx is done. The errors are those of [Confinement.Start].
//
// The helper stays in this program's session, so that nobody takes it for an orphan, and gives its terminal up. The caller
// closes it.
func (c *Confinement) StartHelper(ctx context.Context, argv, env []string) (*Helper, error) {
	image, err := unix.Open("/proc/self/exe", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, failed(NotStarted, "", "this program's own file cannot be opened", err)
	}
	defer unix.Close(image)
	input, itsInput, err := connection()
	if err != nil {
		return nil, failed(NotStarted, "", "there is no connection for a helper", err)
	}
	defer unix.Close(itsInput)
	output, itsOutput, err := connection()
	if err != nil {
		_ = input.Close()
		return nil, failed(NotStarted, "", "there is no second connection for a helper", err)
	}
	defer unix.Close(itsOutput)
	h := &Helper{input: input, output: output, done: make(chan struct{})}
	complaints, complaintsEnd, err := pipe("complaints")
	if err != nil {
		h.disconnect()
		return nil, failed(NotStarted, "", "there are no descriptors for a helper", err)
	}
	defer func() {
		if complaintsEnd >= 0 {
			_ = unix.Close(complaintsEnd)
		}
	}()
	h.release, err = c.Start(ctx, Program{
		Path: argv[0], Image: image, SealProc: true, Argv: argv, Env: env, Dir: "/",
		Files: []int{itsInput, itsOutput, complaintsEnd}, Terminal: -1,
	}, func(p Program) (err error) {
		h.pid, err = forkExec(p)
		return err
	})
	if err != nil {
		h.end()
		h.disconnect()
		_ = complaints.Close()
		return nil, err
	}
	_ = unix.Close(complaintsEnd)
	complaintsEnd = -1
	go h.wait(complaints)
	return h, nil
}

// connection makes a pair of connected sockets, the other end of which is for a child.
func connection() (net.Conn, int, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, -1, err
	}
	file := os.NewFile(uintptr(pair[0]), "helper")
	conn, err := net.FileConn(file)
	_ = file.Close()
	if err != nil {
		_ = unix.Close(pair[1])
		return nil, -1, err
	}
	return conn, pair[1], nil
}

// Input is the connection to the helper's standard input, and Output that to its standard output. Each goes both ways.
func (h *Helper) Input() net.Conn { return h.input }

// Output is the connection to the helper's standard output. See [Helper.Input].
func (h *Helper) Output() net.Conn { return h.output }

func (h *Helper) disconnect() { _, _ = h.input.Close(), h.output.Close() }

// Done is closed when nothing is left of the helper.
func (h *Helper) Done() <-chan struct{} { return h.done }

// Complaint is the end of what the helper wrote to its standard error, at most 4 KiB.
func (h *Helper) Complaint() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return clean(string(h.complaint))
}

// Close ends the helper, by force if it does not end by itself, and waits until nothing is left of it: a moment, unless
// it hangs in the system. It may be called more than once.
func (h *Helper) Close() {
	h.disconnect()
	timer := time.NewTimer(HelperPatience)
	defer timer.Stop()
	select {
	case <-h.done:
	case <-timer.C:
		h.Kill()
		<-h.done
	}
}

// Kill ends the helper by force, and does not wait.
func (h *Helper) Kill() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pid > 0 {
		_ = unix.Kill(-h.pid, unix.SIGKILL)
	}
}

// wait reads what the helper complains about, which ends when nobody of it is left who could, and clears up after it.
func (h *Helper) wait(complaints *os.File) {
	defer close(h.done)
	for piece := make([]byte, 1024); ; {
		n, err := complaints.Read(piece)
		h.mu.Lock()
		h.complaint = append(h.complaint, piece[:n]...)
		h.complaint = h.complaint[max(0, len(h.complaint)-maxComplaint):]
		h.mu.Unlock()
		if err != nil {
			break
		}
	}
	_ = complaints.Close()
	h.end()
	h.disconnect()
	h.release()
}

// end ends and reaps all of it. After that nobody signals the group, whose number may become another's.
func (h *Helper) end() {
	h.mu.Lock()
	group := h.pid
	h.pid = 0
	h.mu.Unlock()
	end(group)
}

// HelperConns are the connections that a helper has as its standard input and its standard output. Nobody else may use
// those.
func HelperConns() (input, output net.Conn, err error) {
	if input, err = net.FileConn(os.NewFile(0, "standard input")); err != nil {
		return nil, nil, err
	}
	if output, err = net.FileConn(os.NewFile(1, "standard output")); err != nil {
		return nil, nil, errors.Join(err, input.Close())
	}
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, errors.Join(err, input.Close(), output.Close())
	}
	defer unix.Close(null)
	leaveTerminal()
	return input, output, errors.Join(unix.Dup3(null, 0, 0), unix.Dup3(null, 1, 0))
}

// leaveTerminal gives up the terminal that this program was started at, if it was, so that /dev/tty is nothing.
func leaveTerminal() {
	terminal, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return // there is none
	}
	_ = unix.IoctlSetInt(terminal, unix.TIOCNOTTY, 0)
	_ = unix.Close(terminal)
}
