// Package sandbox confines programs: it restricts their access to files and to the
// network, and reports what it enforces.
//
// A [Policy] describes what a program may access. [Policy.Resolve] resolves it on this
// machine to a [Plan], which has paths without links and the access to each.
// [Sandboxes] are the backends that work on this machine, which they find out by
// self-tests. [Sandboxes.Confine] chooses the strongest backend that can enforce a plan
// and returns a [Confinement], which starts programs. What cannot be enforced is an
// error; nothing is weakened silently.
//
// # All backends
//
// A program has no_new_privs set (so set-user-id bits have no effect), no capabilities
// (also as root), no descriptors of this process, and a seccomp filter. The filter
// refuses ptrace, access to the memory of other processes, io_uring, mounts,
// namespaces, keys, BPF, the kernel log, inserting terminal input, leases, and system
// calls that are newer than the filter. If the network is restricted, it also refuses
// sockets of all families, and connect, bind, listen, accept and sends with an address;
// stream socket pairs remain possible.
//
// A program of another user ([Program.User]) is confined alike. The child becomes that user before
// Landlock's calls, and after those that make the mounts of bubblewrap, which bwrap, as that user,
// can then only use.
//
// With Landlock the child confines itself between fork and execve: see fork.go. In
// bubblewrap, bwrap loads the filter, and the executable of this program, which is
// executed again inside, does the rest: see package innerexec.
//
// # Bubblewrap
//
// Mounts determine what a program can access, so every plan can be expressed, and
// changes of metadata are only possible where files are writable. Processes outside are
// invisible. /proc, /dev and /dev/shm are those of the sandbox: a plan can neither grant
// nor deny anything there. Mounts that are made outside later do not appear.
//
// The child creates most mounts before it executes bwrap (child_calls.go, view.go), in a
// mount namespace of its own, and in a user namespace unless this process may mount.
// There everything is read-only that is not granted, and each path is mounted on by
// descriptor. So symbolic links that other programs create have no effect: bwrap, which
// follows links, finds no mount point that they can write to, and cannot write to
// anything outside.
//
// The program is a grandchild of bwrap. The two processes of bwrap are in its process
// group and block all signals, so that they end after the program. One of them is
// inside and has the filter, too, because the program can write its memory. The exit
// code is 128+n if the program was killed by signal n.
//
// If this process is root, the kernel treats the program as root, also in a user
// namespace. So /proc and the mounts of devices are read-only then, because root could
// write system settings and change the mode of devices; and streams that are /dev/null
// are replaced by /dev/null of the sandbox. Programs with a restricted network share a
// network namespace, which is empty.
//
// # Landlock
//
// Landlock rules only grant access, so a plan that grants less below a path than at the
// path is refused. Landlock does not restrict changes of metadata (mode, owner, times,
// extended attributes). If writing is restricted, the filter therefore refuses all of
// them, also in writable directories. Other processes are visible, but cannot be
// signalled, and their memory, environment, root and descriptors cannot be read. The
// filter refuses what Landlock does not restrict: setting limits and priorities of other
// threads, and System V and POSIX message queues, semaphores and shared memory.
// Terminals cannot be created. If the root directory is readable, each entry but /dev
// gets a rule. Of the machine's devices, harmless ones are accessible, and those that a
// policy names.
//
// # Limitations
//
// With the network enabled, a program can connect to what listens on this machine: to
// sockets at visible paths, ports on loopback and, in bubblewrap, abstract sockets.
// These have to authenticate clients; so do the listeners of this program. If this
// process is root, files that a program creates in a writable directory belong to root,
// and it can set their set-user-id bit. Memory and processor time are not limited.
//
// A denied path in a directory that is not writable is visible if it did not exist at
// the start and another process creates it. If a directory is mounted at several paths,
// an entry applies only to the path that it names.
//
// A program that can replace the path of another program's entry (or a directory above)
// at the moment of that program's start can choose which file is denied, or make the
// file that was there writable. If it replaces the path later, the former file remains
// denied and the new one is not. It can do so if its own policy does not have the path,
// or if the path was created after its start; the latter also applies to a file .git in a
// writable directory that is not a workspace root. In a directory that every user can write
// to, nothing is protected unless it is a workspace root.
package sandbox
