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

// Worker is a sandboxed process of this program's executable, connected by two sockets:
// its standard input and output. All methods may be called concurrently.
type Worker struct {
	input, output net.Conn
	report        Report
	usage         *Usage
	done          chan struct{}

	mu         sync.Mutex
	pid        int    // process and process group; 0 once it has ended; guarded by mu
	stderrTail []byte // guarded by mu
}

// Report describes what is enforced on the worker.
func (w *Worker) Report() Report { return w.report }

// WorkerStopTimeout is how long a worker may take to exit after its connections were
// closed. Then it is killed.
const WorkerStopTimeout = 2 * time.Second

// StartWorker starts this program's executable in the sandbox, with the given arguments
// (argv[0] first) and environment. The worker serves its connections and exits when
// they are closed. The plan need not grant access to the executable, but to the
// libraries that it loads; see [Plan.WithProgram]. StartWorker blocks until the
// executable was executed inside the sandbox, or ctx ends. Its errors are those of
// [Confinement.Start].
//
// The worker stays in the session of this process, so that it is not taken for an
// orphan, and gives up the terminal. The caller closes it.
func (c *Confinement) StartWorker(ctx context.Context, argv, env []string) (*Worker, error) {
	image, err := unix.Open("/proc/self/exe", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, failed(NotStarted, "", "this program's own file cannot be opened", err)
	}
	defer unix.Close(image)
	input, childInput, err := SocketPair()
	if err != nil {
		return nil, failed(NotStarted, "", "the sockets of a worker cannot be created", err)
	}
	defer unix.Close(childInput)
	output, childOutput, err := SocketPair()
	if err != nil {
		_ = input.Close()
		return nil, failed(NotStarted, "", "the sockets of a worker cannot be created", err)
	}
	defer unix.Close(childOutput)
	w := &Worker{input: input, output: output, report: c.Report(), done: make(chan struct{})}
	stderr, stderrEnd, err := pipe("stderr")
	if err != nil {
		w.disconnect()
		return nil, failed(NotStarted, "", "the pipe of a worker cannot be created", err)
	}
	defer func() {
		if stderrEnd >= 0 {
			_ = unix.Close(stderrEnd)
		}
	}()
	w.usage, err = c.Start(ctx, Program{
		Path: argv[0], Image: image, SealProc: true, Argv: argv, Env: env, Dir: "/",
		Files: []int{childInput, childOutput, stderrEnd}, Terminal: -1,
	}, func(p Program) (err error) {
		w.pid, err = forkExec(p)
		return err
	})
	if err != nil {
		w.end()
		w.disconnect()
		_ = stderr.Close()
		return nil, err
	}
	_ = unix.Close(stderrEnd)
	stderrEnd = -1
	go w.wait(stderr)
	return w, nil
}

// SocketPair returns a connection and the descriptor of its other end, for another process.
func SocketPair() (net.Conn, int, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, -1, err
	}
	file := os.NewFile(uintptr(pair[0]), "worker")
	conn, err := net.FileConn(file)
	_ = file.Close()
	if err != nil {
		_ = unix.Close(pair[1])
		return nil, -1, err
	}
	return conn, pair[1], nil
}

// Input returns the connection to the worker's standard input. It is bidirectional.
func (w *Worker) Input() net.Conn { return w.input }

// Output returns the connection to the worker's standard output. It is bidirectional.
func (w *Worker) Output() net.Conn { return w.output }

func (w *Worker) disconnect() { _, _ = w.input.Close(), w.output.Close() }

// Done returns a channel that is closed when the worker has ended.
func (w *Worker) Done() <-chan struct{} { return w.done }

// StderrTail returns the last 4 KiB of the worker's standard error.
func (w *Worker) StderrTail() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return sanitize(string(w.stderrTail))
}

// Close closes the connections and waits until the worker has ended. After
// [WorkerStopTimeout] it kills the worker. It may be called more than once.
func (w *Worker) Close() {
	w.disconnect()
	timer := time.NewTimer(WorkerStopTimeout)
	defer timer.Stop()
	select {
	case <-w.done:
	case <-timer.C:
		w.Kill()
		<-w.done
	}
}

// Kill kills the worker without waiting for its end.
func (w *Worker) Kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pid > 0 {
		_ = unix.Kill(-w.pid, unix.SIGKILL)
	}
}

// wait reads the worker's standard error until all its processes have closed it, and
// releases everything.
func (w *Worker) wait(stderr *os.File) {
	defer close(w.done)
	for piece := make([]byte, 1024); ; {
		n, err := stderr.Read(piece)
		w.mu.Lock()
		w.stderrTail = append(w.stderrTail, piece[:n]...)
		w.stderrTail = w.stderrTail[max(0, len(w.stderrTail)-maxMessageBytes):]
		w.mu.Unlock()
		if err != nil {
			break
		}
	}
	_ = stderr.Close()
	w.end()
	w.disconnect()
	w.usage.Release()
}

// end kills and reaps the worker. Afterwards the number of its process group may be
// reused.
func (w *Worker) end() {
	w.mu.Lock()
	group := w.pid
	w.pid = 0
	w.mu.Unlock()
	killGroup(group)
}

// WorkerConns returns the connections of a worker, in the worker: its standard input
// and output, which are then replaced by /dev/null. It takes the files of package os, which
// are never garbage: a file of its own would close its descriptor when it is collected.
func WorkerConns() (input, output net.Conn, err error) {
	if input, err = net.FileConn(os.Stdin); err != nil {
		return nil, nil, err
	}
	if output, err = net.FileConn(os.Stdout); err != nil {
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

// leaveTerminal gives up the controlling terminal, if there is one.
func leaveTerminal() {
	terminal, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return // there is none
	}
	_ = unix.IoctlSetInt(terminal, unix.TIOCNOTTY, 0)
	_ = unix.Close(terminal)
}
