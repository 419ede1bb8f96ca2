// Package audit writes the audit log: who did what to a server or a hub, and what was
// denied, as one JSON object per line in a file that is only appended to. docs/audit.md
// describes the records and schema.json is their JSON Schema.
//
// It never has secrets or content: callers pass no environment, credentials, input,
// output, or queries of URLs.
package audit

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Values of [Options]; the settings are called audit_argv, audit_fsync and audit_failure.
const (
	ArgvFull   = "full"
	ArgvDigest = "digest"
	ArgvOff    = "off"

	SyncOff      = "off"
	SyncEach     = "each"
	SyncInterval = "interval"

	FailureRefuse = "refuse"
	FailureDrop   = "drop"
)

// syncInterval is how often [SyncInterval] synchronizes.
const syncInterval = time.Second

// Bounds of denied records per second, of one source and of all.
const (
	deniedPerSource = 10
	deniedPerSecond = 100
)

// Options are the options of a log.
type Options struct {
	// File is the path of the file. Required.
	File string
	// Argv is what is recorded of arguments: [ArgvFull], [ArgvDigest] or [ArgvOff].
	Argv string
	// Reads is whether reads of files are recorded.
	Reads bool
	// MaxBytes is the size at which the file is rotated; 0 never rotates. Keep is how many
	// rotated files are kept, named File.1, the newest, to File.Keep; at least 1.
	MaxBytes int64
	Keep     int
	// Sync is when the file is synchronized with the disk: [SyncOff], [SyncEach] record
	// before its action, or every second ([SyncInterval]).
	Sync string
	// Failure is what happens to an action whose record cannot be written:
	// [FailureRefuse] or [FailureDrop].
	Failure string
	// Logger reports failures. Nil discards.
	Logger *slog.Logger
}

// Log is an audit log. All methods may be called concurrently. They block while the file
// is written and, with [SyncEach], synchronized.
type Log struct {
	opts Options
	run  string // precedes the numbers of calls
	now  func() time.Time

	calls                        atomic.Uint64
	written, dropped, suppressed atomic.Uint64

	syncing sync.Mutex // held while the file is synchronized; before mu
	synced  uint64     // guarded by syncing; how many of appended are on the disk

	mu       sync.Mutex
	file     *os.File       // guarded by mu; nil once closed
	size     int64          // guarded by mu
	torn     bool           // guarded by mu; the file does not end with a newline
	appended uint64         // guarded by mu; lines
	failing  bool           // guarded by mu; the last line was not written
	stuck    bool           // guarded by mu; the last rotation failed
	timer    *time.Timer    // guarded by mu; of the next synchronization
	second   int64          // guarded by mu; to which denied belongs
	denied   map[string]int // guarded by mu; records of this second by source
	total    int            // guarded by mu; of all sources
	omitted  uint64         // guarded by mu; denied records since the last line
}

// Error is an audit log that cannot be opened.
type Error struct {
	File    string // its path
	Problem string // what is wrong
	Fix     string // empty: none is known
	Err     error  // the cause; may be nil
}

func (e *Error) Error() string {
	text := "the audit log " + e.File + " " + e.Problem
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	if e.Fix != "" {
		text += "; " + e.Fix
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// WriteError is the error of an action whose record could not be written.
type WriteError struct {
	Err error // the cause; never nil
}

func (e *WriteError) Error() string {
	return "the audit log cannot be written, and audit_failure is refuse: " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *WriteError) Unwrap() error { return e.Err }

// errClosed is the error of a record after Close.
var errClosed = errors.New("the audit log is closed")

// Open opens a log, and creates its file with mode 0600 if there is none. The error is an
// *[Error]: the file cannot be opened, others can write it, or another program uses it.
func Open(opts Options) (*Log, error) {
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	opts.Keep = max(opts.Keep, 1)
	var run [4]byte
	_, _ = rand.Read(run[:]) // never fails
	l := &Log{opts: opts, run: hex.EncodeToString(run[:]), now: time.Now, denied: make(map[string]int)}
	var err error
	l.file, l.size, l.torn, err = open(opts.File)
	return l, err
}

// open opens a file, and reports its size and whether its last line is torn.
func open(path string) (f *os.File, size int64, torn bool, err error) {
	f, err = os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, 0, false, &Error{File: path, Problem: "cannot be opened", Err: err}
	}
	if size, torn, err = examine(f); err != nil {
		_ = f.Close()
		return nil, 0, false, err
	}
	return f, size, torn, nil
}

func examine(f *os.File) (size int64, torn bool, err error) {
	info, err := f.Stat()
	switch {
	case err != nil:
		return 0, false, &Error{File: f.Name(), Problem: "cannot be examined", Err: err}
	case !info.Mode().IsRegular():
		return 0, false, &Error{File: f.Name(), Problem: "is not a regular file", Fix: "name another file"}
	case info.Mode().Perm()&0o022 != 0:
		return 0, false, &Error{File: f.Name(), Problem: fmt.Sprintf("can be written by others than its owner (mode %04o)", info.Mode().Perm()), Fix: "chmod 600 " + f.Name()}
	}
	// Two programs would each rotate the file of the other.
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return 0, false, &Error{File: f.Name(), Problem: "is in use by another program", Fix: "give each its own file"}
	}
	if info.Size() == 0 {
		return 0, false, nil
	}
	var last [1]byte
	if _, err := f.ReadAt(last[:], info.Size()-1); err != nil && err != io.EOF {
		return 0, false, &Error{File: f.Name(), Problem: "cannot be read", Err: err}
	}
	return info.Size(), last[0] != '\n', nil
}

