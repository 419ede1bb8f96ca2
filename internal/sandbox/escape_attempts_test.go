package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/testproc"
)

// stage is where an attempt to escape is made, fresh for each.
type stage struct {
	Base   string // the working directory, which has the sockets
	Dir    string // has inside, which is writable, and outside, which is only readable
	Server int    // the pid of who started it
	Secret uint64 // where in the server's memory a secret is
	File   int    // a descriptor of the server's, open on a file with the secret, that passes through exec
	TCP    int    // the port of a listener
	UDP    int
	Path   string // of a stream socket, relative to Base
	Packet string // of a datagram socket, too
	Name   string // of an abstract stream socket
	Shared int    // the number of a segment of shared memory
	Setuid string // the path of this program, owned by root and with the set-user-id bit
	Cgroup string // a control group
}

const secret = "the server's secret"

func (s stage) outside() string { return filepath.Join(s.Dir, "outside", "file") }
func (s stage) inside() string  { return filepath.Join(s.Dir, "inside", "file") }

func (s stage) proc(name string) string { return filepath.Join("/proc", strconv.Itoa(s.Server), name) }

// attempt is one way to do what a sandbox is there to keep from happening. It succeeds without one.
type attempt struct {
	make func(stage) error
	// root: only root succeeds without a sandbox; ordinary: only an ordinary user has something to gain.
	root, ordinary bool
}

func write(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString("x")
	return errors.Join(err, file.Close())
}

// reading has a file open for reading.
func reading(path string, do func(fd int) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return do(int(file.Fd()))
}

// wants is an error unless the secret is there.
func wants(content []byte, err error) error {
	if err == nil && !strings.Contains(string(content), secret) {
		err = fmt.Errorf("the secret is not in %q", content)
	}
	return err
}

func system(call uintptr, args ...uintptr) error {
	args = append(args, 0, 0, 0, 0, 0, 0)
	_, _, errno := unix.Syscall6(call, args[0], args[1], args[2], args[3], args[4], args[5])
	if errno != 0 {
		return errno
	}
	return nil
}

func withSocket(domain, kind, protocol int, do func(fd int) error) error {
	fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	defer unix.Close(fd)
	return do(fd)
}

func loopback(port int) unix.Sockaddr {
	return &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}
}

func connectTo(address unix.Sockaddr) func(int) error {
	return func(fd int) error { return unix.Connect(fd, address) }
}

// namespaces are those that the user may make.
func namespaces(flags uintptr) uintptr {
	if os.Geteuid() != 0 {
		flags |= unix.CLONE_NEWUSER
	}
	return flags
}

func forkWith(flags uintptr) error {
	command := exec.Command("/bin/true")
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	return command.Run()
}

