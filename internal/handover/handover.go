//go:build linux

// Package handover replaces the running program by another one that goes on with its
// state: the state is a message in a memory file, and descriptors stay open through execve.
package handover

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	handoverv1 "github.com/execwire/execwire/gen/go/execwire/handover/v1"
	"github.com/execwire/execwire/internal/procfs"
	"github.com/execwire/execwire/internal/session"
)

// Version is the version of the state that this program writes. It rises when a field is
// added without which a reader cannot go on.
const Version = 1

// minReaderVersion is the lowest version whose programs can go on with the state that this
// program writes, and oldest the lowest version that this program can go on with.
const (
	minReaderVersion = 1
	oldest           = 1
)

// variable tells a program the descriptor of the state that it goes on with.
const variable = "EXECWIRE_HANDOVER"

// heldSignals are blocked while the program is replaced: nobody handles them, and they
// would end it. They arrive when the new program handles them. Processes that it starts
// begin without blocked signals in any case.
var heldSignals = []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGUSR2}

// Program is what replaces this program.
type Program struct {
	// File is the open binary, so that what was checked is what is executed.
	File *os.File
	// Args and Environ are its arguments, from argv[0] on, and its environment.
	Args, Environ []string
}

// Descriptors are descriptors that stay open through execve. The zero value is empty. It
// is for one goroutine.
type Descriptors struct{ list []int }

// Add adds the descriptor of an open file or socket, and returns its number. The caller
// keeps it open until [Replace] has returned.
func (d *Descriptors) Add(file syscall.Conn) (fd uint32, err error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return 0, err
	}
	if err := raw.Control(func(number uintptr) { fd = uint32(number) }); err != nil {
		return 0, err
	}
	d.list = append(d.list, int(fd))
	return fd, nil
}

// AddNumber adds a descriptor by its number, as Add does.
func (d *Descriptors) AddNumber(fd int) uint32 {
	d.list = append(d.list, fd)
	return uint32(fd)
}

// setCloseOnExec sets or clears the flag of all.
func (d *Descriptors) setCloseOnExec(closing bool) error {
	flag := 0
	if closing {
		flag = unix.FD_CLOEXEC
	}
	var errs []error
	for _, fd := range d.list {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, flag); err != nil {
			errs = append(errs, fmt.Errorf("descriptor %d: %w", fd, err))
		}
	}
	return errors.Join(errs...)
}

// Seal writes a state, with the registry and the version of this program, to a memory file.
// It adds the descriptors of the registry to keep. The registry may be nil.
//
// The file has the size of the message in eight bytes, the message, and the data of its
// spans: output may be larger than messages can be.
func Seal(state *handoverv1.State, registry *session.State, keep *Descriptors) (*os.File, error) {
	state.Version, state.MinReaderVersion = Version, minReaderVersion
	e := encoder{keep: keep}
	if registry != nil {
		state.Registry = &handoverv1.Registry{}
		if err := e.encode(reflect.ValueOf(registry).Elem(), state.Registry.ProtoReflect()); err != nil {
			return nil, fmt.Errorf("failed to encode the state: %w", err)
		}
	}
	message, err := proto.Marshal(state)
	if err != nil {
		return nil, fmt.Errorf("failed to encode the state: %w", err)
	}
	fd, err := unix.MemfdCreate("execwire-handover", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("failed to create a file for the state: %w", err)
	}
	file := os.NewFile(uintptr(fd), "the state")
	out := bufio.NewWriterSize(file, writeBytes)
	_, _ = out.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(message)))) // Flush has the error
	_, _ = out.Write(message)
	for _, data := range e.data {
		_, _ = out.Write(data)
	}
	if err := out.Flush(); err != nil {
		return nil, errors.Join(fmt.Errorf("failed to write the state: %w", err), file.Close())
	}
	return file, nil
}

// State is a state that was read.
type State struct {
	*handoverv1.State
	// Sessions are the sessions and processes; nil: there were none. Their events are valid
	// until Release.
	Sessions *session.State

	memory []byte // of the file
	taken  uint64 // when Take was called, in ticks since boot
}

// Release releases the memory of the file. It may be called again, and for nil.
func (s *State) Release() {
	if s != nil && s.memory != nil {
		_ = unix.Munmap(s.memory)
		s.memory = nil
	}
}

// Open returns the state of a file of [Seal], which another program has written, perhaps of
// another version. The files of its sessions are the state's.
func Open(file *os.File) (*State, error) {
	return open(file, func(fd uint32) *os.File { return os.NewFile(uintptr(fd), "descriptor "+strconv.Itoa(int(fd))) })
}

// open is Open with a function for the files of descriptors.
func open(file *os.File, fileOf func(fd uint32) *os.File) (*State, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("failed to read the state: %w", err)
	}
	if info.Size() < lengthBytes {
		return nil, errNoState
	}
	s := &State{State: &handoverv1.State{}}
	if s.memory, err = unix.Mmap(int(file.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_PRIVATE); err != nil {
		return nil, fmt.Errorf("failed to read the state: %w", err)
	}
	if err := s.decode(fileOf); err != nil {
		s.Release()
		return nil, err
	}
	return s, nil
}

const (
	// lengthBytes is the size of the size of the message.
	lengthBytes = 8
	// writeBytes is how much is written at once.
	writeBytes = 1 << 20
)

var errNoState = errors.New("failed to read the state: the file has none")

