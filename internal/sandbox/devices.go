package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// devices are nodes of our own for what bubblewrap puts into /dev, if this process is root. Bubblewrap takes those of
// the machine, which root in its namespace owns, and could change the mode of for everybody.
type devices struct {
	mu  sync.Mutex
	dir string // guarded by mu; where they are
}

// deviceNames are the devices that bubblewrap puts into /dev.
var deviceNames = []string{"null", "zero", "full", "random", "urandom", "tty"}

// deviceDirectories are where they are made: in the first that devices work in.
func deviceDirectories() []string { return []string{os.TempDir(), "/var/tmp"} }

// nodes returns the paths of the nodes by name, whole again if a program has changed one. Of an ordinary user there are
// none.
func (d *devices) nodes() (map[string]string, error) {
	if unix.Geteuid() != 0 {
		return nil, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dir == "" {
		if err := d.open(); err != nil {
			return nil, fmt.Errorf("no devices of its own can be made, and root inside would own those of the machine; "+
				"let TMPDIR be on a file system that allows devices, or run as an ordinary user: %w", err)
		}
	}
	nodes := map[string]string{}
	for _, name := range deviceNames {
		nodes[name] = filepath.Join(d.dir, name)
		if err := unix.Chmod(nodes[name], deviceMode); err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

const deviceMode = 0o666

// open makes the nodes.
func (d *devices) open() error {
	var errs []error
	for _, in := range deviceDirectories() {
		dir, err := os.MkdirTemp(in, "execwire-devices-")
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if err := makeNodes(dir); err != nil {
			errs = append(errs, err, os.RemoveAll(dir))
			continue
		}
		d.dir = dir
		return nil
	}
	return errors.Join(errs...)
}

func makeNodes(dir string) error {
	for _, name := range deviceNames {
		var stat unix.Stat_t
		if err := unix.Stat("/dev/"+name, &stat); err != nil {
			return err
		}
		if err := unix.Mknod(filepath.Join(dir, name), unix.S_IFCHR|deviceMode, int(stat.Rdev)); err != nil {
			return err
		}
	}
	file, err := os.OpenFile(filepath.Join(dir, "null"), os.O_WRONLY, 0) // refused where devices do not work
	if err != nil {
		return err
	}
	return file.Close()
}

func (d *devices) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dir != "" {
		_ = os.RemoveAll(d.dir)
		d.dir = ""
	}
}
