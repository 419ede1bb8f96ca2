package sandbox

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sync"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// filterKind selects the rules of a filter. The zero value selects those that always
// apply.
type filterKind struct {
	network  bool // sockets are refused
	metadata bool // changes of mode, owner, times and extended attributes are refused
	outside  bool // processes outside are visible: calls that reach them are refused
}

// filterPrograms has the compiled filters by filterKind.
var filterPrograms sync.Map

// program returns the filter as an array of struct sock_filter.
func (k filterKind) program() []byte {
	if known, ok := filterPrograms.Load(k); ok {
		return known.([]byte)
	}
	instructions, err := bpf.Assemble(compile(k.rules()))
	if err != nil {
		panic(err) // the rules are constant
	}
	var code bytes.Buffer
	_ = binary.Write(&code, binary.LittleEndian, instructions) // both architectures are little-endian
	filterPrograms.Store(k, code.Bytes())
	return code.Bytes()
}

func (k filterKind) rules() []filterRule {
	rules := slices.Concat(refuseAll(alwaysRefused), refuseAll(archRefused), namespaceRules, terminalRules, leaseRules)
	if k.network {
		rules = slices.Concat(rules, refuseAll(networkRefused), networkRules)
	}
	if k.metadata {
		rules = slices.Concat(rules, refuseAll(metadataRefused), refuseAll(archMetadataRefused), fileIoctlRules)
	}
	if k.outside {
		rules = slices.Concat(rules, refuseAll(outsideRefused), outsideRules)
	}
	return rules
}

func refuseAll(calls []uintptr) []filterRule {
	rules := make([]filterRule, len(calls))
	for i, call := range calls {
		rules[i] = filterRule{call: call, answer: answerRefused}
	}
	return rules
}

// firstUnknown is the first system call that is not covered by these rules, which are
// for Linux 6.18. From 424 on, numbers are the same on all architectures. The filter
// reports later calls as missing, like an older kernel. That includes the calls of x32
// on amd64, which have numbers from 0x40000000 on.
const firstUnknown = unix.SYS_FILE_SETATTR + 1

// alwaysRefused are calls that reach into other processes or the kernel, and that
// builds do not need.
var alwaysRefused = []uintptr{
	// Other processes.
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE,
	unix.SYS_PIDFD_GETFD, unix.SYS_KCMP, unix.SYS_MOVE_PAGES, unix.SYS_MIGRATE_PAGES,
	// System calls that bypass the filter.
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	// Mounts and namespaces.
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_CHROOT,
	// Files by handle, without a path.
	unix.SYS_OPEN_BY_HANDLE_AT,
	// Keys, which the processes of a user share.
	unix.SYS_ADD_KEY, unix.SYS_KEYCTL, unix.SYS_REQUEST_KEY,
	// Parts of the kernel with many vulnerabilities, which unprivileged programs do
	// not need.
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_FANOTIFY_INIT,
	unix.SYS_SYSLOG, unix.SYS_KEXEC_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
	unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD,
}

// cloneNamespaces are the flags of clone that make namespaces.
const cloneNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// namespaceRules refuse new namespaces. The flags of clone3 are in memory, where a filter cannot look: without it
// programs use clone.
var namespaceRules = []filterRule{
	{call: unix.SYS_CLONE, answer: answerRefused, when: condition{arg: 0, is: hasAny, value: cloneNamespaces}},
	{call: unix.SYS_CLONE3, answer: answerMissing},
}

// terminalRules refuse to insert input into a terminal, which the next reader would
// take for typed input, and to change the line discipline.
var terminalRules = []filterRule{
	{call: unix.SYS_IOCTL, answer: answerRefused, when: condition{arg: 1, is: oneOf, values: []uint32{unix.TIOCSTI, tioclinux, unix.TIOCSETD}}},
}

const tioclinux = 0x541c

// leaseRules refuse leases, with which a program that may only read a file can delay
// others that open it for writing, for /proc/sys/fs/lease-break-time, and directory
// notifications by signal. For these there is inotify, which has limits.
var leaseRules = []filterRule{
	{call: unix.SYS_FCNTL, answer: answerRefused, when: condition{arg: 1, is: oneOf, values: []uint32{unix.F_SETLEASE, unix.F_NOTIFY, setDelegation}}},
}

// setDelegation is F_SETDELEG of later kernels: leases of directories.
const setDelegation = 1040

// networkRefused are calls that stream socket pairs do not need.
var networkRefused = []uintptr{
	unix.SYS_SOCKET, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_ACCEPT, unix.SYS_ACCEPT4,
}

// socketType masks the flags in a socket type.
const socketType = 0xf

