package syslimit

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// System is the file system that limits are read from. The zero value is that of this program.
type System struct {
	// Root is the directory that contains proc and sys. Empty: the root directory.
	Root string
}

func (s System) path(elem ...string) string {
	return filepath.Join(append([]string{"/", s.Root}, elem...)...)
}

// lowestLimit returns the lowest limit of the control groups of this program, from its own to the
// topmost that is visible, and the file that contains it. v2 and v1 are the names of the file for
// each version of control groups. found is false if there is no limit.
func (s System) lowestLimit(controller, v2, v1 string) (limit uint64, file string, found bool) {
	for _, group := range s.groups(controller) {
		name := v2
		if group.v1 {
			name = v1
		}
		for dir := group.dir; ; dir = filepath.Dir(dir) {
			path := filepath.Join(dir, name)
			if value, ok := readLimit(path); ok && (!found || value < limit) {
				limit, file, found = value, path, true
			}
			if dir == group.top || len(dir) <= len(group.top) {
				break
			}
		}
	}
	return limit, file, found
}

// group is the directory of this program's control group in one mount.
type group struct {
	dir, top string // top is the mount point
	v1       bool
}

// groups finds the control groups of this program that have a controller.
func (s System) groups(controller string) (found []group) {
	own, err := os.ReadFile(s.path("proc/self/cgroup"))
	if err != nil {
		return nil
	}
	mounts, err := os.ReadFile(s.path("proc/self/mountinfo"))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(own)) {
		// hierarchy:controllers:path, of cgroup v2 0::path
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		v2 := fields[0] == "0" && fields[1] == ""
		if !v2 && !slices.Contains(strings.Split(fields[1], ","), controller) {
			continue
		}
		for mount := range strings.Lines(string(mounts)) {
			if g, ok := s.groupIn(mount, fields[2], v2, controller); ok {
				found = append(found, g)
			}
		}
	}
	return found
}

// groupIn finds the directory of the control group path in the mount of a line of mountinfo, which
// may show only a part of the tree.
func (s System) groupIn(line, path string, v2 bool, controller string) (g group, ok bool) {
	head, tail, _ := strings.Cut(strings.TrimSpace(line), " - ")
	fields, kind := strings.Fields(head), strings.Fields(tail)
	if len(fields) < 5 || len(kind) < 3 {
		return g, false
	}
	if v2 && kind[0] != "cgroup2" || !v2 && (kind[0] != "cgroup" || !slices.Contains(strings.Split(kind[2], ","), controller)) {
		return g, false
	}
	root, top := fields[3], s.path(fields[4])
	rest, below := strings.CutPrefix(path, strings.TrimSuffix(root, "/"))
	if !below || rest != "" && rest[0] != '/' {
		rest = "" // as in a container that sees its own group as the root, and the host's name for it
	}
	return group{dir: filepath.Join(top, rest), top: top, v1: !v2}, true
}

// unlimited is the value from which limits of cgroup v1 mean no limit.
const unlimited = 1 << 60

// readLimit reads a file with a number, or with max.
func readLimit(path string) (value uint64, ok bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	value, err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return value, err == nil && value < unlimited
}