var fileAttempts = map[string]attempt{
	"write":                {make: func(s stage) error { return write(s.outside()) }},
	"truncate":             {make: func(s stage) error { return os.Truncate(s.outside(), 0) }},
	"open and truncate":    {make: func(s stage) error { f, err := os.Create(s.outside()); _ = f.Close(); return err }},
	"create":               {make: func(s stage) error { return os.WriteFile(s.outside()+"2", nil, 0o600) }},
	"create unnamed":       {make: func(s stage) error { return reading2(filepath.Dir(s.outside()), unix.O_TMPFILE|unix.O_RDWR) }},
	"remove":               {make: func(s stage) error { return os.Remove(s.outside()) }},
	"make directory":       {make: func(s stage) error { return os.Mkdir(s.outside()+"2", 0o700) }},
	"make FIFO":            {make: func(s stage) error { return unix.Mkfifo(s.outside()+"2", 0o600) }},
	"make link":            {make: func(s stage) error { return os.Symlink("x", s.outside()+"2") }},
	"make device":          {root: true, make: func(s stage) error { return unix.Mknod(s.inside()+"2", unix.S_IFCHR|0o600, 0x105) }},
	"write by dots":        {make: func(s stage) error { return write(s.Dir + "/inside/../outside/file") }},
	"write by link":        {make: byLink},
	"write by hard link":   {make: byHardLink},
	"rename out":           {make: func(s stage) error { return os.Rename(s.inside(), s.outside()) }},
	"rename in":            {make: func(s stage) error { return os.Rename(s.outside(), s.inside()+"2") }},
	"exchange":             {make: exchange},
	"write by own root":    {make: func(s stage) error { return write("/proc/self/root" + s.outside()) }},
	"write by root":        {make: func(s stage) error { return write(s.proc("root") + s.outside()) }},
	"write by directory":   {make: func(s stage) error { return write(s.proc("cwd") + "/outside/file") }},
	"write by handle":      {root: true, make: byHandle},
	"change mode":          {make: func(s stage) error { return os.Chmod(s.outside(), 0o644) }},
	"change mode, open":    {make: func(s stage) error { return reading(s.outside(), func(fd int) error { return unix.Fchmod(fd, 0o644) }) }},
	"change mode, newer":   {make: func(s stage) error { return unix.Fchmodat(unix.AT_FDCWD, s.outside(), 0o644, unix.AT_SYMLINK_NOFOLLOW) }},
	"change owner":         {make: func(s stage) error { return os.Chown(s.outside(), os.Getuid(), os.Getgid()) }},
	"change owner of link": {make: func(s stage) error { return os.Lchown(s.outside(), os.Getuid(), os.Getgid()) }},
	"change owner, open": {make: func(s stage) error {
		return reading(s.outside(), func(fd int) error { return unix.Fchown(fd, os.Getuid(), os.Getgid()) })
	}},
	"give away":        {root: true, make: func(s stage) error { return os.Chown(s.outside(), 1, 1) }},
	"give away inside": {root: true, make: func(s stage) error { return os.Chown(s.inside(), 1, 1) }},
	"change times":     {make: func(s stage) error { return unix.UtimesNanoAt(unix.AT_FDCWD, s.outside(), nil, 0) }},
	"change times, open": {make: func(s stage) error {
		return reading(s.outside(), func(fd int) error { return unix.Futimes(fd, make([]unix.Timeval, 2)) })
	}},
	"set attribute": {make: func(s stage) error { return unix.Setxattr(s.outside(), "user.execwire", []byte("x"), 0) }},
	"set attribute, open": {make: func(s stage) error {
		return reading(s.outside(), func(fd int) error { return unix.Fsetxattr(fd, "user.execwire", []byte("x"), 0) })
	}},
	"set flags":              {make: setFlags},
	"mount":                  {make: mountInside},
	"remount":                {make: remount},
	"change root":            {root: true, make: func(s stage) error { return unix.Chroot(s.Dir) }},
	"write a system setting": {root: true, make: func(stage) error { return reading2("/proc/sys/kernel/panic", unix.O_WRONLY) }},
	"leave control group":    {root: true, make: func(s stage) error { return os.WriteFile(s.Cgroup+"/cgroup.procs", []byte("0"), 0) }},
}

func reading2(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o600)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

func byLink(s stage) error {
	if err := os.Symlink("../outside/file", s.inside()+".link"); err != nil {
		return err
	}
	return write(s.inside() + ".link")
}

func byHardLink(s stage) error {
	if err := os.Link(s.outside(), s.inside()+".link"); err != nil {
		return err
	}
	return write(s.inside() + ".link")
}

func exchange(s stage) error {
	return unix.Renameat2(unix.AT_FDCWD, s.inside(), unix.AT_FDCWD, s.outside(), unix.RENAME_EXCHANGE)
}

func byHandle(s stage) error {
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, s.outside(), 0)
	if err != nil {
		return err
	}
	return reading(filepath.Dir(s.inside()), func(fd int) error {
		fd, err := unix.OpenByHandleAt(fd, handle, unix.O_RDWR)
		if err == nil {
			_ = unix.Close(fd)
		}
		return err
	})
}

// setFlags sets the flag that backups heed.
func setFlags(s stage) error {
	return reading(s.outside(), func(fd int) error {
		flags := int(0x40)
		return system(unix.SYS_IOCTL, uintptr(fd), fsSetFlags, uintptr(unsafe.Pointer(&flags)))
	})
}

// mountInside mounts as root in the namespace of the server, which is not that of the test.
func mountInside(s stage) error {
	if err := unix.Mount("none", filepath.Dir(s.inside()), "tmpfs", 0, ""); err == nil {
		return nil
	}
	return inNamespace(s, "tmpfs")
}

// remount makes what is read-only writable. Without a sandbox it is made read-only first.
func remount(s stage) error { return inNamespace(s, "remount") }

// inNamespace makes an attempt in a new namespace of mounts, in which the user may mount.
func inNamespace(s stage, name string) error {
	argv := testproc.Argv("sandbox-mount", name, s.Dir)
	command := exec.Command(argv[0], argv[1:]...)
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces(unix.CLONE_NEWNS)}
	if os.Geteuid() != 0 {
		command.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
	}
	output, err := command.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, output)
	}
	return err
}

