package sandbox

import (
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// sharedNamespaces are those that programs in bubblewrap share, each from the namespaces that bubblewrap makes for it alone: a
// network with nothing in it, for those whose network is restricted, and which they could not use if there were something,
// because the filter refuses every socket; and, unless this process has power over mounts, one of users in which whoever
// this user starts has all of it. To make a network for each would take 0.4 to 2.2 ms. The zero value is ready.
type sharedNamespaces struct {
	once    sync.Once
	users   *os.File // nil: there is none
	network *os.File // nil: there is none
}

// files returns the descriptors of the namespaces, which stay open until close. Each is -1 where it cannot be had: then
// one is made for each program.
func (n *sharedNamespaces) files(preparer *preparerFile) (users, network int) {
	n.once.Do(func() {
		if mayMount() {
			n.network = newNetwork()
		} else {
			n.users, n.network = newUsers(preparer)
		}
	})
	descriptor := func(file *os.File) int {
		if file == nil {
			return -1
		}
		return int(file.Fd())
	}
	return descriptor(n.users), descriptor(n.network)
}

func (n *sharedNamespaces) close() {
	n.once.Do(func() {})
	for _, file := range []*os.File{n.users, n.network} {
		if file != nil {
			_ = file.Close()
		}
	}
}

// newNetwork makes a network on a thread that ends with it.
func newNetwork() (network *os.File) {
	_ = onOwnThread(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			network, err = os.Open(threadNetwork)
		}
		return err // then one is made for each program
	})
	return network
}

const threadNetwork = "/proc/thread-self/ns/net"

// newUsers makes both namespaces in a process that ends with it.
func newUsers(preparer *preparerFile) (users, network *os.File) {
	var p preparation
	p.ownUsers()
	p.call(unix.SYS_UNSHARE, literal(unix.CLONE_NEWNET))
	err := p.with(preparer, func(pid int) (err error) {
		dir := "/proc/" + strconv.Itoa(pid) + "/ns/"
		if users, err = os.Open(dir + "user"); err == nil {
			network, err = os.Open(dir + "net")
		}
		return err
	})
	if err != nil && users != nil { // both, or one of each is made for each program
		_ = users.Close()
		users = nil
	}
	return users, network
}

// with calls do while there is a process for which a preparation was made. It blocks until that has ended.
func (p *preparation) with(preparer *preparerFile, do func(pid int) error) error {
	l, err := newLaunch()
	if err != nil {
		return err
	}
	defer l.close()
	var wait [2]int
	if err := unix.Pipe2(wait[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	defer unix.Close(wait[1])
	l.give(wait[0])
	const input, status = 0, 6
	p.call(unix.SYS_WRITE, literal(status), p.text("x"), literal(1))
	p.call(unix.SYS_READ, literal(input), p.room(1), literal(1)) // until this process ends it, or ends
	program, err := preparer.descriptor()
	if err != nil {
		return err
	}
	calls, err := p.give(l)
	if err != nil {
		return err
	}
	files := []int{wait[0], l.null, l.null, l.null, l.null, l.null, l.statusEnd, calls, program}
	path := ownDescriptor(len(files) - 1)
	pid, err := forkExec(Program{Path: path, Argv: []string{"execwire-preparer", ""}, Dir: "/", Files: files})
	if err != nil {
		return err
	}
	defer end(pid)
	l.closeChild()
	if err := l.status.SetReadDeadline(time.Now().Add(probePatience)); err != nil {
		return err
	}
	said := make([]byte, preparerReport)
	n, err := io.ReadAtLeast(l.status, said, 1)
	switch {
	case err != nil:
		return err
	case n != 1:
		return p.failure(said)
	}
	return do(pid)
}
