package sandbox

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"strconv"
	"sync"

	_ "embed" // the preparer's code

	"golang.org/x/sys/unix"
)

// The preparer is what is forked where bubblewrap is to be: it makes the system calls of a preparation, of which each has
// to succeed, and then becomes bubblewrap. It is a program of its own, of a few hundred bytes, since namespaces of an
// ordinary user can only be made where there are no other threads.
//
//go:embed starter/prepare_amd64.bin
var preparerAMD64 []byte

//go:embed starter/prepare_arm64.bin
var preparerARM64 []byte

// preparers are the code for each machine.
var preparers = map[string][]byte{"amd64": preparerAMD64, "arm64": preparerARM64}

// preparerCalls is the descriptor of the preparer that has the calls, as starter/prepare_amd64.s has it. It is that of
// the starter's rules, which bubblewrap has none of.
const preparerCalls = starterRules

// preparation is a list of system calls for the preparer. The zero value has none.
type preparation struct {
	calls  []preparedCall
	data   []byte              // what arguments point to
	known  map[string]argument // what data is where
	path   string              // what the calls to come are about
	doing  string              // what it means if one of them fails
	looked argument            // where there is room for what is found out about a file
}

// preparedCall is a system call of a preparation.
type preparedCall struct {
	number      uintptr
	args        [maxArgs]uint64
	results     []int // words of the calls that the result goes to
	path, doing string
}

// argument is what a system call is given.
type argument struct {
	value  uint64
	result int // 1 + the call whose result it is; 0: value
}

// The layout of what the preparer is given.
const (
	preparerBase  = 0x10000000
	preparedWords = 8 // of a call
	maxArgs       = 6
	preparedEnd   = ^uintptr(0)     // in place of the number of a call
	preparedEqual = ^uintptr(0) - 1 // not a call, but a comparison
	wordBytes     = 8
)

// literal is a number.
func literal(n int) argument { return argument{value: uint64(n)} }

// here is the working directory, as a descriptor.
var here = literal(unix.AT_FDCWD)

// about says what the calls to come are about, and what it means if one of them fails.
func (p *preparation) about(path, doing string) { p.path, p.doing = path, doing }

// text is a string, which ends with a zero.
func (p *preparation) text(s string) argument { return p.point(append([]byte(s), 0)) }

// words is a structure of the kernel's.
func (p *preparation) words(values ...uint64) argument {
	var data []byte
	for _, value := range values {
		data = binary.LittleEndian.AppendUint64(data, value) // both architectures are little-endian
	}
	return p.point(data)
}

// point is where data will be that no call changes.
func (p *preparation) point(data []byte) argument {
	if p.known == nil {
		p.known = map[string]argument{}
	}
	at, ok := p.known[string(data)]
	if !ok {
		at = p.room(len(data))
		copy(p.data[len(p.data)-(len(data)+wordBytes-1)&^(wordBytes-1):], data)
		p.known[string(data)] = at
	}
	return at
}

// room is where so many bytes will be, in whole words, for calls to write to.
func (p *preparation) room(size int) argument {
	at := argument{value: uint64(preparerBase + wordBytes + len(p.data))}
	p.data = append(p.data, make([]byte, (size+wordBytes-1)&^(wordBytes-1))...)
	return at
}

// call adds a call, and returns what stands for its result in later ones.
func (p *preparation) call(number uintptr, args ...argument) argument {
	c := preparedCall{number: number, path: p.path, doing: p.doing}
	for i, arg := range args {
		if arg.result > 0 {
			from := &p.calls[arg.result-1]
			from.results = append(from.results, len(p.calls)*preparedWords+1+i)
		}
		c.args[i] = arg.value
	}
	p.calls = append(p.calls, c)
	return argument{result: len(p.calls)}
}

// equal has it fail with ESTALE unless the word so many bytes behind a place is that one.
func (p *preparation) equal(at argument, offset int, word uint64) {
	at.value += uint64(offset)
	p.call(preparedEqual, at, argument{value: word})
}

// bytes is the preparation as the preparer is given it: the calls, where their results go, and what they point to.
func (p *preparation) bytes() []byte {
	order := binary.LittleEndian
	first := uint64(preparerBase + wordBytes + len(p.data))
	places := first + uint64(len(p.calls)*preparedWords+1)*wordBytes
	var results []byte
	all := append(order.AppendUint64(nil, first), p.data...)
	for i := range p.calls {
		c := &p.calls[i]
		all = order.AppendUint64(all, uint64(c.number))
		for _, arg := range c.args {
			all = order.AppendUint64(all, arg)
		}
		all = order.AppendUint64(all, places+uint64(len(results)))
		for _, word := range c.results {
			results = order.AppendUint64(results, first+uint64(word*wordBytes))
		}
		results = order.AppendUint64(results, 0)
	}
	return append(order.AppendUint64(all, uint64(preparedEnd)), results...)
}

// preparerReport is how many bytes the preparer says when something failed.
const preparerReport = 16

// failure is what the preparer said, as an error.
func (p *preparation) failure(report []byte) error {
	at := int64(binary.LittleEndian.Uint64(report)) - int64(preparerBase+wordBytes+len(p.data))
	errno := readErrno(report[wordBytes:])
	switch i := at / (preparedWords * wordBytes); {
	case at < 0 || i > int64(len(p.calls)):
		return failed(NotStarted, "", "what is to be prepared for bubblewrap cannot be read", errno)
	case i == int64(len(p.calls)):
		return failed(NotStarted, "", "bubblewrap cannot be executed", errno)
	default:
		return failed(NotStarted, p.calls[i].path, p.calls[i].doing, errno)
	}
}

// give makes the file of the calls, and hands it to the launch.
func (p *preparation) give(l *launch) (int, error) {
	fd, err := memoryDescriptor("execwire-preparation", unix.MFD_NOEXEC_SEAL, p.bytes())
	if err == nil {
		l.give(fd)
	}
	return fd, err
}

// preparerFile is the file of this machine's preparer, in memory, made when it is first asked for. The zero value is
// ready.
type preparerFile struct {
	mu   sync.Mutex
	file *os.File // guarded by mu
}

// descriptor returns that of the file, which stays open until close.
func (f *preparerFile) descriptor() (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		code, ok := preparers[runtime.GOARCH]
		if !ok {
			return -1, errors.New("there is no preparer for " + runtime.GOARCH)
		}
		file, err := memoryFile("execwire-preparer", unix.MFD_EXEC, programFile(starters[runtime.GOARCH].machine, code))
		if err != nil {
			return -1, err
		}
		f.file = file
	}
	return int(f.file.Fd()), nil
}

func (f *preparerFile) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file != nil {
		_ = f.file.Close()
		f.file = nil
	}
}

// ownDescriptor is the path of a descriptor to whoever has it.
func ownDescriptor(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
