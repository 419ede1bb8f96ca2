//go:build linux

package sockdiag

import (
	"errors"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/leakcheck"
	"github.com/execwire/execwire/internal/testport"
)

func TestMain(m *testing.M) { leakcheck.Main(m) }

// otherUID is a user that the tests are not run as.
const otherUID = 1001

// pair is a connection: the client's end, and the one that was accepted.
type pair struct{ client, server *net.TCPConn }

// connectAs connects to a new listener on address by a socket of user uid, which
// control may change before it connects.
func connectAs(t *testing.T, uid int, network, address, dial string, control func(fd uintptr)) pair {
	t.Helper()
	lis, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lis.Close() }()
	return connectTo(t, uid, lis, dial, control)
}

func connectTo(t *testing.T, uid int, lis net.Listener, host string, control func(fd uintptr)) pair {
	t.Helper()
	_, port, err := net.SplitHostPort(lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		if control != nil {
			return raw.Control(control)
		}
		return nil
	}}
	type result struct {
		conn net.Conn
		err  error
	}
	dialled := make(chan result)
	go func() {
		// A socket belongs to the file system user of the thread that makes it. The
		// thread ends with the goroutine.
		runtime.LockOSThread()
		_ = unix.Setfsuid(uid)
		conn, err := d.Dial("tcp", net.JoinHostPort(host, port))
		dialled <- result{conn, err}
	}()
	made := <-dialled
	if made.err != nil {
		t.Fatal(made.err)
	}
	accepted, err := lis.Accept()
	if err != nil {
		t.Fatal(err)
	}
	p := pair{made.conn.(*net.TCPConn), accepted.(*net.TCPConn)}
	t.Cleanup(func() { _, _ = p.client.Close(), p.server.Close() })
	return p
}

// sources are the ways to find a socket.
func sources(t tuple) map[string]func() (record, error) {
	return map[string]func() (record, error){
		"sock_diag": func() (record, error) { return queryDiag(t) },
		"/proc":     func() (record, error) { return readProc("/proc/net", t) },
	}
}

// peerTuple names the socket at the other end of conn.
func peerTuple(conn *net.TCPConn) tuple {
	return tuple{local: addrPort(conn.RemoteAddr()), remote: addrPort(conn.LocalAddr())}
}

func TestPeer_IsCreatorOfSocket(t *testing.T) {
	bound := func(fd uintptr) {
		if err := unix.SetsockoptString(int(fd), unix.SOL_SOCKET, unix.SO_BINDTODEVICE, "lo"); err != nil {
			t.Error(err)
		}
	}
	for _, tc := range []struct {
		name, network, address, dial string
		control                      func(uintptr)
	}{
		{"IPv4", "tcp4", "127.0.0.1:0", "127.0.0.1", nil},
		{"another address of loopback", "tcp4", "127.3.2.1:0", "127.3.2.1", nil},
		{"IPv6", "tcp6", "[::1]:0", "::1", nil},
		{"IPv4 to a listener for both", "tcp", "[::]:0", "127.0.0.1", nil},
		{"bound to the interface", "tcp4", "127.0.0.1:0", "127.0.0.1", bound},
	} {
		for _, uid := range []int{os.Getuid(), otherUID} {
			t.Run(tc.name, func(t *testing.T) {
				p := connectAs(t, uid, tc.network, tc.address, tc.dial, tc.control)
				found, err := Peer(p.server)
				if err != nil || found.UID != uint32(uid) || found.Inode == 0 {
					t.Errorf("Peer = %+v, %v, want uid %d", found, err, uid)
				}
				for source, find := range sources(peerTuple(p.server)) {
					r, err := find()
					if s, openErr := r.socketOf(peerTuple(p.server)); err != nil || openErr != nil || s.UID != found.UID || s.Inode != found.Inode {
						t.Errorf("%s: %+v, %v, want %+v", source, r, errors.Join(err, openErr), found)
					}
				}
			})
		}
	}
}

func TestPeer_MappedIPv4SocketIsFound(t *testing.T) {
	lis, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lis.Close() }()
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	addr := &unix.SockaddrInet6{Port: lis.Addr().(*net.TCPAddr).Port, Addr: [16]byte(net.IPv4(127, 0, 0, 1).To16())}
	if err := unix.Connect(fd, addr); err != nil {
		t.Fatal(err)
	}
	conn, err := lis.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	server := conn.(*net.TCPConn)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	if found, err := Peer(server); err != nil || uint64(found.Inode) != st.Ino || found.UID != uint32(os.Getuid()) {
		t.Errorf("Peer = %+v, %v, want inode %d", found, err, st.Ino)
	}
	r, err := readProc("/proc/net", peerTuple(server))
	if err != nil || uint64(r.Inode) != st.Ino {
		t.Errorf("/proc: %+v, %v, want inode %d", r, err, st.Ino)
	}
}

