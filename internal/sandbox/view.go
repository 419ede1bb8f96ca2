package sandbox

import (
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// view prepares the mounts that a program sees, in a mount namespace where bubblewrap then finds them. Nothing outside
// can be written to there, and nothing that is mounted outside from then on comes in. Every place is opened without
// following a link and mounted on by its descriptor, so that nobody who may write around it can lead that elsewhere.
// Nothing is made in any place, but in those that are fresh. Bubblewrap then only takes over what it finds.
type view struct {
	preparation
	layers  []*layer // parents before what is below them
	program string   // what is executed then though the layers hide it, or ""
	devices []argument
	console argument
	dev     argument // the fresh /dev
}

// layer is a mount of a view.
type layer struct {
	mount
	around    *layer // the layer that it is in; nil: there is none
	directory bool
	tree      argument        // a mount of it from before anything was changed
	fresh     argument        // what hides it, if something below is granted
	made      map[string]bool // directories in fresh
}

// beneath tells whether that is what is granted around the layer.
func (y *layer) beneath(access Access) bool { return y.around != nil && y.around.access == access }

// takenFirst tells whether a mount of it has to be made before everything is read-only or hidden.
func (y *layer) takenFirst() bool {
	switch {
	case y.path == "/" || y.access == AccessNone:
		return false
	case y.beneath(AccessNone):
		return true
	}
	return y.access == AccessWrite && !y.beneath(AccessWrite)
}

// hides tells whether a directory, or a file, is hidden of which nothing is granted.
func (v *view) hides(directory bool) bool {
	for _, y := range v.layers {
		if y.access == AccessNone && !y.opened && y.directory == directory {
			return true
		}
	}
	return false
}

// prepare makes the view, with the terminal of that name unless it is "". What is executed then though it is hidden has
// the number of a descriptor.
func (v *view) prepare(terminal string, sealed bool, program int) {
	v.about("", "mounts cannot be told from those outside")
	mask := v.call(unix.SYS_UMASK, literal(0))
	v.call(unix.SYS_UNSHARE, literal(unix.CLONE_NEWNS))
	v.setAt(here, "/", unix.AT_RECURSIVE, unix.MountAttr{Propagation: unix.MS_PRIVATE})
	v.takeDevices(terminal, sealed)
	v.about("", "mounts cannot be made harmless")
	v.setAt(here, "/", unix.AT_RECURSIVE, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV})
	for _, y := range v.layers {
		if y.takenFirst() {
			v.about(y.path, changed)
			place := v.openWithoutLinks(y.path)
			v.same(place, y.is)
			y.tree = v.copied(place)
			v.close(place)
		}
	}
	if !v.rootIsWritable() {
		v.about("", "mounts cannot be made read-only")
		v.setAt(here, "/", unix.AT_RECURSIVE, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
		v.setAt(here, "/proc", 0, unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}) // bubblewrap says there who it is
	}
	v.makeDevices()
	if v.program != "" {
		v.takeProgram(program)
	}
	for _, y := range v.layers {
		if y.path != "/" {
			v.lay(y)
		}
	}
	for _, y := range v.layers {
		if y.fresh != (argument{}) {
			v.about(y.path, "cannot be made read-only")
			v.set(y.fresh, 0, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
			v.close(y.fresh)
		}
	}
	v.sealDevices()
	v.call(unix.SYS_UMASK, mask)
}

// takeProgram opens what is executed, before it is hidden, as a number. It is read-only, because programs find it as that
// of bubblewrap's process inside.
func (v *view) takeProgram(number int) {
	v.about(v.program, "cannot be executed")
	place := v.openWithoutLinks(v.program)
	tree := v.copied(place)
	v.close(place)
	v.set(tree, unix.AT_RECURSIVE, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	v.call(unix.SYS_DUP3, tree, literal(number), literal(unix.O_CLOEXEC))
	v.close(tree)
}

// changed is what it means if a place cannot be opened, or is a directory and was none.
const changed = "is not what it was when the policy was resolved"

func (v *view) rootIsWritable() bool {
	return len(v.layers) > 0 && v.layers[0].path == "/" && v.layers[0].access == AccessWrite
}

// lay puts a layer in its place.
func (v *view) lay(y *layer) {
	v.about(y.path, changed)
	if y.beneath(AccessNone) {
		v.makePlace(y)
	}
	place := v.openWithoutLinks(y.path)
	if !y.beneath(AccessNone) {
		v.same(place, y.is)
	}
	switch {
	case y.access == AccessNone && y.opened:
		y.fresh = v.fresh("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, [2]string{"mode", "0111"})
		v.call(unix.SYS_MOVE_MOUNT, y.fresh, v.text(""), place, v.text(""), literal(unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH))
		v.close(place)
		return
	case y.access == AccessNone:
		name := hiddenFile
		if y.directory {
			name = hiddenDirectory
		}
		hidden := v.call(unix.SYS_OPENAT, v.dev, v.text(name), literal(unix.O_PATH|unix.O_CLOEXEC), literal(0))
		y.tree = v.copied(hidden)
		v.close(hidden)
	case !y.takenFirst() && y.around == nil:
		v.close(place) // it is read-only with all the rest
		return
	case !y.takenFirst():
		y.tree = v.copied(place)
	}
	if y.access != AccessWrite {
		v.set(y.tree, unix.AT_RECURSIVE, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	}
	v.mount(y.tree, place)
}

// makePlace makes what a layer is mounted on in what hides the place that it is in.
func (v *view) makePlace(y *layer) {
	rest, _ := strings.CutPrefix(y.path, strings.TrimSuffix(y.around.path, "/")+"/")
	var missing []string
	for dir := filepath.Dir(rest); dir != "." && !y.around.made[dir]; dir = filepath.Dir(dir) {
		missing = append([]string{dir}, missing...)
	}
	if y.around.made == nil {
		y.around.made = map[string]bool{}
	}
	for _, dir := range missing {
		v.directory(y.around.fresh, dir, 0o755)
		y.around.made[dir] = true
	}
	switch {
	case !y.directory:
		v.file(y.around.fresh, rest, 0o444)
	case !y.around.made[rest]:
		v.directory(y.around.fresh, rest, 0o755)
		y.around.made[rest] = true
	}
}
