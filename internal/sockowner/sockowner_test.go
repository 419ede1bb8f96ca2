//go:build linux

package sockowner

import (
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A socket of Dialer names this process; another one names none.
func TestOf(t *testing.T) {
	lis, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lis.Close() }()
	for dialer, want := range map[*net.Dialer]int{Dialer(): os.Getpid(), new(net.Dialer): 0} {
		conn, err := dialer.DialContext(t.Context(), "tcp4", lis.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		file, err := conn.(*net.TCPConn).File() // the same socket
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = file.Close() }()
		var stat unix.Stat_t
		if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
			t.Fatal(err)
		}
		if pid, err := Of(uint32(stat.Ino)); pid != want || err != nil {
			t.Errorf("Of = %d, %v, want %d", pid, err, want)
		}
	}
}