func TestPeer_HalfClosedSocketHasItsOwner(t *testing.T) {
	p := connectAs(t, otherUID, "tcp4", "127.0.0.1:0", "127.0.0.1", nil)
	if err := p.client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if found, err := Peer(p.server); err != nil || found.UID != otherUID {
		t.Errorf("Peer = %+v, %v, want uid %d", found, err, otherUID)
	}
}

// TestPeer_OrphanedSocketHasNoOwner: the kernel reports an orphan with inode 0,
// and older ones with uid 0, which is not root.
func TestPeer_OrphanedSocketHasNoOwner(t *testing.T) {
	p := connectAs(t, otherUID, "tcp4", "127.0.0.1:0", "127.0.0.1", nil)
	if err := p.client.Close(); err != nil {
		t.Fatal(err)
	}
	if found, err := Peer(p.server); !errors.Is(err, ErrNoOwner) {
		t.Errorf("Peer = %+v, %v, want %v", found, err, ErrNoOwner)
	}
	for source, find := range sources(peerTuple(p.server)) {
		r, err := find()
		if err != nil || r.Inode != 0 {
			t.Errorf("%s: %+v, %v, want a socket without inode", source, r, err)
		}
		if s, err := r.socketOf(peerTuple(p.server)); !errors.Is(err, ErrNoOwner) {
			t.Errorf("%s: %+v, %v, want %v", source, s, err, ErrNoOwner)
		}
	}
}

// TestFind_TimeWaitHasNoOwner: the kernel reports TIME_WAIT with uid 0.
func TestFind_TimeWaitHasNoOwner(t *testing.T) {
	p := connectAs(t, otherUID, "tcp4", "127.0.0.1:0", "127.0.0.1", nil)
	of := peerTuple(p.server)
	if err := errors.Join(p.client.Close(), p.server.Close()); err != nil {
		t.Fatal(err)
	}
	for source, search := range sources(of) {
		r, err := search()
		for patience := time.Now().Add(10 * time.Second); err == nil && r.state != unix.BPF_TCP_TIME_WAIT && time.Now().Before(patience); r, err = search() {
			time.Sleep(time.Millisecond)
		}
		if err != nil || r.state != unix.BPF_TCP_TIME_WAIT || r.UID != 0 || r.Inode != 0 {
			t.Errorf("%s: %+v, %v, want TIME_WAIT with uid 0 and inode 0", source, r, err)
		}
		if s, err := r.socketOf(of); !errors.Is(err, ErrNoOwner) {
			t.Errorf("%s: %+v, %v, want %v", source, s, err, ErrNoOwner)
		}
	}
	if s, err := find(of); !errors.Is(err, ErrNoOwner) {
		t.Errorf("find = %+v, %v, want %v", s, err, ErrNoOwner)
	}
}

// TestPeer_LaterSocketAtSamePort_IsNotPeer: the request of a client that has
// reset its connection can still be read, when the port is another client's.
func TestPeer_LaterSocketAtSamePort_IsNotPeer(t *testing.T) {
	lis, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lis.Close() }()
	at := &unix.SockaddrInet4{Port: int(testport.Reserve(t)), Addr: [4]byte{127, 0, 0, 1}}
	bind := func(fd uintptr) {
		if err := errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.Bind(int(fd), at)); err != nil {
			t.Error(err)
		}
	}
	first := connectTo(t, otherUID, lis, "127.0.0.1", bind)
	if err := errors.Join(first.client.SetLinger(0), first.client.Close()); err != nil {
		t.Fatal(err)
	}
	second := connectTo(t, os.Getuid(), lis, "127.0.0.1", bind)
	if found, err := Peer(second.server); err != nil || found.UID != uint32(os.Getuid()) {
		t.Fatalf("Peer of the second = %+v, %v", found, err)
	}
	if found, err := Peer(first.server); !errors.Is(err, ErrDisconnected) {
		t.Errorf("Peer of the first = %+v, %v, want %v", found, err, ErrDisconnected)
	}
}