func mountAttempt(args []string) int {
	outside := filepath.Join(args[1], "outside")
	err := errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("none", filepath.Join(args[1], "inside"), "tmpfs", 0, ""),
	)
	if args[0] == "remount" {
		err = errors.Join(err,
			unix.Mount(outside, outside, "", unix.MS_BIND, ""),
			unix.Mount("", outside, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""),
			unix.Mount("", outside, "", unix.MS_REMOUNT|unix.MS_BIND, ""),
			write(filepath.Join(outside, "file")),
		)
	}
	if err != nil {
		fmt.Fprint(os.Stderr, err)
		return 1
	}
	return 0
}

func init() { testproc.Register("sandbox-mount", mountAttempt) }

var processAttempts = map[string]attempt{
	"read environment":     {make: func(s stage) error { return wants(os.ReadFile(s.proc("environ"))) }},
	"read memory":          {make: readMemory},
	"read maps":            {make: func(s stage) error { _, err := os.ReadFile(s.proc("maps")); return err }},
	"read memory by call":  {make: readByCall},
	"write memory by call": {make: writeByCall},
	"read descriptors":     {make: func(s stage) error { return wants(os.ReadFile(s.proc("fd/" + strconv.Itoa(s.File)))) }},
	"take descriptor":      {make: takeDescriptor},
	"use what is inherited": {make: func(s stage) error {
		content := make([]byte, 100)
		n, err := unix.Pread(s.File, content, 0)
		return wants(content[:max(n, 0)], err)
	}},
	"trace":         {make: func(s stage) error { return system(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(s.Server)) }},
	"signal":        {make: func(s stage) error { return unix.Kill(s.Server, unix.SIGCONT) }},
	"signal thread": {make: func(s stage) error { return unix.Tgkill(s.Server, s.Server, unix.SIGCONT) }},
	"signal by descriptor": {make: func(s stage) error {
		fd, err := unix.PidfdOpen(s.Server, 0)
		if err != nil {
			return err
		}
		return unix.PidfdSendSignal(fd, unix.SIGCONT, nil, 0)
	}},
	"set limits":             {make: setLimits},
	"set priority":           {make: func(s stage) error { return unix.Setpriority(unix.PRIO_PROCESS, s.Server, 0) }},
	"set affinity":           {make: setAffinity},
	"attach shared memory":   {make: func(s stage) error { return system(unix.SYS_SHMAT, uintptr(s.Shared), 0, unix.SHM_RDONLY) }},
	"make user namespace":    {make: func(stage) error { return forkWith(unix.CLONE_NEWUSER) }},
	"leave namespace":        {root: true, make: func(stage) error { return unix.Unshare(unix.CLONE_NEWNET) }},
	"fork into namespace":    {make: func(stage) error { return forkWith(namespaces(unix.CLONE_NEWNET)) }},
	"fork by the newer call": {make: cloneNamespace},
	"enter namespace": {root: true, make: func(s stage) error {
		return reading(s.proc("ns/uts"), func(fd int) error { return unix.Setns(fd, unix.CLONE_NEWUTS) })
	}},
	"gain by set-user-id": {ordinary: true, make: bySetuid},
	"keep privileges":     {root: true, make: func(stage) error { return unix.Setuid(1) }},
	"use io_uring": {make: func(stage) error {
		var params [120]byte
		return system(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)))
	}},
	"use keys": {make: func(stage) error {
		_, err := unix.AddKey("user", "execwire", []byte("x"), unix.KEY_SPEC_PROCESS_KEYRING)
		return err
	}},
	"load BPF": {root: true, make: loadBPF},
	"put input into terminal": {root: true, make: func(stage) error {
		c := byte('x')
		return system(unix.SYS_IOCTL, 0, unix.TIOCSTI, uintptr(unsafe.Pointer(&c)))
	}},
}

func readMemory(s stage) error {
	return reading(s.proc("mem"), func(fd int) error {
		content := make([]byte, len(secret))
		_, err := unix.Pread(fd, content, int64(s.Secret))
		return wants(content, err)
	})
}

func vector(content []byte) []unix.Iovec {
	return []unix.Iovec{{Base: &content[0], Len: uint64(len(content))}}
}

func readByCall(s stage) error {
	content := make([]byte, len(secret))
	_, err := unix.ProcessVMReadv(s.Server, vector(content), []unix.RemoteIovec{{Base: uintptr(s.Secret), Len: len(secret)}}, 0)
	return wants(content, err)
}

func writeByCall(s stage) error {
	_, err := unix.ProcessVMWritev(s.Server, vector([]byte(secret)), []unix.RemoteIovec{{Base: uintptr(s.Secret), Len: len(secret)}}, 0)
	return err
}

