package fsops

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// lookout sees to where a path leads, and is poked when that may have changed: by
// watching each name on the way, those in links too. It is used by one goroutine.
type lookout struct {
	inotify *inotify
	path    string
	poke    func(mask uint32) // with what the kernel said, if it was of a name; called with mu of inotify held, never waits

	names map[watchedName]struct{}
	blind error // why changes of the last name on the way are not seen
}

type watchedName struct {
	mark *mark
	name string
}

// look returns what the path leads to, opened as a path, and watches the way
// there, or as far as there is one.
func (l *lookout) look() (descriptor, error) {
	before := l.names
	l.names, l.blind = make(map[watchedName]struct{}), nil
	end, err := l.walk()
	for at := range before {
		if _, ok := l.names[at]; !ok {
			l.inotify.leaveName(l, at.mark, at.name)
		}
	}
	return end, err
}

// end watches nothing any more.
func (l *lookout) end() {
	for at := range l.names {
		l.inotify.leaveName(l, at.mark, at.name)
	}
	l.names = nil
}

func (l *lookout) walk() (descriptor, error) {
	here, err := openPath("/", asParent, 0)
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
		next, target, err := l.step(here, name)
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
			if here, err = openPath("/", asParent, 0); err != nil {
				return 0, err
			}
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return here, nil
}

// step watches a name and opens it, or returns where it leads if it is a link.
func (l *lookout) step(here descriptor, name string) (next descriptor, target string, err error) {
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

// watch watches a name in a directory. That the directory may not be read matters
// only if it is the last one; what is none can become one, which the name that it
// has tells.
func (l *lookout) watch(dir descriptor, name string) error {
	m, err := l.inotify.watchName(dir, name, l)
	if errors.Is(err, unix.ENOSPC) {
		return err
	}
	if l.blind = err; err == nil {
		l.names[watchedName{m, name}] = struct{}{}
	}
	if err == unix.ENOTDIR {
		l.blind = nil
	}
	return nil
}

// leadsNowhere reports whether an error of look means that there is nothing.
func leadsNowhere(err error) bool {
	return err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ELOOP
}
