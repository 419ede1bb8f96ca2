package sandbox

import "golang.org/x/sys/unix"

// froze calls do in a mount namespace of its own in which everything is read-only that the mounts do not grant, so that
// a program that do forks can do no harm outside of them. It is for bubblewrap: where it mounts in a place that others
// may write to, they can have put a link, which it follows, and a file that it finds missing it makes. It blocks until do
// has returned, on a thread that ends with it. It is for who [mayFreeze].
func froze(mounts []mount, do func() error) error {
	return onOwnThread(func() error {
		if err := freeze(mounts); err != nil {
			return err
		}
		return do()
	})
}

// mayFreeze tells whether this process may make such namespaces, as root may that is not kept in a container.
func mayFreeze() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	err := unix.Capget(&header, &sets[0])
	return err == nil && sets[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}

// freeze takes the thread to the namespace. Nothing there reaches the mounts outside.
func freeze(mounts []mount) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return failed(NotStarted, "", "there is no namespace for mounts", err)
	}
	alone := unix.MountAttr{Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &alone); err != nil {
		return failed(NotStarted, "", "mounts cannot be told from those outside", err)
	}
	layers := layersOf(mounts)
	defer func() {
		for _, l := range layers {
			if l.tree >= 0 {
				_ = unix.Close(l.tree)
			}
		}
	}()
	for i := range layers { // what can be written to, as it is now
		if l := &layers[i]; l.writable {
			if err := l.clone(); err != nil {
				return err
			}
		}
	}
	if len(mounts) == 0 || mounts[0].path != "/" || mounts[0].access != AccessWrite {
		if err := setReadOnly(unix.AT_FDCWD, "/"); err != nil {
			return failed(NotStarted, "", "mounts cannot be made read-only", err)
		}
		// Bubblewrap says there who it is.
		writable := unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(unix.AT_FDCWD, "/proc", 0, &writable); err != nil {
			return failed(NotStarted, "/proc", "cannot be made writable for bubblewrap", err)
		}
	}
	for i := range layers {
		if err := layers[i].lay(); err != nil {
			return err
		}
	}
	return nil
}

// layer is a place that can be written to in one that cannot, or the reverse.
type layer struct {
	mount
	writable bool
	tree     int // a mount of it, which is nowhere yet; -1: there is none
}

// layersOf lists the layers of mounts that are sorted, each after the one that it is in.
func layersOf(mounts []mount) (layers []layer) {
	for i, m := range mounts {
		around := false
		for _, above := range mounts[:i] {
			if within(m.path, above.path) {
				around = above.access == AccessWrite
			}
		}
		if writable := m.access == AccessWrite; m.path != "/" && writable != around {
			layers = append(layers, layer{mount: m, writable: writable, tree: -1})
		}
	}
	return layers
}

func (l *layer) clone() error {
	place, err := openPlace(l.path)
	if err == nil {
		l.tree, err = unix.OpenTree(place, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
		_ = unix.Close(place)
	}
	if err != nil {
		return failed(NotStarted, l.path, "is not what it was when the policy was resolved", err)
	}
	return nil
}

// lay mounts the layer on its place.
func (l *layer) lay() error {
	place, err := openPlace(l.path)
	if err == unix.ENOENT && l.kept {
		return nil // bubblewrap is not told of it
	}
	if err != nil {
		return failed(NotStarted, l.path, "is not what it was when the policy was resolved", err)
	}
	defer unix.Close(place)
	if l.tree < 0 {
		if err := l.clone(); err != nil {
			return err
		}
		if err := setReadOnly(l.tree, ""); err != nil {
			return failed(NotStarted, l.path, "cannot be made read-only", err)
		}
	}
	if err := unix.MoveMount(l.tree, "", place, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return failed(NotStarted, l.path, "cannot be mounted for bubblewrap", err)
	}
	return nil
}

func setReadOnly(fd int, path string) error {
	flags := uint(unix.AT_RECURSIVE)
	if path == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	return unix.MountSetattr(fd, path, flags, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
}
