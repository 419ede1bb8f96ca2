// Package osuser finds users of this machine, as processes run as them: in /etc/passwd and
// /etc/group, which are read again each time.
package osuser

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// User is a user that a process can run as. It is immutable.
type User struct {
	// Name is the name in /etc/passwd; empty without an entry.
	Name string
	// UID and GID are the user and the group.
	UID, GID uint32
	// Groups are the supplementary groups. None if ChoseGroup is set.
	Groups []uint32
	// ChoseGroup is set if GID was chosen beside the user.
	ChoseGroup bool
	// Home is the home directory, absolute; / without an entry.
	Home string
	// Shell is the login shell; /bin/sh without an entry.
	Shell string
}

// database are the two files.
type database struct{ passwd, group string }

var system = database{passwd: "/etc/passwd", group: "/etc/group"}

// Lookup finds the user that text names: NAME or UID, with :GROUP or :GID after it for another
// group, which then is the only one. A name is preferred to the number that it looks like. A UID
// without an entry has the group of the same number, and no others. The error says what is wrong
// with the text, without it. It blocks on the files.
func Lookup(text string) (User, error) { return system.lookup(text) }

// ByUID returns the user with a UID.
func ByUID(uid int) User {
	u, _, err := system.find(func(e passwdEntry) bool { return e.uid == uint32(uid) })
	if err != nil || u.Name == "" {
		return unlisted(uint32(uid))
	}
	return u
}

// unlisted returns a user without an entry.
func unlisted(uid uint32) User { return User{UID: uid, GID: uid, Home: "/", Shell: defaultShell} }

const defaultShell = "/bin/sh"

func (d database) lookup(text string) (User, error) {
	who, group, hasGroup := strings.Cut(text, ":")
	if who == "" || hasGroup && group == "" {
		return User{}, errors.New("is not NAME or UID, with or without :GROUP or :GID")
	}
	u, listed, err := d.find(func(e passwdEntry) bool { return e.name == who })
	if uid, isNumber := parseID(who); err == nil && !listed && isNumber {
		if u, listed, err = d.find(func(e passwdEntry) bool { return e.uid == uid }); err == nil && !listed {
			u, listed = unlisted(uid), true
		}
	}
	switch {
	case err != nil:
		return User{}, err
	case !listed:
		return User{}, fmt.Errorf("names a user that %s does not have: name one that it has, or a number", d.passwd)
	case !hasGroup:
		u.Groups, err = d.groupsOf(u)
		return u, err
	}
	u.ChoseGroup = true
	u.GID, err = d.findGroup(group)
	return u, err
}

// parseID parses a UID or GID. The largest number means "unchanged" to the kernel.
func parseID(text string) (uint32, bool) {
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), err == nil && n != 1<<32-1
}

// passwdEntry is the beginning of a line of /etc/passwd.
type passwdEntry struct {
	name string
	uid  uint32
}

// find returns the first user that matches.
func (d database) find(matches func(passwdEntry) bool) (u User, listed bool, err error) {
	err = eachLine(d.passwd, 7, func(fields []string) bool {
		uid, ok := parseID(fields[2])
		gid, alsoOK := parseID(fields[3])
		if !ok || !alsoOK || fields[0] == "" || !matches(passwdEntry{name: fields[0], uid: uid}) {
			return true
		}
		u, listed = User{Name: fields[0], UID: uid, GID: gid, Home: "/", Shell: cmp.Or(fields[6], defaultShell)}, true
		if strings.HasPrefix(fields[5], "/") {
			u.Home = fields[5]
		}
		return false
	})
	return u, listed, err
}

// findGroup returns the GID of a group, which is named or given by number.
func (d database) findGroup(name string) (gid uint32, err error) {
	found := false
	err = eachLine(d.group, 4, func(fields []string) bool {
		if id, ok := parseID(fields[2]); ok && fields[0] == name {
			gid, found = id, true
		}
		return !found
	})
	if err != nil || found {
		return gid, err
	}
	if gid, found = parseID(name); !found {
		return 0, fmt.Errorf("names a group that %s does not have: name one that it has, or a number", d.group)
	}
	return gid, nil
}

// groupsOf returns the supplementary groups of a user.
func (d database) groupsOf(u User) (groups []uint32, err error) {
	if u.Name == "" {
		return nil, nil
	}
	err = eachLine(d.group, 4, func(fields []string) bool {
		gid, ok := parseID(fields[2])
		if ok && gid != u.GID && !slices.Contains(groups, gid) && slices.Contains(strings.Split(fields[3], ","), u.Name) {
			groups = append(groups, gid)
		}
		return true
	})
	return groups, err
}

// eachLine calls do with the fields of each line that has that many, until it returns false. A
// file that does not exist has no lines.
func eachLine(path string, fields int, do func(fields []string) bool) error {
	file, err := os.Open(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("cannot be looked up: %w", err)
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadString('\n')
		if split := strings.Split(strings.TrimSuffix(line, "\n"), ":"); len(split) == fields && !do(split) {
			return nil
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("cannot be looked up: %w", err)
		}
	}
}

// String returns the name, or the UID without one, and with a chosen group :GID.
func (u User) String() string {
	text := cmp.Or(u.Name, strconv.FormatUint(uint64(u.UID), 10))
	if u.ChoseGroup {
		text += ":" + strconv.FormatUint(uint64(u.GID), 10)
	}
	return text
}

// IsSelf reports whether a process of this program's user is one of u: the UID is the same, and
// no group was chosen.
func (u User) IsSelf() bool { return int(u.UID) == os.Geteuid() && !u.ChoseGroup }

// Includes reports whether u, as an entry of a list, has the other user: without a chosen group in
// those that the user has, and with one in that alone.
func (u User) Includes(other User) bool {
	switch {
	case u.UID != other.UID:
		return false
	case u.ChoseGroup:
		return other.ChoseGroup && u.GID == other.GID
	}
	return !other.ChoseGroup || other.GID == u.GID || slices.Contains(u.Groups, other.GID)
}

// The PATH of users, as login(1) sets it.
const (
	path     = "/usr/local/bin:/usr/bin:/bin"
	rootPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// Environ returns environ with HOME, USER, LOGNAME, SHELL and PATH of the user. A user without a
// name has no USER and LOGNAME.
func (u User) Environ(environ []string) []string {
	own := []string{"HOME=" + u.Home, "SHELL=" + u.Shell, "PATH=" + path}
	if u.UID == 0 {
		own[2] = "PATH=" + rootPath
	}
	if u.Name != "" {
		own = append(own, "USER="+u.Name, "LOGNAME="+u.Name)
	}
	return append(own, slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains([]string{"HOME", "USER", "LOGNAME", "SHELL", "PATH"}, name)
	})...)
}
