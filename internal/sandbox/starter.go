package sandbox

import (
	"bytes"
	_ "embed" // the starter's code
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// The starter is the first program inside every sandbox. It does what has to be done as late as possible, and what
// bubblewrap cannot: where devices are root's it opens /dev/null inside if a stream is that of outside; it puts the
// program's streams in place, unblocks signals, keeps every other descriptor from the program, restores the exact
// environment, sets no_new_privs, drops all capabilities, enforces the rules of Landlock, loads the filter and executes
// the program, with any argv[0]. If that fails it says so. It is machine code, because executing this very program again
// for it would take longer than all the rest.
//
// None of this could be done to a thread of this process that then forks. Landlock lets those in one domain trace each
// other: as long as that thread lived, its child could read the memory that all threads have in common.
//
// The environment is given with a dot before each name, so that it means nothing to those in between: LD_PRELOAD would
// be obeyed by bubblewrap outside of any sandbox.
//
//go:embed starter/amd64.bin
var starterAMD64 []byte

//go:embed starter/arm64.bin
var starterARM64 []byte

// starters are the machine's number in ELF and the code.
var starters = map[string]struct {
	machine uint16
	code    []byte
}{
	"amd64": {machine: 62, code: starterAMD64},
	"arm64": {machine: 183, code: starterARM64},
}

// The starter's descriptors, as starter/amd64.s has them.
const (
	starterStreams = 3 // and the next two
	starterRules   = 7
	starterSelf    = 8 // the starter itself
)

// environmentPrefix keeps the environment from those in between.
const environmentPrefix = "."

// The layout of a program's file.
const (
	programBase    = 0x400000
	programHeaders = 64 + 56
)

// programFile makes an ELF file that begins to be executed at the begin of its content.
func programFile(machine uint16, content []byte) []byte {
	order, size := binary.LittleEndian, uint64(programHeaders+len(content))
	var file bytes.Buffer
	write := func(values ...any) {
		for _, v := range values {
			_ = binary.Write(&file, order, v) // into memory
		}
	}
	write([16]byte{0x7f, 'E', 'L', 'F', 2, 1, 1}, uint16(2), machine, uint32(1))     // executable
	write(uint64(programBase+programHeaders), uint64(64), uint64(0), uint32(0))      // entry, program headers
	write(uint16(64), uint16(56), uint16(1), uint16(0), uint16(0), uint16(0))        // of which there is one
	write(uint32(1), uint32(5), uint64(0), uint64(programBase), uint64(programBase)) // load, readable and executable
	write(size, size, uint64(4096), content)
	return file.Bytes()
}

// starterFile makes the file of the starter with a filter.
func starterFile(machine uint16, code []byte, restricted, sealed bool, filter []unix.SockFilter) []byte {
	var content bytes.Buffer
	write := func(values ...any) {
		for _, v := range values {
			_ = binary.Write(&content, binary.LittleEndian, v) // into memory
		}
	}
	program := uint64(programBase + programHeaders + len(code) + 8) // where the struct sock_fprog is
	write(code, restricted, sealed, [6]byte{})
	write(uint16(len(filter)), [6]byte{}, program+16)
	write(filter)
	return programFile(machine, content.Bytes())
}

// starterFiles are files, in memory, of this machine's starter, one for each filter that was asked for, and of the filter
// alone where it is early.
type starterFiles struct {
	mu   sync.Mutex
	open map[filterKind]*os.File // guarded by mu
}

// file returns the descriptor of a starter, which stays open until close.
func (s *starterFiles) file(kind filterKind) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if file := s.open[kind]; file != nil {
		return int(file.Fd()), nil
	}
	file, err := kind.file()
	if err != nil {
		return -1, err
	}
	if s.open == nil {
		s.open = map[filterKind]*os.File{}
	}
	s.open[kind] = file
	return int(file.Fd()), nil
}

// early opens the filter of a kind as it has to be before the starter, for one reader.
func (s *starterFiles) early(kind filterKind) (int, error) {
	kind.early = true
	fd, err := s.file(kind)
	if err != nil {
		return -1, err
	}
	return unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
}

// file makes the file of a kind.
func (k filterKind) file() (*os.File, error) {
	if k.early {
		return memoryFile("execwire-filter", unix.MFD_NOEXEC_SEAL, filterBytes(k.program()))
	}
	starter, ok := starters[runtime.GOARCH]
	if !ok {
		return nil, errors.New("there is no starter for " + runtime.GOARCH)
	}
	return memoryFile("execwire-starter", unix.MFD_EXEC, starterFile(starter.machine, starter.code, k.landlock, k.sealed, k.program()))
}

// filterBytes is a filter as it is in memory: both architectures are little-endian.
func filterBytes(filter []unix.SockFilter) []byte {
	var code bytes.Buffer
	_ = binary.Write(&code, binary.LittleEndian, filter) // into memory
	return code.Bytes()
}

func (s *starterFiles) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for kind, file := range s.open {
		_ = file.Close()
		delete(s.open, kind)
	}
}

// memoryFile makes a file in memory that cannot change.
func memoryFile(name string, flags int, content []byte) (*os.File, error) {
	fd, err := memoryDescriptor(name, flags|unix.MFD_ALLOW_SEALING, content)
	if err != nil {
		return nil, err
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// memoryDescriptor makes a file in memory, which is read from its begin.
func memoryDescriptor(name string, flags int, content []byte) (int, error) {
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_CLOEXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3 such files are always executable
		fd, err = unix.MemfdCreate(name, (flags|unix.MFD_CLOEXEC)&^(unix.MFD_EXEC|unix.MFD_NOEXEC_SEAL))
	}
	if err != nil {
		return -1, err
	}
	for at := 0; at < len(content); {
		n, err := unix.Pwrite(fd, content[at:], int64(at))
		if err != nil && !errors.Is(err, unix.EINTR) {
			_ = unix.Close(fd)
			return -1, err
		}
		at += max(n, 0)
	}
	return fd, nil
}
