//go:build !linux

package secretfile

import (
	"io/fs"
	"os"
	"time"
)

// stamp changes when a file is written or replaced by one of another size or modification
// time, or given another mode. The zero stamp is that of a file that cannot be examined.
// Systems differ in what else they tell about a file; a replacement with the same size and
// time is not noticed.
type stamp struct {
	size     int64
	mode     fs.FileMode
	modified time.Time
}

func stampOf(path string) stamp {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}
	}
	return stamp{size: info.Size(), mode: info.Mode(), modified: info.ModTime()}
}
