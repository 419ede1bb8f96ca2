//go:build linux

package handover

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// CheckFlag is the flag with which a program only checks whether it could go on with the
// state of a descriptor, the value of the flag. Programs from before upgrades refuse it.
const CheckFlag = "handover-check"

// Report is what a program says of itself in a check.
type Report struct {
	// Version is the version of the program.
	Version string `json:"version"`
	// Writes is the version of the state that it writes.
	Writes uint32 `json:"writes"`
}

const (
	// checkFD is the descriptor of the state in a check.
	checkFD = 3
	// maxReport bounds what a program says in a check, in bytes.
	maxReport = 64 << 10
)

// CheckError is why a program cannot replace this one.
type CheckError struct {
	// Path is the program.
	Path string
	// Problem is what is wrong, and Fix what to do about it; it may be empty.
	Problem, Fix string
}

func (e *CheckError) Error() string {
	text := fmt.Sprintf("%s cannot replace this server: %s", e.Path, e.Problem)
	if e.Fix != "" {
		text += "; " + e.Fix
	}
	return text
}

// OpenProgram opens a binary that may replace this program: an absolute path of a regular
// file that only its owner can write, who is root or the user of this program. The error is
// a [*CheckError].
func OpenProgram(path string) (*os.File, error) {
	refuse := func(problem, fix string) (*os.File, error) {
		return nil, &CheckError{Path: path, Problem: problem, Fix: fix}
	}
	if !strings.HasPrefix(path, "/") {
		return refuse("the path is not absolute", "write the whole path")
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return refuse(err.Error(), "name a binary of execwire")
	}
	var stat unix.Stat_t
	err = unix.Fstat(fd, &stat)
	problem := ""
	switch {
	case err != nil:
		problem = err.Error()
	case stat.Mode&unix.S_IFMT != unix.S_IFREG:
		problem = "it is no regular file"
	case stat.Uid != 0 && int(stat.Uid) != os.Geteuid():
		problem = fmt.Sprintf("it belongs to the user %d, neither root nor the one of the server", stat.Uid)
	case stat.Mode&0o022 != 0:
		problem = "users other than its owner can write it"
	default:
		return os.NewFile(uintptr(fd), path), nil
	}
	_ = unix.Close(fd)
	return refuse(problem, "")
}

// Check runs the program with [CheckFlag] for a state of [Seal], until ctx ends, and
// returns what it says. The error is a [*CheckError] if the program refuses.
func Check(ctx context.Context, program Program, state *os.File) (Report, error) {
	refused := func(problem string) (Report, error) {
		return Report{}, &CheckError{Path: program.File.Name(), Problem: problem}
	}
	code, answer, problem, err := run(ctx, program, state)
	var report Report
	switch said := lastLine(problem); {
	case err != nil:
		return refused(err.Error())
	case code != 0 && strings.Contains(said, CheckFlag):
		return refused("it is from before upgrades: restart the server to run it")
	case code != 0 && said != "":
		return refused(strings.TrimPrefix(said, "execwire: "))
	case code != 0 || json.Unmarshal(answer, &report) != nil || report.Version == "":
		return refused(fmt.Sprintf("it is no server of execwire: it exited with code %d and does not say that it can go on", code))
	}
	return report, nil
}

// Accept answers a check: this program, of the version, can go on.
func Accept(w io.Writer, version string) error {
	return json.NewEncoder(w).Encode(Report{Version: version, Writes: Version})
}

// run runs the program, and returns its exit code and what it has written.
func run(ctx context.Context, program Program, state *os.File) (code int, out, diagnostics []byte, err error) {
	var files [4]*os.File // of both pipes: read, write
	defer func() {
		for _, file := range files {
			if file != nil {
				_ = file.Close()
			}
		}
	}()
	for i := 0; i < len(files); i += 2 {
		if files[i], files[i+1], err = os.Pipe(); err != nil {
			return 0, nil, nil, err
		}
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, nil, nil, err
	}
	defer func() { _ = null.Close() }()
	args := append(append([]string{}, program.Args...), "--"+CheckFlag+"="+strconv.Itoa(checkFD))
	pidfd := -1
	pid, err := syscall.ForkExec("/proc/self/fd/"+strconv.Itoa(int(program.File.Fd())), args, &syscall.ProcAttr{
		Env:   WithoutState(program.Environ),
		Files: []uintptr{null.Fd(), files[1].Fd(), files[3].Fd(), state.Fd()},
		Sys:   &syscall.SysProcAttr{Setpgid: true, PidFD: &pidfd},
	})
	if err != nil {
		return 0, nil, nil, fmt.Errorf("it cannot be executed: %w", err)
	}
	defer func() { _ = unix.Close(pidfd) }()
	stop := context.AfterFunc(ctx, func() {
		_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)
		for _, file := range []*os.File{files[0], files[2]} { // a descendant may have them open
			_ = file.SetReadDeadline(time.Unix(1, 0))
		}
	})
	defer stop()
	for i := 1; i < len(files); i += 2 {
		_ = files[i].Close()
		files[i] = nil
	}
	said := make(chan []byte, 1)
	go func() { said <- read(files[2]) }()
	out, diagnostics = read(files[0]), <-said
	var status unix.WaitStatus
	for {
		if _, err = unix.Wait4(pid, &status, 0, nil); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	switch {
	case err != nil:
		return 0, nil, nil, err
	case ctx.Err() != nil:
		return 0, nil, nil, context.Cause(ctx)
	case status.Signaled():
		return 0, nil, nil, fmt.Errorf("it was killed by a signal (%v)", status.Signal())
	}
	return status.ExitStatus(), out, diagnostics, nil
}

// read reads to the end of a pipe, and keeps the first bytes.
func read(pipe *os.File) []byte {
	data, _ := io.ReadAll(io.LimitReader(pipe, maxReport)) // what is there counts
	_, _ = io.Copy(io.Discard, pipe)
	return data
}

// lastLine returns the last line of the errors of a program that does not begin with a
// space, as hints do.
func lastLine(text []byte) (last string) {
	for line := range bytes.Lines(text) {
		if trimmed := strings.TrimRight(string(line), "\n"); trimmed != "" && !strings.HasPrefix(trimmed, " ") {
			last = trimmed
		}
	}
	return last
}
