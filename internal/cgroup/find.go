//go:build linux

// Package cgroup keeps a pool of control groups for processes, and removes those of servers that
// died.
package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/execwire/execwire/internal/procfs"
)

// location is a directory of a cgroup v2 tree: its path in the file system, and its path as
// in /proc/PID/cgroup.
type location struct{ dir, path string }

// findLocation finds the control group of this program, or that of dir unless it is empty.
func findLocation(dir string) (location, error) {
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return location{}, err
	}
	if dir != "" {
		return locateDir(mountinfo, dir)
	}
	ownPath, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return location{}, err
	}
	return locateOwn(mountinfo, procfs.ParseCgroup(ownPath))
}

var errNoTree = errors.New("no cgroup v2 tree is mounted that shows this program's own control group")

// locateOwn finds the directory of a control group. A mount may show only a part of the tree.
func locateOwn(mountinfo []byte, ownPath string) (location, error) {
	if ownPath == "" || strings.Contains(ownPath, "/..") {
		return location{}, errNoTree
	}
	for _, mount := range mounts(mountinfo) {
		if rest, ok := pathBelow(ownPath, mount.path); ok {
			return location{dir: filepath.Join(mount.dir, rest), path: ownPath}, nil
		}
	}
	return location{}, errNoTree
}

// locateDir finds the control group of a directory. If mounts cover each other the last one
// is visible.
func locateDir(mountinfo []byte, dir string) (found location, err error) {
	dir, err = filepath.EvalSymlinks(dir)
	if err != nil {
		return found, err
	}
	longest := -1
	for _, mount := range mounts(mountinfo) {
		if rest, ok := pathBelow(dir, mount.dir); ok && len(mount.dir) >= longest {
			longest = len(mount.dir)
			found = location{dir: dir, path: filepath.Join(mount.path, rest)}
		}
	}
	if longest < 0 {
		return found, fmt.Errorf("%s is in no cgroup v2 tree", dir)
	}
	return found, nil
}

// pathBelow returns the part of a path below one of its parents. A path is below itself.
func pathBelow(path, parent string) (rest string, ok bool) {
	if parent == "/" {
		return path, true
	}
	rest, ok = strings.CutPrefix(path, parent)
	return rest, ok && (rest == "" || rest[0] == '/')
}

// mounts lists the mount points of cgroup v2 in a mountinfo, with the root that each shows.
func mounts(mountinfo []byte) (found []location) {
	for line := range bytes.Lines(mountinfo) {
		head, tail, ok := strings.Cut(string(line), " - ")
		fields := strings.Fields(head)
		if ok && strings.HasPrefix(tail, "cgroup2 ") && len(fields) >= 5 {
			found = append(found, location{dir: unescapeMount(fields[4]), path: unescapeMount(fields[3])})
		}
	}
	return found
}

// unescapeMount replaces the escapes of the kernel, a backslash and three octal digits.
func unescapeMount(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