func (s *State) decode(fileOf func(fd uint32) *os.File) error {
	length, rest := binary.LittleEndian.Uint64(s.memory), s.memory[lengthBytes:]
	if length > uint64(len(rest)) {
		return errNoState
	}
	if err := proto.Unmarshal(rest[:length], s.State); err != nil {
		return fmt.Errorf("failed to decode the state: %w", err)
	}
	if s.GetVersion() < oldest || s.GetMinReaderVersion() > Version {
		return &VersionError{Written: s.GetVersion(), MinReader: s.GetMinReaderVersion(), Program: s.GetProgramVersion()}
	}
	if s.GetRegistry() == nil {
		return nil
	}
	s.Sessions = &session.State{}
	d := decoder{data: rest[length:], file: fileOf}
	if err := d.decode(s.Registry.ProtoReflect(), reflect.ValueOf(s.Sessions).Elem()); err != nil {
		return fmt.Errorf("failed to decode the state: %w", err)
	}
	s.Registry = nil
	return nil
}

// VersionError is the error of a state that this program cannot go on with.
type VersionError struct {
	// Written is the version of the state, and MinReader the lowest that can read it.
	Written, MinReader uint32
	// Program is the version of the program that wrote it.
	Program string
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("the state of execwire %s has version %d, which programs from version %d on can read; this one has version %d and reads from %d on: "+
		"upgrade by way of a version in between, or restart", e.Program, e.Written, e.MinReader, Version, oldest)
}

// Replace executes the program in place of this one, which goes on with the state of a file
// of [Seal] and finds the descriptors under their numbers. It returns only if that fails:
// nothing has changed then. No other goroutine may start a program other than by package
// syscall or sandbox meanwhile.
func Replace(program Program, state *os.File, keep Descriptors) error {
	if _, err := keep.Add(state); err != nil {
		return err
	}
	number := keep.list[len(keep.list)-1]
	path := "/proc/self/fd/" + strconv.Itoa(int(program.File.Fd()))
	if Fail(Execute) != nil {
		path += "/" // ENOTDIR
	}
	environ := append(WithoutState(program.Environ), variable+"="+strconv.Itoa(number))
	// A program that another goroutine starts would inherit the descriptors.
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := holdSignals()
	if err != nil {
		return err
	}
	defer func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil) }()
	if err := keep.setCloseOnExec(false); err != nil {
		return errors.Join(err, keep.setCloseOnExec(true))
	}
	restore := openFilesLimit()
	err = syscall.Exec(path, program.Args, environ)
	restore()
	return errors.Join(fmt.Errorf("failed to execute %s: %w", program.File.Name(), err), keep.setCloseOnExec(true))
}

// openFilesLimit returns a function that sets the limit of open files to what it is now.
// syscall.Exec sets the one of children, which package syscall must go on to use for them,
// so that this passes it by.
func openFilesLimit() (restore func()) {
	var limit unix.Rlimit
	get := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	return func() {
		if get == nil {
			_, _, _ = unix.RawSyscall6(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
		}
	}
}

// holdSignals blocks heldSignals in this thread, and returns what was blocked before.
func holdSignals() (before unix.Sigset_t, err error) {
	var held unix.Sigset_t
	for _, sig := range heldSignals {
		held.Val[0] |= 1 << (uint(sig) - 1)
	}
	err = unix.PthreadSigmask(unix.SIG_BLOCK, &held, &before)
	return before, err
}

// Take returns the state with which the program before has replaced itself by this one, or
// nil if there was none. The descriptors of the state are this program's, and closed on
// execve. Call it once, before anything is started.
func Take() (*State, error) {
	value, set := os.LookupEnv(variable)
	if !set {
		return nil, nil
	}
	if err := os.Unsetenv(variable); err != nil {
		return nil, err
	}
	fd, err := strconv.Atoi(value)
	if err != nil || fd <= 2 {
		return nil, fmt.Errorf("%s is %q, not the descriptor of a state", variable, value)
	}
	if unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC) != nil { // before Linux 5.11
		if err := closeEachOnExec(); err != nil {
			return nil, fmt.Errorf("failed to set close-on-exec: %w", err)
		}
	}
	file := os.NewFile(uintptr(fd), "the state")
	defer func() { _ = file.Close() }()
	if err := Fail(Taken); err != nil {
		return nil, err
	}
	taken := procfs.BootTicks()
	state, err := Open(file)
	if err == nil {
		state.taken = taken
	}
	return state, err
}

// closeEachOnExec sets close-on-exec on all descriptors above 2.
func closeEachOnExec() error {
	open, err := os.ReadDir("/proc/self/fd")
	for _, entry := range open {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return err
}

// ReapWorkers reaps the file workers of the program before, which are children in the session
// of this program: they end by themselves with their connections, and no other code waits for
// them. It starts a goroutine for each, which ends with it and for which nobody waits.
func (s *State) ReapWorkers() {
	session, err := unix.Getsid(0)
	list, listErr := procfs.List()
	if err != nil || listErr != nil {
		return
	}
	for _, p := range list {
		if p.PPID == os.Getpid() && p.Session == session && p.Start < s.taken {
			go func() { _, _ = unix.Wait4(p.PID, nil, 0, nil) }()
		}
	}
}

// WithoutState returns an environment without the variable of a state.
func WithoutState(environ []string) []string {
	var kept []string
	for _, one := range environ {
		if !strings.HasPrefix(one, variable+"=") {
			kept = append(kept, one)
		}
	}
	return kept
}