// NewCall returns the id of a call, which its records share: unique among those of this
// log, and probably of all.
func (l *Log) NewCall() string { return l.run + "-" + strconv.FormatUint(l.calls.Add(1), 10) }

// Reads reports whether reads of files are recorded.
func (l *Log) Reads() bool { return l.opts.Reads }

// SetArgv sets what the setting allows of arguments. It does not keep argv itself from
// being kept by r; it must not change while r is used.
func (l *Log) SetArgv(r *Record, argv []string) {
	if l.opts.Argv == ArgvOff {
		return
	}
	r.ArgvSHA256, r.ArgvCount = digest(argv), len(argv)
	if l.opts.Argv == ArgvFull {
		r.Argv = argv
	}
}

// Intend writes the intent of an action, which must not be done if it returns an error: a
// *[WriteError], if the setting says refuse.
func (l *Log) Intend(r *Record) error {
	r.Type, r.Decision = Intent, DecisionAllowed
	if err := l.write(r); err != nil && l.opts.Failure == FailureRefuse {
		return &WriteError{Err: err}
	}
	return nil
}

// Write writes a record of what has happened. If it cannot be written it is counted.
func (l *Log) Write(r *Record) { _ = l.write(r) }

// Deny writes that an action was denied. Of more records than a few per second only the
// number is written, with the next record; source is what the number of one caller is
// counted by, so that no other caller can use up all.
func (l *Log) Deny(r *Record, source string) {
	r.Type, r.Decision = Denied, DecisionDenied
	if l.admitDenied(source) {
		_ = l.write(r)
	}
}

// admitDenied reports whether a denied record is within the bounds.
func (l *Log) admitDenied(source string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if second := l.now().Unix(); second != l.second {
		l.second, l.total = second, 0
		clear(l.denied)
	}
	if l.total >= deniedPerSecond || l.denied[source] >= deniedPerSource {
		l.omitted++
		l.suppressed.Add(1)
		return false
	}
	l.total++
	l.denied[source]++ // at most deniedPerSecond sources
	return true
}

// write appends a record.
func (l *Log) write(r *Record) error {
	n, err := l.append(r)
	if err == nil && l.opts.Sync == SyncEach {
		err = l.sync(n)
	}
	if l.noteOutcome(err) {
		l.written.Add(1)
	} else {
		l.dropped.Add(1)
	}
	return err
}

// noteOutcome reports whether a record was written, and logs when that changes.
func (l *Log) noteOutcome(err error) bool {
	l.mu.Lock()
	changed := l.failing != (err != nil)
	l.failing = err != nil
	l.mu.Unlock()
	switch {
	case changed && err != nil:
		l.opts.Logger.Error("the audit log cannot be written", "file", l.opts.File, "audit_failure", l.opts.Failure, "error", err)
	case changed:
		l.opts.Logger.Info("the audit log is written again", "file", l.opts.File, "dropped", l.dropped.Load())
	}
	return err == nil
}

// append appends a record as one line by one write(2), and returns its number. After a
// part of a line, which a full disk or a crash leaves, the next one begins with a newline.
func (l *Log) append(r *Record) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return 0, errClosed
	}
	r.Suppressed = l.omitted
	line, err := r.encode(l.now())
	if err != nil {
		return 0, err
	}
	if l.opts.MaxBytes > 0 && l.size > 0 && l.size+int64(len(line)) > l.opts.MaxBytes {
		l.rotate()
	}
	if l.torn {
		line = append([]byte{'\n'}, line...)
	}
	n, err := l.file.Write(line)
	l.size += int64(n)
	if err != nil {
		l.torn = l.torn && n == 0 || n > 0
		return 0, err
	}
	l.torn, l.omitted = false, 0
	l.appended++
	if l.opts.Sync == SyncInterval && l.timer == nil {
		l.timer = time.AfterFunc(syncInterval, l.syncLater)
	}
	return l.appended, nil
}

