//go:build linux

package cgroup

import (
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// rootGroup is the ID of the root of a cgroup v2 tree. Old kernels report it for every socket if
// cgroup v1 classifies packets.
const rootGroup = 1

// maxOutside bounds the groups that are remembered.
const maxOutside = 1024

// outside remembers where groups were found that are not of the pool. The ID of a group is the inode of
// its directory.
type outside struct {
	mu   sync.Mutex
	dirs map[uint64]string // guarded by mu
}

func (o *outside) get(id uint64) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.dirs[id]
}

func (o *outside) set(id uint64, dir string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dirs == nil || len(o.dirs) >= maxOutside {
		o.dirs = map[uint64]string{}
	}
	o.dirs[id] = dir
}

// Excludes reports whether a group exists, and is not one of processes of the pool. It is false for a
// group that was removed: it may have been one of these. It reads the whole tree for a group that it
// has not found before.
func (p *Pool) Excludes(id uint64) bool {
	if p == nil || id <= rootGroup {
		return false
	}
	if dir := p.outside.get(id); dir != "" && inode(dir) == id {
		return true
	}
	dir := findGroup(rootOf(p.location.dir), id, p.location.dir)
	if dir == "" {
		return false
	}
	p.outside.set(id, dir)
	return true
}

// rootOf returns the root of the tree in which a group is, as far as it is mounted.
func rootOf(dir string) string {
	var here, above unix.Stat_t
	for unix.Stat(dir, &here) == nil {
		parent := filepath.Dir(dir)
		if unix.Stat(parent, &above) != nil || above.Dev != here.Dev || parent == dir {
			break
		}
		dir = parent
	}
	return dir
}

// findGroup returns the directory of a group that is dir or below it, and not below except; "" if
// there is none.
func findGroup(dir string, id uint64, except string) string {
	switch {
	case dir == except:
		return ""
	case inode(dir) == id:
		return dir
	}
	for _, child := range children(dir) {
		if found := findGroup(child, id, except); found != "" {
			return found
		}
	}
	return ""
}

// inode returns 0 for what does not exist.
func inode(path string) uint64 {
	var stat unix.Stat_t
	if unix.Stat(path, &stat) != nil {
		return 0
	}
	return stat.Ino
}
