package fsops

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// pathWatcher resolves a path, and is notified when the result may have changed. It watches
// each name of the path, and of the targets of symbolic links in it. One goroutine uses it.
type pathWatcher struct {
	inotify *inotify
	path    string
	notify  func(mask uint32) // with the mask of the event, if it was of a name; called with inotify.mu held, does not block

	names    map[watchedName]struct{}
	watchErr error // why changes of the last name are not seen
}

type watchedName struct {
	mark *mark
	name string
}

// resolve opens what the path leads to with O_PATH, and watches its names as far as
// they exist.
func (l *pathWatcher) resolve() (descriptor, error) {
	before := l.names
	l.names, l.watchErr = make(map[watchedName]struct{}), nil
	end, err := l.walk()
	for at := range before {
		if _, ok := l.names[at]; !ok {
			l.inotify.unwatch(at.mark, at.name, l)
		}
	}
	return end, err
}

// close removes all watches.
func (l *pathWatcher) close() {
	for at := range l.names {
		l.inotify.unwatch(at.mark, at.name, l)
	}
	l.names = nil
}

func (l *pathWatcher) walk() (descriptor, error) {
	here, err := openPath("/")
	if err != nil {
		return 0, err
	}
	rest := strings.Split(l.path, "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		if name == "" || name == "." {
			continue
		}
		next, target, err := l.openName(here, name)
		if err != nil {
			here.release()
			return 0, err
		}
		if target == "" {
			here.release()
			here = next
			continue
		}
		if links++; links > maxLinks {
			here.release()
			return 0, unix.ELOOP
		}
		if strings.HasPrefix(target, "/") {
			here.release()
			if here, err = openPath("/"); err != nil {
				return 0, err
			}
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return here, nil
}

// openName watches and opens a name, or returns its target if it is a symbolic link.
func (l *pathWatcher) openName(here descriptor, name string) (next descriptor, target string, err error) {
	if name != ".." {
		if err := l.watch(here, name); err != nil {
			return 0, "", err
		}
	}
	next, err = openAt(here, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, "", err
	}
	m, err := next.stat()
	if err == nil && m.Type == Symlink {
		target, err = readLinkAt(next, "")
		next.release()
		return 0, target, err
	}
	if err != nil {
		next.release()
	}
	return next, "", err
}

// watch watches a name in a directory. An unreadable directory matters only if it is the
// last one. If dir is not a directory, the watch of its own name reports when it becomes one.
func (l *pathWatcher) watch(dir descriptor, name string) error {
	m, err := l.inotify.watch(dir, name, nameChanges, l)
	if errors.Is(err, unix.ENOSPC) {
		return err
	}
	if l.watchErr = err; err == nil {
		l.names[watchedName{m, name}] = struct{}{}
	}
	if err == unix.ENOTDIR {
		l.watchErr = nil
	}
	return nil
}

// receive, lose and fail implement receiver.
func (l *pathWatcher) receive(n inotifyEvent) { l.notify(n.mask) }
func (l *pathWatcher) lose()                  { l.notify(0) }
func (l *pathWatcher) fail(error)             { l.notify(0) }

// isMissing reports whether an error of resolve means that nothing exists there.
func isMissing(err error) bool {
	return err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ELOOP
}