// networkRules allow stream and packet socket pairs, which cannot send to an address. A
// pair of datagram sockets could, with sendmsg, whose address is in memory.
var networkRules = []filterRule{
	{call: unix.SYS_SENDTO, answer: answerRefused, when: condition{arg: 4, is: notNull, value: 0}},
	{call: unix.SYS_SOCKETPAIR, answer: answerRefused, when: condition{arg: 0, is: differs, value: unix.AF_UNIX}},
	// Of all types only SOCK_STREAM, 1, and SOCK_SEQPACKET, 5, have bit 0 and neither bit 1 nor 3.
	{call: unix.SYS_SOCKETPAIR, answer: answerRefused, when: condition{arg: 1, is: hasNone, value: unix.SOCK_STREAM}},
	{call: unix.SYS_SOCKETPAIR, answer: answerRefused, when: condition{arg: 1, is: hasAny, value: socketType &^ unix.SOCK_SEQPACKET}},
}

// outsideRefused are calls to exchange data with other processes of the user.
var outsideRefused = []uintptr{
	unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_SEMCTL,
	unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL, unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK,
	// Queues in a mounted file system can be opened without mq_open.
	unix.SYS_MQ_TIMEDSEND, unix.SYS_MQ_TIMEDRECEIVE, unix.SYS_MQ_NOTIFY, unix.SYS_MQ_GETSETATTR,
}

// outsideRules allow a thread to change only its own limits and priorities. Landlock
// does not restrict this, and a limit of processor time kills a process.
var outsideRules = []filterRule{
	{call: unix.SYS_PRLIMIT64, answer: answerRefused, when: condition{arg: 0, is: differs, value: 0}},
	{call: unix.SYS_SCHED_SETAFFINITY, answer: answerRefused, when: condition{arg: 0, is: differs, value: 0}},
	{call: unix.SYS_SCHED_SETSCHEDULER, answer: answerRefused, when: condition{arg: 0, is: differs, value: 0}},
	{call: unix.SYS_SCHED_SETPARAM, answer: answerRefused, when: condition{arg: 0, is: differs, value: 0}},
	{call: unix.SYS_SCHED_SETATTR, answer: answerRefused, when: condition{arg: 0, is: differs, value: 0}},
	{call: unix.SYS_SETPRIORITY, answer: answerRefused, when: condition{arg: 0, is: differs, value: unix.PRIO_PROCESS}},
	{call: unix.SYS_SETPRIORITY, answer: answerRefused, when: condition{arg: 1, is: differs, value: 0}},
	{call: unix.SYS_IOPRIO_SET, answer: answerRefused, when: condition{arg: 0, is: differs, value: ioprioProcess}},
	{call: unix.SYS_IOPRIO_SET, answer: answerRefused, when: condition{arg: 1, is: differs, value: 0}},
}

const ioprioProcess = 1

// metadataRefused are calls that change metadata, which Landlock does not restrict.
var metadataRefused = []uintptr{
	unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2, unix.SYS_FCHOWN, unix.SYS_FCHOWNAT, unix.SYS_UTIMENSAT,
	unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_SETXATTRAT,
	unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR, unix.SYS_REMOVEXATTRAT, unix.SYS_FILE_SETATTR,
}

// fileIoctlRules refuse requests that change files opened for reading. Other such
// requests need more privileges, or a file opened for writing.
var fileIoctlRules = []filterRule{{call: unix.SYS_IOCTL, answer: answerRefused, when: condition{arg: 1, is: oneOf, values: []uint32{
	fsSetFlags, fsSetFlags32, fsSetVersion, fsSetVersion32, ext4SetVersion, ext4SetVersion32, fatSetAttributes, fsSetExtendedAttributes, fsSetEncryptionPolicy, fsEnableVerity,
	btrfsSubvolumeCreate, btrfsSubvolumeCreate2, btrfsSnapshotCreate, btrfsSnapshotCreate2, btrfsSnapshotDestroy,
	btrfsSnapshotDestroy2, btrfsSubvolumeSetFlags, btrfsSetReceived,
}}}}

// Requests of ioctl. The number encodes the size of the argument.
const (
	fsSetFlags              = 0x40086602
	fsSetFlags32            = 0x40046602
	fsSetVersion            = 0x40087602
	fsSetVersion32          = 0x40047602
	ext4SetVersion          = 0x40086604
	ext4SetVersion32        = 0x40046604
	fatSetAttributes        = 0x40047211
	fsSetExtendedAttributes = 0x401c5820
	fsSetEncryptionPolicy   = 0x800c6613
	fsEnableVerity          = 0x40806685
	btrfsSnapshotCreate     = 0x50009401
	btrfsSubvolumeCreate    = 0x5000940e
	btrfsSnapshotDestroy    = 0x5000940f
	btrfsSnapshotCreate2    = 0x50009417
	btrfsSubvolumeCreate2   = 0x50009418
	btrfsSubvolumeSetFlags  = 0x4008941a
	btrfsSetReceived        = 0xc0c89425
	btrfsSnapshotDestroy2   = 0x5000943f
)
