package sandbox

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// emptyNetwork is a network namespace with nothing in it, which programs of bubblewrap whose network is restricted
// share. They could not use it if there were something: the filter refuses every socket. To make a namespace for each
// would take 0.4 to 2.2 ms. An ordinary user cannot enter one, so there bubblewrap makes them. The zero
// value is ready.
type emptyNetwork struct {
	once sync.Once
	ns   *os.File // nil: there is none
}

// file returns the descriptor of the namespace, which stays open until close, or -1 where it cannot be had.
func (n *emptyNetwork) file() int {
	n.once.Do(func() {
		if unix.Geteuid() == 0 {
			n.ns = newNetwork()
		}
	})
	if n.ns == nil {
		return -1
	}
	return int(n.ns.Fd())
}

// newNetwork makes the namespace on a thread that ends with it.
func newNetwork() (ns *os.File) {
	_ = onOwnThread(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			ns, err = os.Open(threadNetwork)
		}
		return err // then bubblewrap makes one for each
	})
	return ns
}

const threadNetwork = "/proc/thread-self/ns/net"

func (n *emptyNetwork) close() {
	n.once.Do(func() {})
	if n.ns != nil {
		_ = n.ns.Close()
	}
}
