package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// findBubblewrap returns the path of bwrap without links. Because bwrap runs outside of
// the sandbox, only root and this user may be able to replace it.
func findBubblewrap(path string) (string, error) {
	if path != "" {
		if !filepath.IsAbs(path) {
			return "", errors.New("the path of bwrap is not absolute; give an absolute path")
		}
		return trustedPath(path)
	}
	refused := errors.New("there is no program bwrap in PATH; install the package bubblewrap")
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		candidate := filepath.Join(dir, "bwrap")
		info, err := os.Stat(candidate)
		if err != nil || !filepath.IsAbs(dir) || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			continue
		}
		found, err := trustedPath(candidate)
		if err == nil {
			return found, nil
		}
		refused = err
	}
	return "", refused
}

// trustedPath follows the links of a path. It fails if users other than root and this
// user can replace the file or a link.
func trustedPath(path string) (string, error) {
	resolved, err := resolveLinks(nil, filepath.Clean(path))
	if err == nil && resolved.missing {
		err = &os.PathError{Op: "stat", Path: path, Err: unix.ENOENT}
	}
	if err != nil {
		return "", err
	}
	ends := []string{resolved.path}
	for _, l := range resolved.links {
		ends = append(ends, l.path)
	}
	for _, end := range ends {
		for at := end; ; at = filepath.Dir(at) {
			var stat unix.Stat_t
			if err := unix.Lstat(at, &stat); err != nil {
				return "", err
			}
			if !isTrusted(stat, at == end) {
				return "", fmt.Errorf("users other than root and this user can replace %s, because of the owner or the mode of %s; change that, or give another bwrap", path, at)
			}
			if at == "/" {
				break
			}
		}
	}
	return resolved.path, nil
}

// isTrusted reports whether only root and this user can write to a file, or replace the
// entries of a directory. end is set for the last component of a path.
func isTrusted(stat unix.Stat_t, end bool) bool {
	if stat.Uid != 0 && stat.Uid != uint32(unix.Geteuid()) {
		return false
	}
	if stat.Mode&unix.S_IFMT == unix.S_IFLNK || stat.Mode&0o022 == 0 {
		return true
	}
	return !end && stat.Mode&unix.S_ISVTX != 0 // with the sticky bit, only owners can replace their files
}
