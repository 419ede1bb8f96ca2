// Package history keeps the records of detached processes in files, so that they can be read
// after a restart of the server. A record is one file in a directory that only the server's
// user can read, and that one server uses at a time.
//
// Files are written whole beside their place and renamed, so that the end of the program
// leaves the old record or the new one. They are not synchronized with the disk: after the
// loss of power a record can be missing or damaged, which Open logs.
package history

import (
	"container/list"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Record is what is known of a process. Fields are written by their names, so that a later
// program can read them.
type Record struct {
	// Principal and ID identify the process in the default session of the principal.
	Principal, ID string
	// Digest is that of its start.
	Digest []byte
	// Argv, Executable, Cwd, User and Labels are those of the start; a long Argv is cut.
	Argv            []string
	Executable, Cwd string
	User            string
	Labels          map[string]string
	// Rows and Columns are the size of its terminal; 0: it has pipes.
	Rows, Columns uint16
	// Keep is the time to keep the record that the start asked for; 0: none.
	Keep time.Duration
	// PID is its process id, and StartedAt when it was executed.
	PID       int
	StartedAt time.Time
	// Exit is how it ended; nil: it runs.
	Exit *Exit
	// LastSeq is the seq of its last event, valid with Exit.
	LastSeq uint64
	// Streams are those that have output, valid with Exit.
	Streams []Stream
}

// Exit is the end of a process.
type Exit struct {
	// Code is the exit code, if Signal is 0 and the cause has a status.
	Code, Signal int
	// Cause is that of package process.
	Cause string
	// UserTime, SystemTime and WallTime are its times, and MaxRSSBytes its memory.
	UserTime, SystemTime, WallTime time.Duration
	MaxRSSBytes                    int64
	// ExitedAt is when it exited, and ClosedAt when its output had ended.
	ExitedAt, ClosedAt time.Time
	// SandboxDenied is set if its sandbox seems to have denied something.
	SandboxDenied bool
}

// Stream is the output of one stream.
type Stream struct {
	// ID is its number in package eventlog, and Total its bytes.
	ID    uint8
	Total uint64
	// Head and Tail are its first and its last bytes, each at most Total; they may overlap.
	Head, Tail []byte
}

// maxFileBytes bounds a record. The server writes smaller ones.
const maxFileBytes = 1 << 20

const (
	suffix     = ".json"
	partSuffix = ".part"
	lockName   = "lock"
)

// Store is a directory with records. All methods may be called concurrently, and block on
// the disk.
type Store struct {
	dir    string
	most   int
	logger *slog.Logger
	lock   *os.File

	mu    sync.Mutex
	names map[string]*list.Element // guarded by mu; of *entry
	of    map[string]*list.List    // guarded by mu; by principal, of *entry, oldest first; never empty
}

// entry is a record of which there is a file.
type entry struct{ name, principal string }

// Named is a record with the name of its file.
type Named struct {
	// Name is that of the file, without its suffix.
	Name string
	*Record
}

// Open opens the directory, which is created if it is missing, and returns its records by
// the start of their processes, the oldest first. Of each principal it keeps most records: for more the oldest are
// removed. A file that cannot be read is logged and left alone. It fails if the directory
// cannot be used, or another server uses it.
func Open(dir string, most int, logger *slog.Logger) (*Store, []Named, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, nil, fmt.Errorf("%s is used by another server: give each server a directory of its own", dir)
		}
		return nil, nil, fmt.Errorf("failed to lock %s: %w", dir, err)
	}
	s := &Store{dir: dir, most: most, logger: logger, lock: lock, names: make(map[string]*list.Element), of: make(map[string]*list.List)}
	records, err := s.load()
	if err != nil {
		_ = lock.Close()
		return nil, nil, err
	}
	return s, records, nil
}

// Check returns an error if the directory cannot be created or written. Another server may use it.
func Check(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, "*"+partSuffix)
	if err != nil {
		return err
	}
	return errors.Join(file.Close(), os.Remove(file.Name()))
}

