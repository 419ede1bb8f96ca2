//go:build linux

// Package innerexec does the last step of a start in bubblewrap, inside the sandbox and
// right before the program is executed: what bwrap cannot do. For this step bwrap
// executes the server's binary.
//
// It runs in init, before other packages are initialized, which avoids most of the
// startup time of a large binary. For the same reason the package imports only syscall:
// Go initializes packages in the order of their paths, each as soon as its dependencies
// are initialized. bwrap has loaded the seccomp filter before.
package innerexec

import (
	"syscall"
	"unsafe"
)

// Environment variables that select a step. The server sets them for the processes that
// it starts from its own binary.
const (
	// EnvExec selects executing the program. Its value is the list of resource limits,
	// as "RESOURCE:SOFT:HARD" separated by commas. It must contain RLIMIT_NOFILE,
	// which package syscall has raised.
	EnvExec = "EXECWIRE_SANDBOX_EXEC"
	// EnvWait selects waiting until standard input ends, and exiting.
	EnvWait = "EXECWIRE_SANDBOX_WAIT"
)

// Descriptors that EnvExec expects.
const (
	StreamsFD = 3 // the program's standard input; output and errors follow
	StatusFD  = 6 // see [Ready]
	SelfFD    = 7 // the server's binary; closed on execve
)

// Ready is written to StatusFD right before execve. If a step fails, it is followed by
// the errno, as eight bytes in little-endian order.
const Ready = 'r'

//go:linkname runtimeArgs os.runtime_args
func runtimeArgs() []string

func init() {
	if limits, ok := syscall.Getenv(EnvExec); ok {
		fail(execProgram(runtimeArgs(), syscall.Environ(), limits))
	}
	if _, ok := syscall.Getenv(EnvWait); ok {
		var b [1]byte
		for {
			if n, err := syscall.Read(0, b[:]); n == 0 || err != nil && err != syscall.EINTR { // package errors is not initialized
				exit(0)
			}
		}
	}
}

// System calls and constants that package syscall lacks.
const (
	sysCloseRange      = 436
	closeRangeCloexec  = 4
	prSetNoNewPrivs    = 38
	prCapAmbient       = 47
	capAmbientClearAll = 4
	capabilityVersion3 = 0x20080522
	maxSignal          = 64
	sigSetMask         = 2
	signalSetBytes     = 8
)

// execProgram executes the program args[1] with the arguments args[2:]. It returns only
// on failure.
func execProgram(args, environment []string, limits string) syscall.Errno {
	if len(args) < 3 {
		return syscall.EINVAL
	}
	path, err := syscall.BytePtrFromString(args[1])
	if err != nil {
		return syscall.EINVAL
	}
	argv, err := syscall.SlicePtrFromStrings(args[2:])
	if err != nil {
		return syscall.EINVAL
	}
	env, err := syscall.SlicePtrFromStrings(original(environment))
	if err != nil {
		return syscall.EINVAL
	}
	for i := range uintptr(3) {
		if errno := call(syscall.SYS_DUP3, StreamsFD+i, i, 0); errno != 0 {
			return errno
		}
	}
	if errno := resetSignals(); errno != 0 {
		return errno
	}
	if errno := call(sysCloseRange, 3, ^uintptr(0)>>32, closeRangeCloexec); errno != 0 {
		return errno
	}
	if errno := dropPrivileges(); errno != 0 {
		return errno
	}
	ready := [1]byte{Ready}
	for rest := limits; rest != ""; {
		var errno syscall.Errno
		if rest, errno = setLimit(rest); errno != 0 {
			return errno
		}
	}
	if errno := call(syscall.SYS_WRITE, StatusFD, uintptr(unsafe.Pointer(&ready)), 1); errno != 0 {
		return errno
	}
	return call(syscall.SYS_EXECVE, uintptr(unsafe.Pointer(path)), uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&env[0])))
}

// original returns the environment of the program: the entries with a number and a dot,
// without these.
func original(environment []string) []string {
	entries := make([]string, 0, len(environment))
	for _, entry := range environment {
		i := 0
		for i < len(entry) && '0' <= entry[i] && entry[i] <= '9' {
			i++
		}
		if i > 0 && i < len(entry) && entry[i] == '.' {
			entries = append(entries, entry[i+1:])
		}
	}
	return entries
}

// resetSignals unblocks all signals, and resets their dispositions to those that the
// program starts with.
func resetSignals() syscall.Errno {
	for sig := uintptr(1); sig <= maxSignal; sig++ {
		var action, none [4]uintptr // struct sigaction; the first word is the handler
		if call4(syscall.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&action)), signalSetBytes) != 0 || action[0] <= 1 {
			continue // invalid, default or ignored
		}
		if errno := call4(syscall.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&none)), 0, signalSetBytes); errno != 0 {
			return errno
		}
	}
	var mask uint64
	return call4(syscall.SYS_RT_SIGPROCMASK, sigSetMask, uintptr(unsafe.Pointer(&mask)), 0, signalSetBytes)
}

// dropPrivileges drops all capabilities, and sets no_new_privs, with which execve adds none, for
// root neither.
func dropPrivileges() syscall.Errno {
	if errno := call4(syscall.SYS_PRCTL, prSetNoNewPrivs, 1, 0, 0); errno != 0 {
		return errno
	}
	if errno := call4(syscall.SYS_PRCTL, prCapAmbient, capAmbientClearAll, 0, 0); errno != 0 {
		return errno
	}
	header, sets := [2]uint32{capabilityVersion3, 0}, [6]uint32{}
	return call(syscall.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&sets)), 0)
}

// setLimit sets the first limit of a list, and returns the rest of the list.
func setLimit(limits string) (rest string, errno syscall.Errno) {
	var fields [3]uint64
	at := 0
	for i := range len(limits) {
		switch c := limits[i]; {
		case '0' <= c && c <= '9':
			fields[at] = fields[at]*10 + uint64(c-'0')
		case c == ':' && at < 2:
			at++
		case c == ',' && at == 2:
			return limits[i+1:], setResource(fields)
		default:
			return "", syscall.EINVAL
		}
	}
	if at < 2 {
		return "", syscall.EINVAL
	}
	return "", setResource(fields)
}

func setResource(fields [3]uint64) syscall.Errno {
	limit := [2]uint64{fields[1], fields[2]} // struct rlimit64
	return call4(syscall.SYS_PRLIMIT64, 0, uintptr(fields[0]), uintptr(unsafe.Pointer(&limit)), 0)
}

// fail reports the errno and exits.
func fail(errno syscall.Errno) {
	var report [8]byte
	for i := range report {
		report[i] = byte(uint64(errno) >> (8 * i))
	}
	_ = call(syscall.SYS_WRITE, StatusFD, uintptr(unsafe.Pointer(&report)), uintptr(len(report)))
	exit(127)
}

// exit exits without the cleanup of package runtime, which is not needed.
func exit(code uintptr) {
	for {
		_ = call(syscall.SYS_EXIT_GROUP, code, 0, 0)
	}
}

func call(number, a, b, c uintptr) syscall.Errno {
	_, _, errno := syscall.RawSyscall6(number, a, b, c, 0, 0, 0)
	return errno
}

func call4(number, a, b, c, d uintptr) syscall.Errno {
	_, _, errno := syscall.RawSyscall6(number, a, b, c, d, 0, 0)
	return errno
}
