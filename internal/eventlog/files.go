package eventlog

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	// freeShare is the part of a file system, 1/freeShare, that files of logs leave free.
	freeShare = 20
	// descriptorShare is the part, 1/descriptorShare, of the descriptors that the program may have,
	// which they may use: one each, until the record of a closed process is removed.
	descriptorShare = 4
)

// Files are the files of logs, in one directory: their second tier. Each has at most one,
// which has no name, so that it ends with the program. All methods may be called
// concurrently. Logs of a nil Files have no second tier; of its methods, New, Restore and Stats
// may be called.
type Files struct {
	directory string
	most      int         // files
	report    func(error) // nil: nothing is
	// Of an open file; tests replace them.
	writeAt func(f *os.File, data []byte, offset int64) (int, error)
	readAt  func(f *os.File, data []byte, offset int64) (int, error)

	perLogLimit atomic.Int64 // read at every read from a process without an owner
	failing     atomic.Bool  // the latest block could not be written

	mu    sync.Mutex
	stats FilesStats // without PerLog
}

// FilesStats are the limits and the state of [Files].
type FilesStats struct {
	// PerLog is the most bytes of one file; 0: logs have no files.
	PerLog int64
	// Total is the most bytes of all files.
	Total int64
	// Bytes are the bytes of all files, and Open is their number.
	Bytes int64
	Open  int
	// Failures are the blocks of output, of at most 64 KiB, that could not be written.
	Failures uint64
}

// NewFiles returns the files of a directory, which is created with mode 0700 when the
// first is needed, if it does not exist. Without SetLimits there are none. report, which may
// be nil, is called with why output could not be written, at the first time and after it
// could be in between. The number of files is bounded by the limit of descriptors as it is now.
// NewFiles never blocks.
func NewFiles(directory string, report func(error)) *Files {
	return &Files{directory: directory, most: mostFiles(), report: report, writeAt: (*os.File).WriteAt, readAt: (*os.File).ReadAt}
}

// mostFiles returns how many files logs may have.
func mostFiles() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0 // it does not fail
	}
	return int(min(limit.Cur/descriptorShare, math.MaxInt32))
}

// SetLimits sets the most bytes of one file and of all. Files that are larger remain, and do
// not grow. With a limit of 0 nothing more is written to files.
func (f *Files) SetLimits(perLog, total int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stats.Total = total
	if total == 0 {
		perLog = 0
	}
	f.perLogLimit.Store(perLog)
}

// Stats returns the limits and the state. It never blocks.
func (f *Files) Stats() FilesStats {
	if f == nil {
		return FilesStats{}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	stats := f.stats
	stats.PerLog = f.perLog()
	return stats
}

// Check creates a file and removes it. The error says why logs cannot have files.
func (f *Files) Check() error {
	file, err := f.open()
	if err != nil {
		return err
	}
	defer file.Close()
	return f.hasSpace(file)
}

var (
	errFilesFull = errors.New("the files of all logs have reached output_file_bytes_total")
	errFilesMany = fmt.Errorf("the files of all logs have reached 1/%d of RLIMIT_NOFILE", descriptorShare)
	errDiskFull  = fmt.Errorf("the file system of output_directory has less than 1/%d free", freeShare)
)

// create returns a new file, which is counted, of a log.
func (f *Files) create() (*os.File, error) {
	f.mu.Lock()
	full := f.stats.Open >= f.most
	if !full {
		f.stats.Open++
	}
	f.mu.Unlock()
	if full {
		return nil, errFilesMany
	}
	file, err := f.open()
	if err != nil {
		f.count(-1, 0)
	}
	return file, err
}

// open returns a new file without a name.
func (f *Files) open() (*os.File, error) {
	if err := os.MkdirAll(f.directory, 0o700); err != nil {
		return nil, err
	}
	file, err := os.CreateTemp(f.directory, "execwire-output-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// hasSpace returns an error if the file system of a file has no space for more.
func (f *Files) hasSpace(file *os.File) error {
	var system unix.Statfs_t
	if err := unix.Fstatfs(int(file.Fd()), &system); err != nil {
		return os.NewSyscallError("fstatfs", err)
	}
	if uint64(system.Bavail) < system.Blocks/freeShare {
		return errDiskFull
	}
	return nil
}

// grow counts bytes by which a file is about to grow. It may block on the file system.
func (f *Files) grow(file *os.File, bytes int64) error {
	if err := f.hasSpace(file); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stats.Bytes+bytes > f.stats.Total {
		return errFilesFull
	}
	f.stats.Bytes += bytes
	return nil
}

// count adds to what is counted: files, and their bytes.
func (f *Files) count(files int, bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stats.Open += files
	f.stats.Bytes += bytes
}

// noteWritten records whether a block could be written.
func (f *Files) noteWritten(err error) {
	if failed := f.failing.Swap(err != nil); err == nil {
		return
	} else if !failed && f.report != nil {
		f.report(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stats.Failures++
}

// perLog returns the most bytes of one file; 0: logs have none.
func (f *Files) perLog() int64 { return f.perLogLimit.Load() }
