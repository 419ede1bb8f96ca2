//go:build linux

// Package confinement recognizes peers on this host that are processes in the sandbox of an execwire
// server, by the parts of /proc/PID/status that a process cannot undo. Sandboxes are made elsewhere.
package confinement

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/procfs"
	"github.com/execwire/execwire/internal/sockowner"
)

// Peer is a process of this host that connects to this program, as the kernel identifies it.
type Peer struct {
	// PID is the process; 0 if only its socket is known, or if it is not in this PID namespace.
	PID int
	// Ended reports whether the process has ended, so that the PID may be reused; of a TCP socket
	// whether no process has it open. Nil: unknown.
	Ended func() bool
	// UID is the user that created the TCP socket.
	UID uint32
	// Socket is the inode of its TCP socket; 0 on a unix socket.
	Socket uint32
	// Cgroup is the ID of the control group in which the socket was created; 0 if it is not known.
	Cgroup uint64
	// Unknown reports that the kernel identified neither process nor socket.
	Unknown bool
}

func (p Peer) ended() bool { return p.Ended != nil && p.Ended() }

var (
	// ErrConfined means that a peer is a confined process.
	ErrConfined = errors.New("it is confined")
	// ErrNotFound means that a peer could be a confined process: nothing shows which process it is.
	ErrNotFound = errors.New("no visible process has its socket")
	errEnded    = errors.New("it has ended")
	// errForking means that processes end faster than they can be listed, so that a confined one may
	// be missing.
	errForking = errors.New("processes end faster than they can be listed")
)

// CheckPeer is for a program that is not the server: it returns nil if the peer is no confined process
// of any server whose processes are visible in /proc, [ErrConfined] if it is one, and another error if
// that cannot be determined. For a unix socket it reads the status of a process and its ancestors, for
// a TCP socket that of all visible processes, once for all calls that wait. It may be called
// concurrently.
//
// A process counts as confined if it has no_new_privs and more seccomp filters than an ancestor that
// is a server ([MarkServer]). A server is the subreaper of its processes, so none of them loses that
// ancestor. If this program is confined itself, a peer gains nothing, and all are accepted.
//
// If no confined process of the user of a TCP socket could connect, the socket is accepted while a
// process has it open. Otherwise a process that is not confined must have it open, and no visible
// confined one; or show it as its own ([sockowner.Dialer]). That no confined process has it open is
// not enough: its descriptor may be in a message that one of them has not received yet. So a process
// outside that receives a descriptor from a confined one, and keeps it, makes the connection
// acceptable at a moment when no confined process has it.
//
// What /proc does not show is not confined as far as this program can know: processes outside of its
// PID namespace, those that are hidden (hidepid), and all without /proc of this namespace. Nor are
// processes of servers in Go programs with another name.
func CheckPeer(peer Peer) error {
	if procfs.CheckMount("/proc") != nil {
		return nil
	}
	if own, err := isConfined(os.Getpid()); own || errors.Is(err, errUncounted) { // no sandbox works on such a kernel
		return nil
	}
	if peer.Socket == 0 && !peer.Unknown {
		return CheckProcess(peer, isConfined)
	}
	confined, err := listing.get()
	if err != nil && !errors.Is(err, errForking) {
		return err
	}
	possible := err != nil || slices.ContainsFunc(confined, func(uid uint32) bool { return peer.Unknown || uid == peer.UID })
	switch {
	case !possible && peer.ended(): // it may have been confined
		return errEnded
	case !possible:
		return nil
	case peer.Unknown:
		return ErrNotFound
	}
	return CheckSocketOwners(peer.Socket, true, isConfined)
}

// isConfined reports whether a process is a confined one of any server.
func isConfined(pid int) (bool, error) {
	at, err := Read(pid)
	if err != nil || !at.Exceeds(State{}) {
		return false, err
	}
	return at.belowServer(pid), nil
}

// belowServer reports whether a process in state s is confined by one of its ancestors.
func (s State) belowServer(pid int) bool {
	return HasAncestor(pid, func(_ int, ancestor State) bool { return ancestor.name == serverName && s.Exceeds(ancestor) })
}

// maxListings bounds how often processes are listed, while some end before they are read.
const maxListings = 10

