package testproc

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

func init() {
	register("flood", flood)
	register("echo", echo)
	register("never-read", neverRead)
	register("close-stdout", closeStdout)
	register("hold-pipes", holdPipes)
	register("hold-pipes-child", holdPipesChild)
}

// flood [-bytes N] [-stderr N] [-chunk N] writes N bytes of StdoutPattern to stdout and of
// StderrPattern to stderr, alternating after each chunk.
func flood(args []string) int {
	flags := flag.NewFlagSet("flood", flag.ExitOnError)
	stdout := flags.Uint64("bytes", 0, "bytes on stdout")
	stderr := flags.Uint64("stderr", 0, "bytes on stderr")
	chunk := flags.Uint64("chunk", 64<<10, "bytes of one write")
	_ = flags.Parse(args)
	buf := make([]byte, *chunk)
	for out, err := uint64(0), uint64(0); out < *stdout || err < *stderr; {
		n, wrong := StdoutPattern.emit(os.Stdout, buf, out, *stdout)
		m, wrong2 := StderrPattern.emit(os.Stderr, buf, err, *stderr)
		if wrong != nil || wrong2 != nil {
			return 1
		}
		out, err = out+n, err+m
	}
	return 0
}

// emit writes the next bytes, at most len(buf) and not beyond end.
func (p Pattern) emit(w io.Writer, buf []byte, offset, end uint64) (uint64, error) {
	b := buf[:min(uint64(len(buf)), end-offset)]
	if len(b) == 0 {
		return 0, nil
	}
	p.Fill(b, offset)
	n, err := w.Write(b)
	return uint64(n), err
}

// echo copies stdin to stdout and prints "end of input" on stderr at its end.
func echo([]string) int {
	if _, err := io.Copy(os.Stdout, os.Stdin); err != nil {
		return fail(err)
	}
	fmt.Fprintln(os.Stderr, "end of input")
	return 0
}

// never-read prints "ready" and never reads its stdin.
func neverRead([]string) int {
	fmt.Println("ready")
	return pause()
}

// close-stdout prints "ready", closes stdout and stderr and ends when its stdin does.
func closeStdout([]string) int {
	fmt.Println("ready")
	_ = os.Stdout.Close()
	_ = os.Stderr.Close()
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// hold-pipes FILE starts a child that inherits stdout, prints "parent PID-OF-CHILD" and exits with
// code 3. The child waits until FILE exists, prints "late" and ends. With a second argument
// "setsid" the child leaves the process group.
func holdPipes(args []string) int {
	argv := Argv("hold-pipes-child", args[0], strconv.Itoa(os.Getpid()))
	child := exec.Command(argv[0], argv[1:]...)
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	child.SysProcAttr = &unix.SysProcAttr{Setsid: len(args) > 1 && args[1] == "setsid"}
	if err := child.Start(); err != nil {
		return fail(err)
	}
	fmt.Println("parent", child.Process.Pid)
	return 3
}

func holdPipesChild(args []string) int {
	parent, _ := strconv.Atoi(args[1])
	for os.Getppid() == parent || !exists(args[0]) {
		time.Sleep(2 * time.Millisecond)
	}
	fmt.Println("late")
	return 0
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// pause sleeps until a signal ends the program.
func pause() int {
	for {
		_ = unix.Pause()
	}
}
