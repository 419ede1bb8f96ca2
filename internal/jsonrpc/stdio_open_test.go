package jsonrpc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// ends are two connected files without O_NONBLOCK, as programs inherit them, and
// their kind.
type ends struct {
	name        string
	read, write *os.File
}

func makeEnds(t *testing.T) []ends {
	t.Helper()
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	socket, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	master, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	all := []ends{
		{"pipe", os.NewFile(uintptr(pipe[0]), "r"), os.NewFile(uintptr(pipe[1]), "w")},
		{"socket", os.NewFile(uintptr(socket[0]), "r"), os.NewFile(uintptr(socket[1]), "w")},
		{"terminal", terminal, master},
	}
	t.Cleanup(func() {
		for _, e := range all {
			e.read.Close()
			e.write.Close()
		}
	})
	return all
}

func blocking(t *testing.T, file *os.File) bool {
	t.Helper()
	flags, err := unix.FcntlInt(file.Fd(), unix.F_GETFL, 0)
	if err != nil {
		t.Fatal(err)
	}
	return flags&unix.O_NONBLOCK == 0
}

func TestOpenAgain_Close_UnblocksRead(t *testing.T) {
	for _, e := range makeEnds(t) {
		in, err := openAgain(e.read, unix.O_RDONLY)
		if err != nil {
			t.Fatalf("%s: %v", e.name, err)
		}
		first := make(chan struct{})
		var reader sync.WaitGroup
		reader.Go(func() {
			got := make([]byte, 10)
			if n, err := in.Read(got); string(got[:n]) != "a\n" || err != nil {
				t.Errorf("%s: %q, %v", e.name, got[:n], err)
			}
			close(first)
			if _, err := in.Read(got); !errors.Is(err, os.ErrClosed) {
				t.Errorf("%s: the unblocked read returned %v", e.name, err)
			}
		})
		if _, err := e.write.WriteString("a\n"); err != nil {
			t.Errorf("%s: %v", e.name, err)
		}
		<-first
		if err := in.Close(); err != nil {
			t.Errorf("%s: %v", e.name, err)
		}
		reader.Wait()
		_ = in.Close()
		if !blocking(t, e.read) {
			t.Errorf("%s: the shared file is non-blocking now", e.name)
		}
	}
}

func TestOpenAgain_Close_UnblocksWrite(t *testing.T) {
	for _, e := range makeEnds(t) {
		end := e.write
		if e.name == "terminal" {
			end = e.read // the master cannot be the standard output
		}
		out, err := openAgain(end, unix.O_WRONLY)
		if err != nil {
			t.Fatalf("%s: %v", e.name, err)
		}
		var writer sync.WaitGroup
		begun := make(chan struct{})
		writer.Go(func() {
			close(begun)
			if n, err := out.Write(make([]byte, 16<<20)); !errors.Is(err, os.ErrClosed) {
				t.Errorf("%s: %d bytes were written before %v", e.name, n, err)
			}
		})
		<-begun
		if err := out.Close(); err != nil {
			t.Errorf("%s: %v", e.name, err)
		}
		writer.Wait()
		if !blocking(t, end) {
			t.Errorf("%s: the shared file is non-blocking now", e.name)
		}
	}
}