// listConfined returns the users of the confined processes that share the network of this program. A
// process that ends before it is read may have left a socket to one that was not listed.
func listConfined() (uids []uint32, err error) {
	read := map[int]bool{}
	for range maxListings {
		pids, err := procfs.ListPIDs()
		if err != nil {
			return nil, err
		}
		complete := true
		for _, pid := range pids {
			if read[pid] {
				continue
			}
			read[pid] = true
			at, err := Read(pid)
			switch {
			case errors.Is(err, unix.ESRCH): // or it is hidden
				complete = false
			case err != nil:
				return nil, err
			case at.Exceeds(State{}) && sharesNetwork(pid) && at.belowServer(pid):
				uids = append(uids, at.uid)
			}
		}
		if complete {
			return uids, nil
		}
	}
	return nil, errForking
}

// listing makes one listing at a time, which is for all calls that began before it.
var listing sharedListing

type sharedListing struct {
	running sync.Mutex
	mu      sync.Mutex
	next    func() ([]uint32, error) // guarded by mu; not begun yet
}

func (l *sharedListing) get() ([]uint32, error) {
	l.mu.Lock()
	if l.next == nil {
		l.next = sync.OnceValues(func() ([]uint32, error) {
			l.running.Lock()
			defer l.running.Unlock()
			l.mu.Lock()
			l.next = nil
			l.mu.Unlock()
			return listConfined()
		})
	}
	next := l.next
	l.mu.Unlock()
	return next()
}

// sharesNetwork reports whether a process may be in the network namespace of this program, in which
// alone it can have made a connection to it. Each namespace has its own files there.
func sharesNetwork(pid int) bool {
	const table = "/net/tcp"
	var own, other unix.Stat_t
	return unix.Stat("/proc/self"+table, &own) != nil || unix.Stat(procfs.Dir(pid)+table, &other) != nil || own.Ino == other.Ino
}

// CheckProcess checks the process that connected to a unix socket: it returns [ErrConfined] if it is
// confined, and another error if it has ended.
func CheckProcess(peer Peer, isConfined func(pid int) (bool, error)) error {
	if peer.PID == 0 { // descendants of a server are in its PID namespace
		return nil
	}
	confined, err := isConfined(peer.PID)
	switch {
	case err != nil:
		return err
	case confined:
		return ErrConfined
	case peer.ended():
		return errEnded
	}
	return nil
}

// CheckSocketOwners checks the processes that have a TCP socket open, newest first. If it may have been
// created by a confined process, none of its owners may be one. Otherwise one that is not confined is
// enough, and so is a process that shows the socket as its own, if none is visible. Otherwise it returns
// [ErrNotFound] then.
func CheckSocketOwners(socket uint32, mayBeConfined bool, isConfined func(pid int) (bool, error)) error {
	pids, err := procfs.ListPIDs()
	if err != nil {
		return err
	}
	slices.SortFunc(pids, func(a, b int) int { return b - a }) // newest first, unless PIDs wrapped around
	found := ErrNotFound
	want := map[string]bool{fmt.Sprintf("socket:[%d]", socket): true}
	for _, pid := range pids {
		if found == nil { // only a confined owner would change that, and most processes are not confined
			confined, err := isConfined(pid)
			switch {
			case err != nil && !errors.Is(err, unix.ESRCH):
				return err
			case err != nil, !confined:
				continue
			}
		}
		if !procfs.HasDescriptor(pid, want) {
			continue
		}
		confined, err := isConfined(pid)
		switch {
		case errors.Is(err, unix.ESRCH): // it has ended
		case err != nil:
			return err
		case confined && mayBeConfined:
			return ErrConfined
		case confined:
			found = ErrConfined
		case !mayBeConfined:
			return nil
		default:
			found = nil
		}
	}
	if errors.Is(found, ErrNotFound) && isShown(socket, isConfined) {
		return nil
	}
	return found
}

// isShown reports whether a program of ours that cannot be inspected, because it keeps secrets, shows
// a socket as its own. The name makes it unlikely that the PID was reused.
func isShown(socket uint32, isConfined func(pid int) (bool, error)) bool {
	pid, err := sockowner.Of(socket)
	if err != nil || pid == 0 {
		return false
	}
	if _, err := os.Readlink(procfs.Dir(pid) + "/exe"); !errors.Is(err, unix.EACCES) {
		return false
	}
	at, err := Read(pid)
	if err != nil || at.name != serverName {
		return false
	}
	confined, err := isConfined(pid)
	return err == nil && !confined
}
