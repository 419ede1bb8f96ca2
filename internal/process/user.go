package process

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/osuser"
	"github.com/execwire/execwire/internal/sandbox"
)

// credential returns what a child has to become to be a process of u; nil if it is one already.
func credential(u *osuser.User) *sandbox.Credential {
	if u == nil || u.IsSelf() {
		return nil
	}
	return &sandbox.Credential{UID: u.UID, GID: u.GID, Groups: u.Groups}
}

// userCapabilities are needed for processes of other users: to start them, to give them their
// pipes, and to signal and kill them.
const userCapabilities = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_CHOWN | 1<<unix.CAP_KILL

// checkUser returns an error of kind UserUnavailable if this program cannot start processes of u.
func checkUser(u *osuser.User) error {
	if credential(u) == nil {
		return nil
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return userUnavailable(*u, err)
	}
	if sets[0].Effective&userCapabilities != userCapabilities {
		return userUnavailable(*u, errors.New("it needs the capabilities CAP_SETUID, CAP_SETGID, CAP_CHOWN and CAP_KILL"))
	}
	return nil
}

// userUnavailable returns the typed error for a user as whom no process can be started.
func userUnavailable(u osuser.User, cause error) *Error {
	why := fmt.Errorf("the server, which runs as %v, cannot start processes as %v (%w): leave the user out, begin the command with %s, or use a server that runs as root or as that user",
		osuser.ByUID(os.Geteuid()), u, cause, sudo(u))
	return &Error{Kind: UserUnavailable, Field: "user", Err: why, operation: "start process"}
}

// sudo returns the command that changes to a user.
func sudo(u osuser.User) string {
	command := "sudo -u " + u.Name
	if u.Name == "" {
		command = fmt.Sprintf("sudo -u '#%d'", u.UID)
	}
	if u.ChoseGroup {
		command += fmt.Sprintf(" -g '#%d'", u.GID)
	}
	return command
}

// asUser calls f with the access to files of u, and returns its error. f runs in another goroutine,
// on a thread that has the groups of u and its user and group for files; the user of that thread
// stays that of this program, so that processes of u cannot signal it.
func asUser(u *osuser.User, f func() error) error {
	to := credential(u)
	if to == nil {
		return f()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine, unless everything was undone
		own, err := threadAccess()
		if err == nil {
			err = setThreadAccess(*to)
		}
		if err != nil {
			done <- userUnavailable(*u, err)
			return
		}
		err = f()
		if setThreadAccess(own) == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// unchanged, as a user or a group, changes nothing.
const unchanged = -1

// threadAccess returns the user and the groups that decide on access to files for the calling
// thread.
func threadAccess() (c sandbox.Credential, err error) {
	groups, err := unix.Getgroups()
	for _, group := range groups {
		c.Groups = append(c.Groups, uint32(group))
	}
	uid, _ := unix.SetfsuidRetUid(unchanged) // which have no errors
	gid, _ := unix.SetfsgidRetGid(unchanged)
	c.UID, c.GID = uint32(uid), uint32(gid)
	return c, err
}

// setThreadAccess sets them. Functions of package syscall would do so for all threads.
func setThreadAccess(c sandbox.Credential) error {
	list := append(slices.Clone(c.Groups), 0) // not empty
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(c.Groups)), uintptr(unsafe.Pointer(&list[0])), 0); errno != 0 {
		return errno
	}
	_, _ = unix.SetfsgidRetGid(int(c.GID))
	_, _ = unix.SetfsuidRetUid(int(c.UID))
	if now, err := threadAccess(); err != nil || now.UID != c.UID || now.GID != c.GID {
		return unix.EPERM
	}
	return nil
}