// TestFind_ListenerIsNotAPeer: without a connection sock_diag finds who listens.
func TestFind_ListenerIsNotAPeer(t *testing.T) {
	lis, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lis.Close() }()
	at := addrPort(lis.Addr())
	if s, err := find(tuple{local: at, remote: addrPort(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9})}); !errors.Is(err, ErrNoOwner) {
		t.Errorf("find = %+v, %v, want %v", s, err, ErrNoOwner)
	}
}

// TestPeer_CgroupIsThatOfItsProcess: the id is the inode of the group's directory.
func TestPeer_CgroupIsThatOfItsProcess(t *testing.T) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	path, unified := "", ""
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			path = rest
		}
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[2] == "cgroup2" {
			unified = fields[1]
		}
	}
	var st unix.Stat_t
	if unified == "" || unix.Stat(unified+path, &st) != nil {
		t.Logf("no cgroup v2 directory of this process: mounted %q, group %q", unified, path)
		return
	}
	p := connectAs(t, os.Getuid(), "tcp4", "127.0.0.1:0", "127.0.0.1", nil)
	if found, err := Peer(p.server); err != nil || found.Cgroup != st.Ino {
		t.Errorf("Peer = %+v, %v, want cgroup %d", found, err, st.Ino)
	}
}

func TestReadProc_WithoutTablesIsAnError(t *testing.T) {
	if r, err := readProc(t.TempDir(), tuple{}); err == nil || errors.Is(err, ErrNoOwner) {
		t.Errorf("readProc = %+v, %v", r, err)
	}
}

func TestParseLine_ReadsBothFamilies(t *testing.T) {
	if nativeEndian.Uint16([]byte{1, 0}) != 1 {
		return // the lines are those of a little-endian machine
	}
	for _, tc := range []struct{ line, local, remote string }{
		{"   0: 0100007F:1CFC 0200007F:0016 01 00000000:00000000 00:00000000 00000000  1001        0 4711 1 0 20 4 30 10 -1", "127.0.0.1:7420", "127.0.0.2:22"},
		{"   0: 00000000000000000000000001000000:1CFC 0000000000000000FFFF00000100007F:0016 01 00000000:00000000 00:00000000 00000000  1001        0 4711 1", "[::1]:7420", "127.0.0.1:22"},
	} {
		r, ok := parseLine(tc.line)
		if !ok || r.local.String() != tc.local || r.remote.String() != tc.remote || r.UID != 1001 || r.Inode != 4711 || r.state != 1 {
			t.Errorf("parseLine(%q) = %+v, %v", tc.line, r, ok)
		}
	}
	for _, line := range []string{"", "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode",
		"0: 01:1 01:1 01 0:0 0:0 0 1 0 1", "0: 0100007F:1CFC 0100007F:FFFFF 01 0:0 0:0 0 1 0 1", "0: 0100007F:1CFC 0100007F:FF 01 0:0 0:0 0 -1 0 1"} {
		if r, ok := parseLine(line); ok {
			t.Errorf("parseLine(%q) = %+v", line, r)
		}
	}
}

// FuzzParseAnswer: no answer is read beyond its end.
func FuzzParseAnswer(f *testing.F) {
	lis, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	defer func() { _ = lis.Close() }()
	question := request(tuple{local: addrPort(lis.Addr()), remote: addrPort(lis.Addr())})
	answer := slices.Concat(question[:headerBytes], make([]byte, answerBytes), []byte{12, 0, attrCgroupID, 0, 1, 2, 3, 4, 5, 6, 7, 8})
	nativeEndian.PutUint32(answer, uint32(len(answer)))
	answer[headerBytes] = unix.AF_INET
	if r, err := parseAnswer(answer); err != nil || r.Cgroup != nativeEndian.Uint64([]byte{1, 2, 3, 4, 5, 6, 7, 8}) {
		f.Fatalf("parseAnswer = %+v, %v", r, err)
	}
	f.Add(answer)
	f.Add(answer[:headerBytes])
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := parseAnswer(b); err == nil && len(b) < headerBytes+answerBytes {
			t.Errorf("parseAnswer(%x) = %+v", b, r)
		}
	})
}

func BenchmarkPeer(b *testing.B) {
	lis, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = lis.Close() }()
	client, err := net.Dial("tcp4", lis.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	conn, err := lis.Accept()
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	b.Run("sock_diag", func(b *testing.B) {
		for b.Loop() {
			if _, err := Peer(conn.(*net.TCPConn)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("proc", func(b *testing.B) {
		for b.Loop() {
			if _, err := readProc("/proc/net", peerTuple(conn.(*net.TCPConn))); err != nil {
				b.Fatal(err)
			}
		}
	})
}
