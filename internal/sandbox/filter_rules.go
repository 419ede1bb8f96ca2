package sandbox

import (
	"slices"

	"golang.org/x/sys/unix"
)

// filterKind is which rules a filter has, and what the starter does beside. The zero value has those that always hold.
type filterKind struct {
	network  bool // sockets are refused
	metadata bool // changes of mode, owner, times and extended attributes are refused
	landlock bool // a ruleset of Landlock is enforced with it
	outside  bool // processes outside are seen: what would reach them without a signal is refused
	// sealed tells that bubblewrap's devices are root's. They are those of the machine, and root in a namespace could
	// change the mode and the owner of them for everybody.
	sealed bool
	// early tells that it is the filter alone, without a starter.
	early bool
}

func (k filterKind) program() []unix.SockFilter { return compile(k.rules()) }

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

// firstUnknown is the number of the first call that was not looked at for these rules: they are about those of Linux
// 6.18, which have the same numbers on all architectures from 424 on. Programs take a later one for missing, as on the
// kernels before it. So are those of x32, which have the architecture of amd64 and numbers from 0x40000000 on.
const firstUnknown = unix.SYS_FILE_SETATTR + 1

// alwaysRefused reach into other processes or the kernel. What a build needs is not among them.
var alwaysRefused = []uintptr{
	// Other processes.
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE,
	unix.SYS_PIDFD_GETFD, unix.SYS_KCMP, unix.SYS_MOVE_PAGES, unix.SYS_MIGRATE_PAGES,
	// System calls that no filter sees.
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	// Mounts and namespaces.
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_CHROOT,
	// Files by handle, which no path leads to.
	unix.SYS_OPEN_BY_HANDLE_AT,
	// Keys are shared with the processes of the same user.
	unix.SYS_ADD_KEY, unix.SYS_KEYCTL, unix.SYS_REQUEST_KEY,
	// Parts of the kernel with a long record of holes, and of no use without privileges.
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
	{call: unix.SYS_CLONE, answer: answerRefused, when: []condition{{arg: 0, is: hasAny, value: cloneNamespaces}}},
	{call: unix.SYS_CLONE3, answer: answerMissing},
}

// terminalRules refuse to put input into a terminal, which whoever reads it next would take for typed, and to load
// another line discipline.
var terminalRules = []filterRule{
	{call: unix.SYS_IOCTL, answer: answerRefused, when: []condition{{arg: 1, is: oneOf, values: []uint32{unix.TIOCSTI, tioclinux, unix.TIOCSETD}}}},
}

const tioclinux = 0x541c

// leaseRules refuse leases, with which a program that may only read a file stops whoever opens it for writing, for as
// long as /proc/sys/fs/lease-break-time, and signals of changes in a directory. inotify tells of those too, and has limits.
var leaseRules = []filterRule{
	{call: unix.SYS_FCNTL, answer: answerRefused, when: []condition{{arg: 1, is: oneOf, values: []uint32{unix.F_SETLEASE, unix.F_NOTIFY, setDelegation}}}},
}

// setDelegation is F_SETDELEG, which later kernels have: leases of directories.
const setDelegation = 1040

// networkRefused are needed by nobody who has only stream socket pairs.
var networkRefused = []uintptr{
	unix.SYS_SOCKET, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_ACCEPT, unix.SYS_ACCEPT4,
}

// socketType are the bits of a socket's type that are no flags.
const socketType = 0xf

// networkRules let stream and packet socket pairs pass, which cannot send to an address. A pair of datagram sockets
// could, through sendmsg, whose address is in memory.
var networkRules = []filterRule{
	{call: unix.SYS_SENDTO, answer: answerRefused, when: []condition{{arg: 4, is: notNull, value: 0}}},
	{call: unix.SYS_SOCKETPAIR, answer: answerRefused, when: []condition{{arg: 0, is: differs, value: unix.AF_UNIX}}},
	// Of all types only SOCK_STREAM, 1, and SOCK_SEQPACKET, 5, have bit 0 and neither bit 1 nor 3.
	{call: unix.SYS_SOCKETPAIR, answer: answerRefused, when: []condition{{arg: 1, is: hasNone, value: unix.SOCK_STREAM}}},
	{call: unix.SYS_SOCKETPAIR, answer: answerRefused, when: []condition{{arg: 1, is: hasAny, value: socketType &^ unix.SOCK_SEQPACKET}}},
}

// outsideRefused are ways to exchange data with any process of the same user.
var outsideRefused = []uintptr{
	unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_SEMCTL,
	unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL, unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK,
	// A queue that has a path where they are mounted is open without mq_open.
	unix.SYS_MQ_TIMEDSEND, unix.SYS_MQ_TIMEDRECEIVE, unix.SYS_MQ_NOTIFY, unix.SYS_MQ_GETSETATTR,
}

// outsideRules let a thread change only its own limits and priorities: Landlock does not fence those of others, and a
// limit of processor time ends a process as well as a signal does.
var outsideRules = []filterRule{
	{call: unix.SYS_PRLIMIT64, answer: answerRefused, when: []condition{{arg: 0, is: differs, value: 0}}},
	{call: unix.SYS_SCHED_SETAFFINITY, answer: answerRefused, when: []condition{{arg: 0, is: differs, value: 0}}},
	{call: unix.SYS_SCHED_SETSCHEDULER, answer: answerRefused, when: []condition{{arg: 0, is: differs, value: 0}}},
	{call: unix.SYS_SCHED_SETPARAM, answer: answerRefused, when: []condition{{arg: 0, is: differs, value: 0}}},
	{call: unix.SYS_SCHED_SETATTR, answer: answerRefused, when: []condition{{arg: 0, is: differs, value: 0}}},
	{call: unix.SYS_SETPRIORITY, answer: answerRefused, when: []condition{{arg: 0, is: differs, value: unix.PRIO_PROCESS}}},
	{call: unix.SYS_SETPRIORITY, answer: answerRefused, when: []condition{{arg: 1, is: differs, value: 0}}},
	{call: unix.SYS_IOPRIO_SET, answer: answerRefused, when: []condition{{arg: 0, is: differs, value: ioprioProcess}}},
	{call: unix.SYS_IOPRIO_SET, answer: answerRefused, when: []condition{{arg: 1, is: differs, value: 0}}},
}

const ioprioProcess = 1

// metadataRefused change what Landlock does not fence.
var metadataRefused = []uintptr{
	unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2, unix.SYS_FCHOWN, unix.SYS_FCHOWNAT, unix.SYS_UTIMENSAT,
	unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_SETXATTRAT,
	unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR, unix.SYS_REMOVEXATTRAT, unix.SYS_FILE_SETATTR,
}

// fileIoctlRules refuse what changes files that are only open for reading. Others of these need more than their owner
// has, or a file open for writing.
var fileIoctlRules = []filterRule{{call: unix.SYS_IOCTL, answer: answerRefused, when: []condition{{arg: 1, is: oneOf, values: []uint32{
	fsSetFlags, fsSetFlags32, fsSetVersion, fsSetVersion32, ext4SetVersion, ext4SetVersion32, fatSetAttributes, fsSetExtendedAttributes, fsSetEncryptionPolicy, fsEnableVerity,
	btrfsSubvolumeCreate, btrfsSubvolumeCreate2, btrfsSnapshotCreate, btrfsSnapshotCreate2, btrfsSnapshotDestroy,
	btrfsSnapshotDestroy2, btrfsSubvolumeSetFlags, btrfsSetReceived,
}}}}}

// Requests of ioctl, for a structure of which the number has the size.
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
