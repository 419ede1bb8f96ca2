// Package sandbox describes, applies and reports the confinement of programs.
//
// A [Policy] says what a program may touch. [Policy.Resolve] looks at the machine and makes it a [Plan]: places by their
// real paths, each with what is granted there. [Sandboxes] are the ways to enforce plans that were tried out and work
// here; they choose the strongest that can express a plan, or fail. A [Confinement] starts one program as the plan says.
// Nothing is weakened in silence: what cannot be enforced is refused.
//
// # What every backend does
//
// The program gets no new privileges (set-user-id bits mean nothing), no capabilities (also of root), none of this
// process's descriptors, and a seccomp filter that refuses ptrace, the memory of other processes, io_uring, mounts,
// namespaces, keys, BPF, the kernel's log, putting input into a terminal, leases, and calls that are newer than it. If the
// network is restricted it also refuses sockets of every family, and connect, bind, listen, accept and addressed
// sends; stream socket pairs stay. The filter is loaded, and signals are unblocked, by a starter of a few hundred
// bytes that every confined program begins as: see starter.go.
//
// # Bubblewrap
//
// Mounts make the view of the file system, so that everything a plan can say is expressed, and changes of metadata
// outside what is writable are refused with the rest. Processes outside are not seen. /proc, /dev and /dev/shm are
// fresh: a plan neither grants nor denies anything there. What is mounted outside later does not come in.
//
// Most of the view is made before bubblewrap, by a preparer of a few hundred bytes which then becomes bubblewrap: see
// preparation.go and view.go. It is in a mount namespace of its own, and in a user namespace unless this process has power
// over mounts. Everything is read-only there that is not granted, and every place is mounted on by its descriptor. So
// links that another program puts in the way lead nowhere: bubblewrap itself, which follows them, mounts on nothing that
// any program can write to, and can write to nothing outside.
//
// The program is a grandchild of bubblewrap, whose own two processes have every signal blocked, so that they end with the
// program and not before it; they are in its process group. If this process is root, /proc and the mounts of devices are
// read-only inside: to the kernel root is root, also in a namespace, and may write system settings and change the modes of
// devices; a stream that is /dev/null becomes that of inside. Root's programs without a network share one namespace that
// has none. Bubblewrap's process inside has the filter too, since the program may write into its memory. Whoever is told
// of bubblewrap's end is told 128+n where the program was ended by signal n.
//
// # Landlock
//
// Rules only grant, so nothing below a place can have less than the place: a plan with holes is refused. Landlock does
// not fence changes of metadata (mode, owner, times, extended attributes) by the owner of a file. Where it fences
// writes, the filter therefore refuses all such changes, inside the writable places too. Other processes are seen but
// not touched: no signals, and nothing of their memory, environment, root or descriptors. The filter refuses what Landlock
// does not fence: the limits and priorities of others (of other threads too), System V and POSIX message queues,
// semaphores and shared memory. No terminals can be made. Where a plan lets the root be read, a rule grants each thing in
// it but /dev: of the machine's devices only those that harm nobody are granted, and those that a policy names one by one.
//
// # What no backend does
//
// With the network enabled a program reaches what listens on this machine: sockets with a path that it may see, ports
// of the loopback and, in bubblewrap, abstract sockets. Those must authenticate, this program's own among them. If this
// process is root, what it makes in a writable place is root's outside too, with the set-user-id bit if it has set it.
// Nothing limits memory or processor time.
//
// A place that is denied where the program cannot write anyway, and that did not exist at the start, is seen when
// somebody else makes it. A place that is also mounted elsewhere is denied only where it is named. A program that may
// exchange the entry which another's policy names, or a directory above it, just when the other starts can have what it
// puts there denied, or what was there left as writable as what is around it; when it does so later, what was there stays
// denied, and what it puts there is not. It may if its own policy does not name the place, or if the place, a file called
// .git in a writable place that is no workspace root for one, came into being after its start. In a place that every
// user can write to nothing is protected unless it is a workspace root.
package sandbox