// sync returns when the first n lines are on the disk. One synchronization is for all
// lines that were appended before it.
func (l *Log) sync(n uint64) error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	if l.synced >= n {
		return nil
	}
	l.mu.Lock()
	f, appended := l.file, l.appended
	l.mu.Unlock()
	if f == nil {
		return errClosed
	}
	if err := f.Sync(); err != nil && !errors.Is(err, os.ErrClosed) { // it was synchronized before it was closed
		return err
	}
	l.synced = appended
	return nil
}

// syncLater is called by the timer.
func (l *Log) syncLater() {
	l.mu.Lock()
	l.timer = nil
	n := l.appended
	l.mu.Unlock()
	if err := l.sync(n); err != nil && !errors.Is(err, errClosed) {
		l.opts.Logger.Error("the audit log cannot be synchronized with the disk", "file", l.opts.File, "error", err)
	}
}

// rotate renames the file and begins a new one. If that fails, records continue to be
// appended to the old one, because they matter more than its size. mu is held.
func (l *Log) rotate() {
	f, err := l.replaceFile()
	if err != nil {
		if !l.stuck {
			l.opts.Logger.Error("the audit log cannot be rotated, and grows", "file", l.opts.File, "error", err)
		}
		l.stuck = true
		return
	}
	l.closeFile()
	l.file, l.size, l.torn, l.stuck = f, 0, false, false
}

// replaceFile creates the new file under another name first: then only renames are left
// to fail. mu is held.
func (l *Log) replaceFile() (*os.File, error) {
	path := l.opts.File
	next := path + ".next"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a crash
		return nil, err
	}
	f, _, _, err := open(next)
	if err != nil {
		return nil, err
	}
	if err = l.shift(); err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		_ = f.Close()
		return nil, errors.Join(err, os.Remove(next))
	}
	if l.opts.Sync == SyncEach {
		err = syncDirectory(filepath.Dir(path))
	}
	return f, err
}

// shift renames the file to the first of its rotated names, and those that exist up to
// the first gap to the next. The oldest is replaced. mu is held.
func (l *Log) shift() error {
	name := l.rotated
	free := 1
	for ; free < l.opts.Keep; free++ {
		if _, err := os.Lstat(name(free)); errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	for i := free; i > 1; i-- {
		if err := os.Rename(name(i-1), name(i)); err != nil {
			return err
		}
	}
	err := os.Rename(l.opts.File, name(1))
	if errors.Is(err, fs.ErrNotExist) { // it was removed or renamed by another program
		return nil
	}
	return err
}

// rotated returns the path of a rotated file; 1 is the newest.
func (l *Log) rotated(i int) string { return l.opts.File + "." + strconv.Itoa(i) }

func syncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return d.Sync()
}

// closeFile synchronizes and closes the file. mu is held.
func (l *Log) closeFile() {
	if l.opts.Sync != SyncOff {
		if err := l.file.Sync(); err != nil {
			l.opts.Logger.Error("the audit log cannot be synchronized with the disk", "file", l.opts.File, "error", err)
		}
	}
	_ = l.file.Close()
}

// Reopen opens the file again if another one has its name now, or none: another program
// has rotated it. If the new one cannot be opened, the error is an *[Error] and the old
// one stays in use.
func (l *Log) Reopen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	current, err := l.file.Stat()
	if err == nil {
		if named, err := os.Stat(l.opts.File); err == nil && os.SameFile(current, named) {
			return nil
		}
	}
	f, size, torn, err := open(l.opts.File)
	if err != nil {
		return err
	}
	l.closeFile()
	l.file, l.size, l.torn = f, size, torn
	return nil
}

// Close synchronizes and closes the file. Later records are dropped. It may be called again.
func (l *Log) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return
	}
	if l.timer != nil {
		l.timer.Stop()
	}
	l.closeFile()
	l.file = nil
}

// Stats are the numbers of records since the log was opened.
type Stats struct {
	Written    uint64 // are in a file
	Dropped    uint64 // could not be written, also those of refused actions
	Suppressed uint64 // denied records beyond the bounds per second
}

// ByResult returns the numbers by their names in metrics.
func (s Stats) ByResult() map[string]float64 {
	return map[string]float64{"written": float64(s.Written), "dropped": float64(s.Dropped), "suppressed": float64(s.Suppressed)}
}

// Stats returns the current numbers. It does not block.
func (l *Log) Stats() Stats {
	return Stats{Written: l.written.Load(), Dropped: l.dropped.Load(), Suppressed: l.suppressed.Load()}
}