func TestOpenAgain_File(t *testing.T) {
	name := t.TempDir() + "/file"
	for _, e := range []struct {
		name string
		text string
	}{{name, "line\n"}, {os.DevNull, ""}} {
		out, err := os.OpenFile(e.name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := out.WriteString(e.text); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		again, err := openAgain(out, unix.O_RDONLY)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(again); string(got) != e.text || err != nil {
			t.Errorf("%s: %q, %v", e.name, got, err)
		}
		if err := errors.Join(again.Close(), out.Close()); err != nil {
			t.Errorf("%s: %v", e.name, err)
		}
	}
}

func TestOpenAgain_ClosedFile_Fails(t *testing.T) {
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	file.Close()
	if again, err := openAgain(file, unix.O_RDONLY); err == nil {
		t.Errorf("a closed file was opened as %v", again)
	}
}

// echoVariable makes the test binary a program that echoes messages.
const echoVariable = "EXECWIRE_TEST_STDIO_ECHO"

// echo returns the exit code: 0 at the end of the input, 3 if the output is lost.
func echo() int {
	s, err := OpenStdio(StdioOptions{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for {
		message, err := s.Receive()
		if err == nil {
			err = s.Send(message)
		}
		if err == io.EOF {
			if err := s.Close(1000, ""); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 2
			}
			return 0
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			_ = s.Close(1000, "")
			return 3
		}
	}
}

func startEcho(t *testing.T) (program *exec.Cmd, in io.WriteCloser, out io.ReadCloser, stderr *bytes.Buffer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program = exec.CommandContext(t.Context(), self)
	program.Env = append(os.Environ(), echoVariable+"=1")
	stderr = new(bytes.Buffer)
	program.Stderr = stderr
	in, errIn := program.StdinPipe()
	out, errOut := program.StdoutPipe()
	if err := errors.Join(errIn, errOut, program.Start()); err != nil {
		t.Fatal(err)
	}
	return program, in, out, stderr
}

func TestOpenStdio(t *testing.T) {
	program, in, out, stderr := startEcho(t)
	lines := bufio.NewReader(out)
	for _, line := range []string{"a", "", "b", strings.Repeat("long", 100_000)} {
		var writer sync.WaitGroup
		writer.Go(func() {
			if _, err := io.WriteString(in, line+"\r\n"); err != nil {
				t.Errorf("failed to write: %v", err)
			}
		})
		if line != "" {
			if got, err := lines.ReadString('\n'); got != line+"\n" || err != nil {
				t.Errorf("%.20q was echoed as %.20q, %v", line, got, err)
			}
		}
		writer.Wait()
	}
	if _, err := io.WriteString(in, "last"); err != nil {
		t.Error(err)
	}
	in.Close()
	if rest, err := io.ReadAll(lines); string(rest) != "last\n" || err != nil {
		t.Errorf("the rest is %q, %v", rest, err)
	}
	if err := program.Wait(); err != nil {
		t.Errorf("%v: %s", err, stderr)
	}
}

// By default, Go ends a program that writes to a closed standard output.
func TestOpenStdio_ReaderGone_ProgramIsNotKilled(t *testing.T) {
	program, in, out, stderr := startEcho(t)
	out.Close()
	var err error
	for err == nil { // until the program has closed its input
		_, err = io.WriteString(in, "a\n")
	}
	_ = program.Wait()
	if got := program.ProcessState.ExitCode(); got != 3 || !strings.Contains(stderr.String(), "standard output was lost: ") {
		t.Errorf("%v: %s", program.ProcessState, stderr)
	}
}

// The closed peer is detected without a write.
func TestListens_PeerCloses_IsFalse(t *testing.T) {
	for _, e := range makeEnds(t) {
		t.Run(e.name, func(t *testing.T) {
			ours, theirs := e.write, e.read
			if e.name == "terminal" { // programs have the other end
				ours, theirs = e.read, e.write
			}
			out, err := openAgain(ours, unix.O_WRONLY)
			if err != nil {
				t.Fatal(err)
			}
			s := NewStdio(io.NopCloser(strings.NewReader("")), out, StdioOptions{})
			if _, err := s.Receive(); err != io.EOF {
				t.Fatal(err)
			}
			if !s.Listens() {
				t.Error("Listens is false after the end of the input")
			}
			if err := theirs.Close(); err != nil {
				t.Fatal(err)
			}
			if s.Listens() {
				t.Error("Listens is true after the peer has closed")
			}
			if err := s.Close(0, ""); err != nil {
				t.Error(err)
			}
		})
	}
	_, out := io.Pipe()
	s := NewStdio(io.NopCloser(strings.NewReader("")), out, StdioOptions{})
	if !s.Listens() {
		t.Error("Listens is false for an output that cannot be polled")
	}
	if err := s.Close(0, ""); err != nil || s.Listens() {
		t.Errorf("Close returned %v, Listens %v", err, s.Listens())
	}
}
