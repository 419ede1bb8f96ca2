package testproc

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

func init() {
	register("listen", listen)
	register("listen-child", listenChild)
	register("listen-toggle", listenToggle)
	register("echo-server", echoServer)
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

// listen-toggle ADDRESS listens on a TCP address after each odd line on stdin, and closes the port
// after each even one.
func listenToggle(args []string) int {
	var listener net.Listener
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if listener != nil {
			_ = listener.Close()
			listener = nil
			continue
		}
		var err error
		if listener, err = net.Listen("tcp", args[0]); err != nil {
			return fail(err)
		}
	}
	return 0
}

// echo-server ADDRESS listens on a TCP address and prints "listening". It sends back what it
// receives on a connection, and resets a connection that begins with "reset\n". It ends when its
// stdin does.
func echoServer(args []string) int {
	listener, err := net.Listen("tcp", args[0])
	if err != nil {
		return fail(err)
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go echoConn(conn.(*net.TCPConn))
		}
	}()
	fmt.Println("listening")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

func echoConn(conn *net.TCPConn) {
	defer func() { _ = conn.Close() }()
	first := make([]byte, len("reset\n"))
	n, _ := io.ReadFull(conn, first)
	if string(first[:n]) == "reset\n" {
		_ = conn.SetLinger(0)
		return
	}
	_, _ = conn.Write(first[:n])
	_, _ = io.Copy(conn, conn)
}
