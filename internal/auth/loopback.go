package auth

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/execwire/execwire/internal/sockdiag"
)

// LoopbackPeer asks the kernel for the owner of the socket at the other end of
// conn, which must be connected within this host; nothing is sent to the peer. Of
// the [Peer] it sets UID, Socket and Cgroup. The error is an *[Error] of kind
// [KindPeerUnknown]; then the Peer is Unknown, or of a user who is not mapped
// here.
func LoopbackPeer(conn *net.TCPConn) (Peer, error) {
	socket, err := sockdiag.Peer(conn)
	peer := Peer{UID: socket.UID, Socket: socket.Inode, Cgroup: socket.Cgroup, Unknown: err != nil}
	if err == nil && socket.UID == overflowUID() {
		err = errUnmapped
	}
	if err != nil {
		return peer, &Error{Kind: KindPeerUnknown, Subject: "peer on loopback", Err: err}
	}
	return peer, nil
}

// LoopbackPeerEnded reports whether no process has the socket of p open any more, the peer
// that [LoopbackPeer] returned for conn. It is false if the kernel cannot tell.
func LoopbackPeerEnded(conn *net.TCPConn, p Peer) bool {
	socket, err := sockdiag.Peer(conn)
	if err != nil {
		return errors.Is(err, sockdiag.ErrNoOwner) || errors.Is(err, sockdiag.ErrDisconnected)
	}
	return socket.Inode != p.Socket
}

var errUnmapped = errors.New("the user is not mapped in the user namespace of this process")

// noUID is not a user.
const noUID = ^uint32(0)

// overflowUID returns the uid that stands for all users without a mapping in the
// user namespace of this process; [noUID] if all are mapped.
var overflowUID = sync.OnceValue(func() uint32 {
	const defaultOverflowUID = 65534
	if text, err := os.ReadFile("/proc/self/uid_map"); err == nil && mapsEveryUser(string(text)) {
		return noUID
	}
	text, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	if err != nil {
		return defaultOverflowUID
	}
	uid, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	if err != nil {
		return defaultOverflowUID
	}
	return uint32(uid)
})

// mapsEveryUser reports whether a uid_map is that of the initial user namespace.
func mapsEveryUser(uidMap string) bool {
	fields := strings.Fields(uidMap)
	return len(fields) == 3 && fields[0] == "0" && fields[2] == strconv.FormatUint(uint64(noUID), 10)
}

// Keywords of the setting loopback_users.
const (
	LoopbackSame = "same"
	LoopbackAny  = "any"
)

// LoopbackUsers are the users whose processes are accepted on loopback without a
// token or a certificate. The user of this process and root always are; the zero
// value has no others. It is safe to copy and to use concurrently.
type LoopbackUsers struct {
	any  bool
	uids []uint32 // besides those
}

// ParseLoopbackUsers parses the setting loopback_users: same, any, or names and
// numbers of users of this host. The names are looked up once.
func ParseLoopbackUsers(list []string) (LoopbackUsers, error) {
	var users LoopbackUsers
	for _, name := range list {
		switch name {
		case LoopbackSame:
		case LoopbackAny:
			users.any = true
		default:
			uid, err := lookupUID(name)
			if err != nil {
				return LoopbackUsers{}, fmt.Errorf("has %q: %w", name, err)
			}
			users.uids = append(users.uids, uid)
		}
	}
	if users.any && len(list) > 1 {
		return LoopbackUsers{}, errors.New("has any together with other values")
	}
	return users, nil
}

// AcceptsAny reports whether the processes of all users are accepted.
func (u LoopbackUsers) AcceptsAny() bool { return u.any }

// Check returns nil if a peer is accepted; p and err are results of
// [LoopbackPeer]. The error is an *[Error] of kind [KindPeerRefused].
func (u LoopbackUsers) Check(p Peer, err error) error {
	switch {
	case u.any:
		return nil
	case err != nil:
		return refusedPeer("the user of this process cannot be found (%v), and loopback_users does not accept any: use a token or a unix socket", causeOf(err))
	case p.UID == 0, int(p.UID) == os.Geteuid(), slices.Contains(u.uids, p.UID):
		return nil
	}
	return refusedPeer("uid %d is not accepted on loopback without a token: add it to loopback_users, which accepts %v", p.UID, u)
}

func refusedPeer(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	return &Error{Kind: KindPeerRefused, Subject: "peer on loopback", Err: errors.New(text), ForCaller: text}
}

// causeOf returns the cause of an *[Error], or err itself.
func causeOf(err error) error {
	if typed, ok := errors.AsType[*Error](err); ok {
		return typed.Err
	}
	return err
}

// String lists the users by number, as "uid 1000, root and uid 33".
func (u LoopbackUsers) String() string {
	if u.any {
		return "any"
	}
	uids := []string{}
	if euid := os.Geteuid(); euid != 0 {
		uids = append(uids, "uid "+strconv.Itoa(euid))
	}
	uids = append(uids, "root")
	for _, uid := range u.uids {
		uids = append(uids, "uid "+strconv.FormatUint(uint64(uid), 10))
	}
	if len(uids) == 1 {
		return uids[0]
	}
	return strings.Join(uids[:len(uids)-1], ", ") + " and " + uids[len(uids)-1]
}
