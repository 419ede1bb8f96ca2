//go:build linux

package sockdiag

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// Listener is a TCP socket that listens in the network namespace of this program.
type Listener struct {
	// Addr is what it is bound to. A mapped IPv4 address is given as IPv4; "::" may accept
	// both families.
	Addr netip.AddrPort
	// V6Only is set if a socket bound to "::" does not accept IPv4. Without sock_diag it is
	// not known, and never set.
	V6Only bool
	// Inode identifies the socket in /proc/PID/fd. It is never 0.
	Inode uint32
}

// attrV6Only is INET_DIAG_SKV6ONLY.
const attrV6Only = 11

// dumpBufferBytes holds as much as the kernel puts into one datagram.
const dumpBufferBytes = 32 << 10

// Listeners lists all TCP sockets that listen. It asks the kernel, or reads /proc/net where
// sock_diag is missing, and does not block. It may be called concurrently. The error is one of the
// system.
func Listeners() ([]Listener, error) {
	list, err := dumpListeners()
	if err == nil {
		return list, nil
	}
	list, procErr := readListeners("/proc/net")
	if procErr != nil {
		return nil, fmt.Errorf("failed to list listening sockets: %w", errors.Join(procErr, err))
	}
	return list, nil
}

// dumpListeners asks sock_diag.
func dumpListeners() (list []Listener, err error) {
	fd, err := openDiag()
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	buf := make([]byte, dumpBufferBytes)
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		if list, err = dumpFamily(fd, family, buf, list); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// requestListeners begins a dump.
func requestListeners(fd int, family byte) error {
	b := make([]byte, headerBytes+requestBytes)
	nativeEndian.PutUint32(b[0:], headerBytes+requestBytes)
	nativeEndian.PutUint16(b[4:], sockDiagByFamily)
	nativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	b[headerBytes], b[headerBytes+1] = family, unix.IPPROTO_TCP
	nativeEndian.PutUint32(b[headerBytes+4:], 1<<unix.BPF_TCP_LISTEN)
	return os.NewSyscallError("sendto", unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}))
}

// dumpFamily appends the sockets of one address family. buf is overwritten.
func dumpFamily(fd int, family byte, buf []byte, list []Listener) ([]Listener, error) {
	if err := requestListeners(fd, family); err != nil {
		return nil, err
	}
	for {
		n, err := receive(fd, buf)
		if err != nil {
			return nil, err
		}
		var done bool
		if list, done, err = appendListeners(list, buf[:n]); err != nil || done {
			return list, err
		}
	}
}

// appendListeners parses one datagram of a dump, and reports whether it was the last.
func appendListeners(list []Listener, b []byte) (_ []Listener, done bool, err error) {
	for len(b) > 0 {
		if len(b) >= headerBytes && nativeEndian.Uint16(b[4:]) == unix.NLMSG_DONE {
			return list, true, nil
		}
		r, err := parseAnswer(b)
		if err != nil {
			return nil, false, err
		}
		if r.state == unix.BPF_TCP_LISTEN && r.Inode != 0 {
			list = append(list, Listener{Addr: r.local, V6Only: r.v6Only, Inode: r.Inode})
		}
		size := (int(nativeEndian.Uint32(b)) + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1)
		b = b[min(len(b), size):]
	}
	return list, false, nil
}

// readListeners reads the tables of a directory, normally /proc/net.
func readListeners(directory string) (list []Listener, err error) {
	for _, name := range []string{"tcp", "tcp6"} {
		f, err := os.Open(directory + "/" + name)
		if errors.Is(err, fs.ErrNotExist) && name == "tcp6" {
			break // the kernel has no IPv6
		}
		if err != nil {
			return nil, err
		}
		list, err = appendTable(list, f)
		_ = f.Close()
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

func appendTable(list []Listener, table io.Reader) ([]Listener, error) {
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		if r, ok := parseLine(lines.Text()); ok && r.state == unix.BPF_TCP_LISTEN && r.Inode != 0 {
			list = append(list, Listener{Addr: r.local, Inode: r.Inode})
		}
	}
	return list, lines.Err()
}