// load reads all records, the oldest first.
func (s *Store) load() (records []Named, err error) {
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		name, isRecord := strings.CutSuffix(file.Name(), suffix)
		switch {
		case strings.HasSuffix(file.Name(), partSuffix): // the program ended while it wrote it
			_ = os.Remove(filepath.Join(s.dir, file.Name()))
		case isRecord:
			record, err := s.read(file.Name())
			if err != nil {
				s.logger.Warn("the record of a process is damaged and is not used: remove the file", "file", filepath.Join(s.dir, file.Name()), "error", err)
				continue
			}
			records = append(records, Named{name, record})
		}
	}
	slices.SortFunc(records, func(a, b Named) int { return a.StartedAt.Compare(b.StartedAt) })
	for _, r := range records {
		s.note(entry{r.Name, r.Principal})
		s.excess(r.Principal)
	}
	return slices.DeleteFunc(records, func(r Named) bool { return s.names[r.Name] == nil }), nil
}

func (s *Store) read(file string) (*Record, error) {
	f, err := os.OpenFile(filepath.Join(s.dir, file), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > maxFileBytes:
		return nil, fmt.Errorf("it is %v of %d bytes", info.Mode(), info.Size())
	}
	record := new(Record)
	if err := json.NewDecoder(f).Decode(record); err != nil {
		return nil, err
	}
	if record.ID == "" || len(record.Argv) == 0 || record.StartedAt.IsZero() {
		return nil, errors.New("it has no id, arguments or time of the start")
	}
	for _, s := range record.Streams {
		if s.Total < uint64(max(len(s.Head), len(s.Tail))) {
			return nil, fmt.Errorf("its stream %d has %d bytes in all, and %d and %d at its ends", s.ID, s.Total, len(s.Head), len(s.Tail))
		}
	}
	return record, nil
}

// Put writes a record, in place of one with the same name. If the principal then has too
// many, its oldest is removed.
func (s *Store) Put(name string, record *Record) error {
	data, err := json.Marshal(record)
	if err != nil {
		return err
	}
	file := filepath.Join(s.dir, name)
	if err := os.WriteFile(file+partSuffix, data, 0o600); err != nil {
		return errors.Join(err, removeFile(file+partSuffix))
	}
	if err := os.Rename(file+partSuffix, file+suffix); err != nil {
		return errors.Join(err, removeFile(file+partSuffix))
	}
	s.note(entry{name, record.Principal})
	s.excess(record.Principal)
	return nil
}

// note notes that there is a file for an entry.
func (s *Store) note(e entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names[e.name] != nil {
		return
	}
	if s.of[e.principal] == nil {
		s.of[e.principal] = list.New()
	}
	s.names[e.name] = s.of[e.principal].PushBack(&e)
}

// excess removes the oldest records that the principal has too many.
func (s *Store) excess(principal string) {
	var names []string
	s.mu.Lock()
	for own := s.of[principal]; own != nil && own.Len() > s.most; {
		e := own.Front().Value.(*entry)
		s.forget(e.name)
		names = append(names, e.name)
	}
	s.mu.Unlock()
	for _, name := range names {
		if err := removeFile(filepath.Join(s.dir, name+suffix)); err != nil {
			s.logger.Warn("cannot remove the record of a process", "error", err)
		}
	}
}

// forget removes an entry. mu is held.
func (s *Store) forget(name string) {
	element := s.names[name]
	if element == nil {
		return
	}
	principal := element.Value.(*entry).principal
	own := s.of[principal]
	own.Remove(element)
	delete(s.names, name)
	if own.Len() == 0 {
		delete(s.of, principal)
	}
}

// Remove removes a record, if there is one.
func (s *Store) Remove(name string) error {
	s.mu.Lock()
	s.forget(name)
	s.mu.Unlock()
	return removeFile(filepath.Join(s.dir, name+suffix))
}

// Close lets another server use the directory. The records stay.
func (s *Store) Close() error { return s.lock.Close() }

// removeFile removes a file, if there is one.
func removeFile(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
