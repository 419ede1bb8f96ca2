package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// cgroupPlace is a directory of a cgroup v2 tree: where it is mounted, and what /proc/PID/cgroup calls it.
type cgroupPlace struct{ dir, name string }

// findCgroups finds this program's own place in a cgroup v2 tree, or that of a directory, if one is named.
func findCgroups(dir string) (cgroupPlace, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return cgroupPlace{}, err
	}
	if dir != "" {
		return locateCgroup(mounts, dir)
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return cgroupPlace{}, err
	}
	return ownCgroup(mounts, parseCgroup(own))
}

var errNoCgroups = errors.New("no cgroup v2 tree is mounted that shows this program's own control group")

// ownCgroup finds where a control group is visible. A mount may show a part of the tree only.
func ownCgroup(mountinfo []byte, own string) (cgroupPlace, error) {
	if own == "" || strings.Contains(own, "/..") {
		return cgroupPlace{}, errNoCgroups
	}
	for _, m := range cgroupMounts(mountinfo) {
		if rest, ok := below(own, m.name); ok {
			return cgroupPlace{dir: filepath.Join(m.dir, rest), name: own}, nil
		}
	}
	return cgroupPlace{}, errNoCgroups
}

// locateCgroup finds what the directory of a control group is called. Of mounts one upon another the last one is seen.
func locateCgroup(mountinfo []byte, dir string) (found cgroupPlace, err error) {
	dir, err = filepath.EvalSymlinks(dir)
	if err != nil {
		return found, err
	}
	longest := -1
	for _, m := range cgroupMounts(mountinfo) {
		if rest, ok := below(dir, m.dir); ok && len(m.dir) >= longest {
			longest = len(m.dir)
			found = cgroupPlace{dir: dir, name: filepath.Join(m.name, rest)}
		}
	}
	if longest < 0 {
		return found, fmt.Errorf("%s is in no cgroup v2 tree", dir)
	}
	return found, nil
}

// below returns the rest of a path from one of its parents on, or from itself.
func below(path, parent string) (rest string, ok bool) {
	if parent == "/" {
		return path, true
	}
	rest, ok = strings.CutPrefix(path, parent)
	return rest, ok && (rest == "" || rest[0] == '/')
}

// cgroupMounts lists the cgroup v2 mounts of a mountinfo: their mount points and the roots they show.
func cgroupMounts(mountinfo []byte) (mounts []cgroupPlace) {
	for line := range bytes.Lines(mountinfo) {
		head, tail, ok := strings.Cut(string(line), " - ")
		fields := strings.Fields(head)
		if ok && strings.HasPrefix(tail, "cgroup2 ") && len(fields) >= 5 {
			mounts = append(mounts, cgroupPlace{dir: unescapeMount(fields[4]), name: unescapeMount(fields[3])})
		}
	}
	return mounts
}

// unescapeMount undoes the kernel's escapes of blanks and backslashes: three octal digits.
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
