package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/testproc"
)

var fileAttempts = map[string]attempt{
	"take a lease": {make: func(s stage) error {
		return reading(s.outside(), func(fd int) error {
			_, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
			return err
		})
	}},
	"be notified of a directory": {make: func(s stage) error {
		return reading(filepath.Dir(s.outside()), func(fd int) error {
			_, err := unix.FcntlInt(uintptr(fd), unix.F_NOTIFY, dnModify)
			return err
		})
	}},
	"read another terminal": {make: func(s stage) error {
		fd, err := unix.Open(s.Pty, unix.O_RDONLY|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	}},
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

// dnModify is DN_MODIFY, which package unix does not have.
const dnModify = 0x2
