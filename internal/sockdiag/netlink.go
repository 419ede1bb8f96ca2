package sockdiag

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// Of linux/inet_diag.h and linux/sock_diag.h.
const (
	sockDiagByFamily = 20
	headerBytes      = unix.SizeofNlMsghdr
	idBytes          = 48
	requestBytes     = 8 + idBytes
	answerBytes      = 4 + idBytes + 20
	attrCgroupID     = 21 // INET_DIAG_CGROUP_ID
	// loopbackIndex is the interface of every loopback address. With it sockets
	// are found that are bound to that interface, too.
	loopbackIndex = 1
)

// answerSpace is what one answer fits into.
const answerSpace = 4096

var native = binary.NativeEndian

// errMalformed means that the kernel's answer cannot be read.
var errMalformed = errors.New("the answer of sock_diag cannot be read")

// diag asks sock_diag for the socket that t names. It is ENOENT if there is none,
// and if the kernel cannot tell. The kernel has answered when the request is
// sent, so that nothing waits; a netlink socket for each question costs 3 µs more
// than one for all would, and needs no lock.
func diag(t tuple) (record, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_INET_DIAG)
	if err != nil {
		return record{}, os.NewSyscallError("socket", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Sendto(fd, request(t), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return record{}, os.NewSyscallError("sendto", err)
	}
	buf := make([]byte, answerSpace)
	n, from, err := unix.Recvfrom(fd, buf, 0)
	if err != nil {
		return record{}, os.NewSyscallError("recvfrom", err)
	}
	if kernel, ok := from.(*unix.SockaddrNetlink); !ok || kernel.Pid != 0 {
		return record{}, errMalformed
	}
	return parseAnswer(buf[:n])
}

// request is the question for one socket.
func request(t tuple) []byte {
	b := make([]byte, headerBytes, headerBytes+requestBytes)
	native.PutUint32(b[0:], headerBytes+requestBytes)
	native.PutUint16(b[4:], sockDiagByFamily)
	native.PutUint16(b[6:], unix.NLM_F_REQUEST)
	family := byte(unix.AF_INET)
	if t.local.Addr().Is6() {
		family = unix.AF_INET6
	}
	b = append(b, family, unix.IPPROTO_TCP, 0, 0)
	b = native.AppendUint32(b, ^uint32(0)) // states
	b = binary.BigEndian.AppendUint16(b, t.local.Port())
	b = binary.BigEndian.AppendUint16(b, t.remote.Port())
	b = appendAddr(b, t.local.Addr())
	b = appendAddr(b, t.remote.Addr())
	b = native.AppendUint32(b, loopbackIndex)
	b = native.AppendUint32(b, ^uint32(0)) // no cookie
	return native.AppendUint32(b, ^uint32(0))
}

// appendAddr appends 16 bytes, of which an IPv4 address takes the first four.
func appendAddr(b []byte, a netip.Addr) []byte {
	var field [16]byte
	copy(field[:], a.AsSlice())
	return append(b, field[:]...)
}

// parseAnswer reads the answer to one question.
func parseAnswer(b []byte) (record, error) {
	if len(b) < headerBytes {
		return record{}, errMalformed
	}
	size := int(native.Uint32(b))
	if size < headerBytes || size > len(b) {
		return record{}, errMalformed
	}
	body := b[headerBytes:size]
	switch native.Uint16(b[4:]) {
	case unix.NLMSG_ERROR:
		if len(body) < 4 {
			return record{}, errMalformed
		}
		return record{}, fmt.Errorf("sock_diag: %w", unix.Errno(-int32(native.Uint32(body))))
	case sockDiagByFamily:
		return parseRecord(body)
	}
	return record{}, errMalformed
}

// parseRecord reads an inet_diag_msg and its attributes.
func parseRecord(b []byte) (record, error) {
	if len(b) < answerBytes {
		return record{}, errMalformed
	}
	family := b[0]
	if family != unix.AF_INET && family != unix.AF_INET6 {
		return record{}, errMalformed
	}
	r := record{state: b[1]}
	id, rest := b[4:4+idBytes], b[4+idBytes:]
	r.local = parseAddrPort(family, id[4:20], binary.BigEndian.Uint16(id[0:]))
	r.remote = parseAddrPort(family, id[20:36], binary.BigEndian.Uint16(id[2:]))
	r.UID, r.Inode = native.Uint32(rest[12:]), native.Uint32(rest[16:])
	for attrs := b[answerBytes:]; len(attrs) >= unix.SizeofNlAttr; {
		size := int(native.Uint16(attrs))
		if size < unix.SizeofNlAttr || size > len(attrs) {
			return record{}, errMalformed
		}
		if native.Uint16(attrs[2:]) == attrCgroupID && size >= unix.SizeofNlAttr+8 {
			r.Cgroup = native.Uint64(attrs[unix.SizeofNlAttr:])
		}
		attrs = attrs[min(len(attrs), (size+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1)):]
	}
	return r, nil
}

func parseAddrPort(family byte, field []byte, port uint16) netip.AddrPort {
	if family == unix.AF_INET {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(field)), port)
	}
	return unmapped(netip.AddrPortFrom(netip.AddrFrom16([16]byte(field)), port))
}