func takeDescriptor(s stage) error {
	pid, err := unix.PidfdOpen(s.Server, 0)
	if err != nil {
		return err
	}
	_, err = unix.PidfdGetfd(pid, s.File, 0)
	return err
}

func setLimits(s stage) error {
	var limit unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_CORE, nil, &limit); err != nil {
		return err
	}
	return unix.Prlimit(s.Server, unix.RLIMIT_CORE, &limit, nil)
}

func setAffinity(s stage) error {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return err
	}
	return unix.SchedSetaffinity(s.Server, &set)
}

// cloneNamespace forks by clone3 a child that ends at once.
func cloneNamespace(stage) error {
	args := [11]uint64{0: uint64(namespaces(unix.CLONE_NEWNET)) | unix.CLONE_VFORK, 4: uint64(unix.SIGCHLD)}
	pid, _, errno := unix.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
	if errno != 0 {
		return errno
	}
	if pid == 0 {
		for {
			_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	_, err := unix.Wait4(int(pid), nil, 0, nil)
	return err
}

func bySetuid(s stage) error {
	argv := testproc.Argv("sandbox-who")
	output, err := exec.Command(s.Setuid, argv[1:]...).Output()
	if err == nil && string(output) != "0" {
		err = fmt.Errorf("is user %s", output)
	}
	return err
}

func init() {
	testproc.Register("sandbox-who", func([]string) int { fmt.Print(os.Geteuid()); return 0 })
}

// loadBPF loads a program that returns 0.
func loadBPF(stage) error {
	program := [2]uint64{0xb7, 0x95}
	licence := [...]byte{'G', 'P', 'L', 0}
	attr := struct {
		kind, count   uint32
		code, licence uint64
		rest          [96]byte
	}{kind: 1, count: 2, code: uint64(uintptr(unsafe.Pointer(&program))), licence: uint64(uintptr(unsafe.Pointer(&licence)))}
	return system(unix.SYS_BPF, 5, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
}

var networkAttempts = map[string]attempt{
	"connect to path": {make: func(s stage) error {
		return withSocket(unix.AF_UNIX, unix.SOCK_STREAM, 0, connectTo(&unix.SockaddrUnix{Name: s.Path}))
	}},
	"connect to abstract name": {make: func(s stage) error {
		return withSocket(unix.AF_UNIX, unix.SOCK_STREAM, 0, connectTo(&unix.SockaddrUnix{Name: s.Name}))
	}},
	"send to path": {make: func(s stage) error {
		return withSocket(unix.AF_UNIX, unix.SOCK_DGRAM, 0, func(fd int) error {
			return unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrUnix{Name: s.Packet})
		})
	}},
	"send to path from a pair": {make: func(s stage) error {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		return unix.Sendmsg(pair[0], []byte("x"), nil, &unix.SockaddrUnix{Name: s.Packet}, 0)
	}},
	"connect by TCP": {make: func(s stage) error { return withSocket(unix.AF_INET, unix.SOCK_STREAM, 0, connectTo(loopback(s.TCP))) }},
	"connect by MPTCP": {make: func(s stage) error {
		return withSocket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP, connectTo(loopback(s.TCP)))
	}},
	"connect by UDP": {make: func(s stage) error { return withSocket(unix.AF_INET, unix.SOCK_DGRAM, 0, connectTo(loopback(s.UDP))) }},
	"send by UDP": {make: func(s stage) error {
		return withSocket(unix.AF_INET, unix.SOCK_DGRAM, 0, func(fd int) error { return unix.Sendto(fd, []byte("x"), 0, loopback(s.UDP)) })
	}},
	"listen by TCP": {make: func(stage) error {
		return withSocket(unix.AF_INET, unix.SOCK_STREAM, 0, func(fd int) error {
			return errors.Join(unix.Bind(fd, loopback(0)), unix.Listen(fd, 1))
		})
	}},
	"listen at path": {make: func(s stage) error {
		return withSocket(unix.AF_UNIX, unix.SOCK_STREAM, 0, func(fd int) error {
			return errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: filepath.Join(filepath.Base(s.Dir), "inside", "own")}), unix.Listen(fd, 1))
		})
	}},
	"use netlink": {make: func(stage) error {
		return withSocket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE, func(fd int) error { return unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}) })
	}},
	"use raw sockets": {root: true, make: func(stage) error {
		return withSocket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP, func(int) error { return nil })
	}},
	"use packet sockets": {root: true, make: func(stage) error { return withSocket(unix.AF_PACKET, unix.SOCK_RAW, 0, func(int) error { return nil }) }},
}
