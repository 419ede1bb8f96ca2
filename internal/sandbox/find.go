package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// findBubblewrap returns where bwrap really is, which is run outside of any sandbox: no link leads there, and nobody but
// root and this user can put something else in its place.
func findBubblewrap(path string) (string, error) {
	if path != "" {
		if !filepath.IsAbs(path) {
			return "", errors.New("the path of bwrap is not absolute; give an absolute path")
		}
		return trusted(path)
	}
	refused := errors.New("there is no program bwrap in PATH; install the package bubblewrap")
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		candidate := filepath.Join(dir, "bwrap")
		info, err := os.Stat(candidate)
		if err != nil || !filepath.IsAbs(dir) || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			continue
		}
		found, err := trusted(candidate)
		if err == nil {
			return found, nil
		}
		refused = err
	}
	return "", refused
}

// trusted follows a path to a file that only root and this user can write to or replace.
func trusted(path string) (string, error) {
	walked, err := follow(filepath.Clean(path))
	if err == nil && walked.missing {
		err = &os.PathError{Op: "stat", Path: path, Err: unix.ENOENT}
	}
	if err != nil {
		return "", err
	}
	ends := []string{walked.path}
	for _, l := range walked.links {
		ends = append(ends, l.path)
	}
	for _, end := range ends {
		for at := end; ; at = filepath.Dir(at) {
			var stat unix.Stat_t
			if err := unix.Lstat(at, &stat); err != nil {
				return "", err
			}
			if !onlyOurs(stat, at == end) {
				return "", fmt.Errorf("others than root and this user can put another program in the place of %s, because of the owner or the mode of %s; take the right from them, or give another bwrap", path, at)
			}
			if at == "/" {
				break
			}
		}
	}
	return walked.path, nil
}

// onlyOurs tells whether nobody but root and this user can write to a file or link, or replace what is in a directory.
func onlyOurs(stat unix.Stat_t, end bool) bool {
	if stat.Uid != 0 && stat.Uid != uint32(unix.Geteuid()) {
		return false
	}
	if stat.Mode&unix.S_IFMT == unix.S_IFLNK || stat.Mode&0o022 == 0 {
		return true
	}
	return !end && stat.Mode&unix.S_ISVTX != 0 // in such a directory only owners replace what is theirs
}
