//go:build linux

package sockdiag

import (
	"net"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// inodeOf returns the inode of a listener's socket.
func inodeOf(t *testing.T, l *net.TCPListener) uint32 {
	t.Helper()
	file, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	return uint32(st.Ino)
}

func TestListeners_AllFamilies_AreListed(t *testing.T) {
	var want []Listener
	for _, at := range []struct{ network, address string }{
		{"tcp4", "127.0.0.1:0"}, {"tcp4", "0.0.0.0:0"}, {"tcp6", "[::1]:0"}, {"tcp6", "[::]:0"}, {"tcp", ":0"}, {"tcp", "[::ffff:127.0.0.1]:0"},
	} {
		l, err := net.Listen(at.network, at.address)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		addr := unmapped(l.Addr().(*net.TCPAddr).AddrPort())
		want = append(want, Listener{Addr: addr, V6Only: at.network == "tcp6", Inode: inodeOf(t, l.(*net.TCPListener))})
		// A connection is no listener.
		conn, err := net.DialTCP("tcp", nil, l.Addr().(*net.TCPAddr)) // an unspecified address is this host
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
	}
	for source, list := range map[string]func() ([]Listener, error){
		"sock_diag": dumpListeners, "/proc": func() ([]Listener, error) { return readListeners("/proc/net") },
	} {
		found, err := list()
		if err != nil {
			t.Errorf("%s: %v", source, err)
		}
		for _, w := range want {
			w.V6Only = w.V6Only && source == "sock_diag"
			i := slices.IndexFunc(found, func(l Listener) bool { return l.Inode == w.Inode })
			if i < 0 || found[i] != w {
				t.Errorf("%s: %v is missing in %v", source, w, found)
			}
		}
		ports := map[uint16]int{}
		for _, l := range found {
			ports[l.Addr.Port()]++
		}
		for _, w := range want {
			if n := ports[w.Addr.Port()]; n != 1 {
				t.Errorf("%s: port %d is listed %d times", source, w.Addr.Port(), n)
			}
		}
	}
}

func TestReadListeners_WithoutTablesIsAnError(t *testing.T) {
	if list, err := readListeners(t.TempDir()); err == nil {
		t.Errorf("readListeners = %v", list)
	}
}

// FuzzAppendListeners: no datagram is read beyond its end, and every one is consumed.
func FuzzAppendListeners(f *testing.F) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	fd, err := openDiag()
	if err != nil {
		f.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := requestListeners(fd, unix.AF_INET); err != nil {
		f.Fatal(err)
	}
	buf := make([]byte, dumpBufferBytes)
	n, err := receive(fd, buf)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(buf[:n])
	f.Add(buf[:headerBytes])
	f.Fuzz(func(t *testing.T, b []byte) {
		if list, _, err := appendListeners(nil, b); err == nil && len(list) > len(b)/(headerBytes+answerBytes) {
			t.Errorf("%d sockets in %d bytes", len(list), len(b))
		}
	})
}

// BenchmarkListeners: a thousand sockets that listen.
func BenchmarkListeners(b *testing.B) {
	for range 1000 {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = unix.Close(fd) }()
		if err := os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})); err != nil {
			b.Fatal(err)
		}
		if err := unix.Listen(fd, 1); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if list, err := dumpListeners(); err != nil || len(list) < 1000 {
			b.Fatal(len(list), err)
		}
	}
}
