package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/execwire/execwire/internal/testproc"
)

var processAttempts = map[string]attempt{
	"use another's memory": {make: useOther},
	"read environment":     {make: func(s stage) error { return wants(os.ReadFile(s.proc("environ"))) }},
	"read memory":          {make: readMemory},
	"read maps":            {make: func(s stage) error { _, err := os.ReadFile(s.proc("maps")); return err }},
	"read memory by call":  {make: readByCall},
	"write memory by call": {make: writeByCall},
	"read descriptors":     {make: func(s stage) error { return wants(os.ReadFile(s.proc("fd/" + strconv.Itoa(s.File)))) }},
	"take descriptor":      {make: takeDescriptor},
	"use what is inherited": {make: func(s stage) error {
		content := make([]byte, 100)
		n, err := unix.Pread(s.File, content, 0)
		return wants(content[:max(n, 0)], err)
	}},
	"trace":         {make: func(s stage) error { return system(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(s.Server)) }},
	"signal":        {make: func(s stage) error { return unix.Kill(s.Server, unix.SIGCONT) }},
	"signal thread": {make: func(s stage) error { return unix.Tgkill(s.Server, s.Server, unix.SIGCONT) }},
	"signal by descriptor": {make: func(s stage) error {
		fd, err := unix.PidfdOpen(s.Server, 0)
		if err != nil {
			return err
		}
		return unix.PidfdSendSignal(fd, unix.SIGCONT, nil, 0)
	}},
	"set limits":             {make: setLimits},
	"set priority":           {make: setPriority},
	"set affinity":           {make: setAffinity},
	"attach shared memory":   {make: func(s stage) error { return system(unix.SYS_SHMAT, uintptr(s.Shared), 0, unix.SHM_RDONLY) }},
	"make user namespace":    {make: func(stage) error { return forkWith(unix.CLONE_NEWUSER) }},
	"leave namespace":        {root: true, make: func(stage) error { return unix.Unshare(unix.CLONE_NEWNET) }},
	"fork into namespace":    {make: func(stage) error { return forkWith(namespaces(unix.CLONE_NEWNET)) }},
	"fork by the newer call": {make: cloneNamespace},
	"enter namespace": {root: true, make: func(s stage) error {
		return reading(s.proc("ns/uts"), func(fd int) error { return unix.Setns(fd, unix.CLONE_NEWUTS) })
	}},
	"gain by set-user-id": {ordinary: true, make: bySetuid},
	"keep privileges":     {root: true, make: func(stage) error { return unix.Setuid(1) }},
	"use io_uring": {make: func(stage) error {
		var params [120]byte
		return system(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)))
	}},
	"read the kernel's log": {root: true, make: func(stage) error {
		_, err := unix.Klogctl(unix.SYSLOG_ACTION_SIZE_BUFFER, nil)
		return err
	}},
	"change line discipline": {make: func(stage) error {
		return unix.IoctlSetPointerInt(0, unix.TIOCSETD, 0)
	}},
	"use keys": {make: func(stage) error {
		_, err := unix.AddKey("user", "execwire", []byte("x"), unix.KEY_SPEC_PROCESS_KEYRING)
		return err
	}},
	"load BPF": {root: true, make: loadBPF},
	"put input into terminal": {root: true, make: func(stage) error {
		c := byte('x')
		return system(unix.SYS_IOCTL, 0, unix.TIOCSTI, uintptr(unsafe.Pointer(&c)))
	}},
}

func readMemory(s stage) error {
	return reading(s.proc("mem"), func(fd int) error {
		content := make([]byte, len(secret))
		_, err := unix.Pread(fd, content, int64(s.Secret))
		return wants(content, err)
	})
}

// useOther looks for a process of which the memory can be written, and that no filter is loaded in.
func useOther(stage) error {
	all, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, entry := range all {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() || reading2("/proc/"+entry.Name()+"/mem", unix.O_RDWR) != nil {
			continue
		}
		status, err := os.ReadFile("/proc/" + entry.Name() + "/status")
		if err == nil && strings.Contains(string(status), "\nSeccomp:\t0\n") {
			return nil
		}
	}
	return errors.New("there is none")
}

func vector(content []byte) []unix.Iovec {
	return []unix.Iovec{{Base: &content[0], Len: uint64(len(content))}}
}

func readByCall(s stage) error {
	content := make([]byte, len(secret))
	_, err := unix.ProcessVMReadv(s.Server, vector(content), []unix.RemoteIovec{{Base: uintptr(s.Secret), Len: len(secret)}}, 0)
	return wants(content, err)
}

func writeByCall(s stage) error {
	_, err := unix.ProcessVMWritev(s.Server, vector([]byte(secret)), []unix.RemoteIovec{{Base: uintptr(s.Secret), Len: len(secret)}}, 0)
	return err
}

func takeDescriptor(s stage) error {
	pid, err := unix.PidfdOpen(s.Server, 0)
	if err != nil {
		return err
	}
	_, err = unix.PidfdGetfd(pid, s.File, 0)
	return err
}

func setLimits(s stage) error {
	var limit unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_CORE, nil, &limit); err != nil {
		return err
	}
	return unix.Prlimit(s.Server, unix.RLIMIT_CORE, &limit, nil)
}

// setPriority sets the priority to what it is, since to raise it takes privileges.
func setPriority(s stage) error {
	const highest = 20 // the call returns 20 less the nice value
	priority, err := unix.Getpriority(unix.PRIO_PROCESS, s.Server)
	if err != nil {
		return err
	}
	return unix.Setpriority(unix.PRIO_PROCESS, s.Server, highest-priority)
}

func setAffinity(s stage) error {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return err
	}
	return unix.SchedSetaffinity(s.Server, &set)
}

// cloneNamespace forks by clone3 a child that ends at once.
func cloneNamespace(stage) error {
	args := [11]uint64{0: uint64(namespaces(unix.CLONE_NEWNET)) | unix.CLONE_VFORK, 4: uint64(unix.SIGCHLD)}
	pid, _, errno := unix.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
	if errno != 0 {
		return errno
	}
	if pid == 0 {
		for {
			_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	_, err := unix.Wait4(int(pid), nil, 0, nil)
	return err
}

func bySetuid(s stage) error {
	argv := testproc.Argv("sandbox-who")
	output, err := exec.Command(s.Setuid, argv[1:]...).Output()
	if err == nil && string(output) != "0" {
		err = fmt.Errorf("is user %s", output)
	}
	return err
}

func init() {
	testproc.Register("sandbox-who", func([]string) int { fmt.Print(os.Geteuid()); return 0 })
}

// loadBPF loads a program that returns 0.
func loadBPF(stage) error {
	program := [2]uint64{0xb7, 0x95}
	licence := [...]byte{'G', 'P', 'L', 0}
	attr := struct {
		kind, count   uint32
		code, licence uint64
		rest          [96]byte
	}{kind: 1, count: 2, code: uint64(uintptr(unsafe.Pointer(&program))), licence: uint64(uintptr(unsafe.Pointer(&licence)))}
	return system(unix.SYS_BPF, 5, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
}
