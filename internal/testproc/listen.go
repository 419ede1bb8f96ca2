package testproc

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

func init() {
	Register("listen", listen)
	Register("listen-child", listenChild)
}

// listen ADDRESS listens on a TCP address, prints "listening" and ends when its stdin does.
func listen(args []string) int {
	listener, err := net.Listen("tcp", args[0])
	if err != nil {
		return fail(err)
	}
	defer func() { _ = listener.Close() }()
	fmt.Println("listening")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// listen-child ADDRESS runs listen as a child in a session of its own.
func listenChild(args []string) int {
	argv := Argv("listen", args[0])
	child := exec.Command(argv[0], argv[1:]...)
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	child.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := child.Run(); err != nil {
		return fail(err)
	}
	return 0
}
