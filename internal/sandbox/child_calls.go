package sandbox

import (
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// childCalls is a list of system calls that a child makes between fork and execve: see
// [Program.ForkExec]. The child exits if one fails. The zero value is empty.
type childCalls struct {
	calls      []childCall
	fail       func(errno syscall.Errno) error // returns the error of the following calls; nil: the errno
	execFailed func(errno syscall.Errno) error // returns the error of execve; nil: the errno
	oomScore   argument                        // result of the call that writes oom_score_adj
}

// childCall is a system call or a comparison.
type childCall struct {
	number   uintptr
	args     [maxArgs]argument
	optional bool    // may fail
	compare  *uint64 // not nil: no call, but fail unless the word is want
	want     uint64
	fail     func(errno syscall.Errno) error // see childCalls
}

// argument is an argument of a system call.
type argument struct {
	value  uintptr
	data   *uint64 // memory that value points to, kept alive; nil: value is a number
	result int     // 1 + the index of the call that returns it; 0: see value
}

// maxArgs is the maximum number of arguments of a system call.
const maxArgs = 6

// wordBytes is the size of a word on both architectures.
const wordBytes = 8

// literal returns a number as argument.
func literal(n int) argument { return argument{value: uintptr(n)} }

// cwdFD refers to the working directory.
var cwdFD = literal(unix.AT_FDCWD)

// describe sets the path and the text of errors of the following calls.
func (p *childCalls) describe(path, doing string) {
	p.fail = func(errno syscall.Errno) error { return failed(NotStarted, path, doing, errno) }
}

// text returns a NUL-terminated string as argument.
func (p *childCalls) text(s string) argument { return p.point(append([]byte(s), 0)) }

// words returns a structure as argument.
func (p *childCalls) words(values ...uint64) argument {
	return p.point(unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), len(values)*wordBytes))
}

// point returns constant data as argument.
func (p *childCalls) point(data []byte) argument {
	at := p.buffer(len(data))
	copy(unsafe.Slice((*byte)(unsafe.Pointer(at.data)), len(data)), data)
	return at
}

// buffer returns writable memory as argument.
func (p *childCalls) buffer(size int) argument {
	words := make([]uint64, (size+wordBytes-1)/wordBytes)
	return argument{value: uintptr(unsafe.Pointer(&words[0])), data: &words[0]}
}

// call adds a system call. Its result can be an argument of later calls.
func (p *childCalls) call(number uintptr, args ...argument) argument {
	c := childCall{number: number, fail: p.fail}
	copy(c.args[:], args)
	p.calls = append(p.calls, c)
	return argument{result: len(p.calls)}
}

// callOptional adds a system call that may fail.
func (p *childCalls) callOptional(number uintptr, args ...argument) argument {
	result := p.call(number, args...)
	p.calls[len(p.calls)-1].optional = true
	return result
}

// addAll adds the calls of another list.
func (p *childCalls) addAll(more *childCalls) {
	before := len(p.calls)
	for _, c := range more.calls {
		for i := range c.args {
			if c.args[i].result > 0 {
				c.args[i].result += before
			}
		}
		p.calls = append(p.calls, c)
	}
	p.execFailed = more.execFailed
}

// require makes the child fail with ESTALE unless the word at an offset in a buffer has
// the given value.
func (p *childCalls) require(at argument, offset int, word uint64) {
	compare := (*uint64)(unsafe.Add(unsafe.Pointer(at.data), offset))
	p.calls = append(p.calls, childCall{compare: compare, want: word, fail: p.fail})
}

// ownDescriptor returns the path of a descriptor in the process that uses it.
func ownDescriptor(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
