package sandbox

import (
	"encoding/binary"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// seen is a system call, as the filter sees it.
type seen struct {
	call uintptr
	arch uint32 // 0: the machine's
	args []uint64
}

// data returns the struct seccomp_data. The virtual machine of package bpf reads
// big-endian words.
func (s seen) data() []byte {
	words := []uint32{uint32(s.call), s.arch, 0, 0}
	if s.arch == 0 {
		words[1] = auditArch
	}
	for i := range 6 {
		arg := uint64(0)
		if i < len(s.args) {
			arg = s.args[i]
		}
		words = append(words, uint32(arg), uint32(arg>>32))
	}
	var data []byte
	for _, word := range words {
		data = binary.BigEndian.AppendUint32(data, word)
	}
	return data
}

func machine(t *testing.T, kind filterKind) func(seen) uint32 {
	t.Helper()
	program := compile(kind.rules())
	// The virtual machine returns a number of bytes, at most the size of the packet,
	// so answers are represented by their index.
	answers := []uint32{answerKill, answerAllow, answerRefused, answerMissing}
	for i, instruction := range program {
		if constant, ok := instruction.(bpf.RetConstant); ok {
			for n, answer := range answers {
				if constant.Val == answer {
					program[i] = bpf.RetConstant{Val: uint32(n)}
				}
			}
		}
	}
	vm, err := bpf.NewVM(program)
	if err != nil {
		t.Fatal(err)
	}
	return func(s seen) uint32 {
		n, err := vm.Run(s.data())
		if err != nil {
			t.Fatal(err)
		}
		return answers[n]
	}
}

func TestFilter_Answers(t *testing.T) {
	const always, network, landlock = "always", "network", "landlock"
	kinds := map[string]func(seen) uint32{
		always:   machine(t, filterKind{}),
		network:  machine(t, filterKind{network: true}),
		landlock: machine(t, filterKind{network: true, metadata: true, outside: true}),
	}
	const high = uint64(1) << 32
	for _, test := range []struct {
		kind string
		call seen
		want uint32
	}{
		{always, seen{call: unix.SYS_READ}, answerAllow},
		{always, seen{call: unix.SYS_EXECVE}, answerAllow},
		{always, seen{call: unix.SYS_READ, arch: unix.AUDIT_ARCH_I386}, answerKill},
		{always, seen{call: unix.SYS_READ, arch: unix.AUDIT_ARCH_ARM}, answerKill},
		{always, seen{call: unix.SYS_PTRACE}, answerRefused},
		{always, seen{call: unix.SYS_CLONE3}, answerMissing},
		{always, seen{call: unix.SYS_CLONE, args: []uint64{uint64(unix.SIGCHLD)}}, answerAllow},
		{always, seen{call: unix.SYS_CLONE, args: []uint64{unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_FS}}, answerAllow},
		{always, seen{call: unix.SYS_CLONE, args: []uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}}, answerRefused},
		{always, seen{call: unix.SYS_CLONE, args: []uint64{high | unix.CLONE_NEWNET}}, answerRefused},
		{always, seen{call: unix.SYS_IOCTL, args: []uint64{0, unix.TIOCSTI}}, answerRefused},
		{always, seen{call: unix.SYS_IOCTL, args: []uint64{0, high | unix.TIOCSTI}}, answerRefused}, // the kernel looks at 32 bits
		{always, seen{call: unix.SYS_IOCTL, args: []uint64{0, tioclinux}}, answerRefused},
		{always, seen{call: unix.SYS_IOCTL, args: []uint64{unix.TIOCSTI, unix.TCGETS}}, answerAllow},
		{always, seen{call: unix.SYS_FCNTL, args: []uint64{0, unix.F_SETLEASE}}, answerRefused},
		{always, seen{call: unix.SYS_FCNTL, args: []uint64{0, high | unix.F_NOTIFY}}, answerRefused},
		{always, seen{call: unix.SYS_FCNTL, args: []uint64{0, setDelegation}}, answerRefused},
		{always, seen{call: unix.SYS_FCNTL, args: []uint64{unix.F_SETLEASE, unix.F_SETFL}}, answerAllow},
		{always, seen{call: unix.SYS_FCNTL, args: []uint64{0, unix.F_GETLEASE}}, answerAllow},
		{always, seen{call: unix.SYS_SOCKET, args: []uint64{unix.AF_INET}}, answerAllow},
		{always, seen{call: unix.SYS_FCHMODAT}, answerAllow},
		{network, seen{call: unix.SYS_SOCKET, args: []uint64{unix.AF_UNIX, unix.SOCK_STREAM}}, answerRefused},
		{network, seen{call: unix.SYS_SENDTO, args: []uint64{0, 0, 0, 0, 0}}, answerAllow},
		{network, seen{call: unix.SYS_SENDTO, args: []uint64{0, 0, 0, 0, 1}}, answerRefused},
		{network, seen{call: unix.SYS_SENDTO, args: []uint64{0, 0, 0, 0, high}}, answerRefused},
		{network, seen{call: unix.SYS_SENDMSG}, answerAllow},
		{network, seen{call: unix.SYS_SOCKETPAIR, args: []uint64{unix.AF_UNIX, unix.SOCK_STREAM}}, answerAllow},
		{network, seen{call: unix.SYS_SOCKETPAIR, args: []uint64{unix.AF_UNIX, unix.SOCK_STREAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK}}, answerAllow},
		{network, seen{call: unix.SYS_SOCKETPAIR, args: []uint64{unix.AF_UNIX, unix.SOCK_SEQPACKET}}, answerAllow},
		{network, seen{call: unix.SYS_SOCKETPAIR, args: []uint64{unix.AF_UNIX, unix.SOCK_DGRAM}}, answerRefused},
		{network, seen{call: unix.SYS_SOCKETPAIR, args: []uint64{unix.AF_UNIX, unix.SOCK_RAW | unix.SOCK_CLOEXEC}}, answerRefused},
		{network, seen{call: unix.SYS_SOCKETPAIR, args: []uint64{unix.AF_UNIX, unix.SOCK_RDM}}, answerRefused},
		{network, seen{call: unix.SYS_SOCKETPAIR, args: []uint64{unix.AF_UNIX, unix.SOCK_PACKET}}, answerRefused},
		{network, seen{call: unix.SYS_SOCKETPAIR, args: []uint64{unix.AF_TIPC, unix.SOCK_STREAM}}, answerRefused},
		{network, seen{call: unix.SYS_FCHMODAT}, answerAllow},
		{network, seen{call: unix.SYS_PRLIMIT64, args: []uint64{1}}, answerAllow},
		{landlock, seen{call: unix.SYS_FCHMODAT}, answerRefused},
		{landlock, seen{call: unix.SYS_IOCTL, args: []uint64{0, fsSetFlags}}, answerRefused},
		{landlock, seen{call: unix.SYS_IOCTL, args: []uint64{0, btrfsSnapshotDestroy2}}, answerRefused},
		{landlock, seen{call: unix.SYS_IOCTL, args: []uint64{0, unix.TIOCSTI}}, answerRefused},
		{landlock, seen{call: unix.SYS_IOCTL, args: []uint64{0, unix.FICLONE}}, answerAllow},
		{landlock, seen{call: unix.SYS_PRLIMIT64}, answerAllow},
		{landlock, seen{call: unix.SYS_PRLIMIT64, args: []uint64{1}}, answerRefused},
		{landlock, seen{call: unix.SYS_SETPRIORITY, args: []uint64{unix.PRIO_PROCESS}}, answerAllow},
		{landlock, seen{call: unix.SYS_SETPRIORITY, args: []uint64{unix.PRIO_PROCESS, 1}}, answerRefused},
		{landlock, seen{call: unix.SYS_SETPRIORITY, args: []uint64{unix.PRIO_USER}}, answerRefused},
		{landlock, seen{call: unix.SYS_IOPRIO_SET, args: []uint64{ioprioProcess, 0}}, answerAllow},
		{landlock, seen{call: unix.SYS_IOPRIO_SET, args: []uint64{ioprioProcess, 1}}, answerRefused},
		{landlock, seen{call: unix.SYS_SHMGET}, answerRefused},
		{network, seen{call: unix.SYS_MQ_TIMEDRECEIVE}, answerAllow},
		{landlock, seen{call: unix.SYS_MQ_TIMEDRECEIVE}, answerRefused},
	} {
		if got := kinds[test.kind](test.call); got != test.want {
			t.Errorf("%s: call %d of %#x with %#x: %#x, want %#x", test.kind, test.call.call, test.call.arch, test.call.args, got, test.want)
		}
	}
}

// TestFilter_AnswersLikeItsRules runs a filter for every system call: only those with a
// rule are not allowed.
func TestFilter_AnswersLikeItsRules(t *testing.T) {
	for _, kind := range []filterKind{{}, {network: true}, {network: true, metadata: true, outside: true}} {
		rules := map[uintptr][]filterRule{}
		for _, rule := range kind.rules() {
			rules[rule.call] = append(rules[rule.call], rule)
		}
		answer := machine(t, kind)
		for call := range uintptr(firstUnknown) {
			got := answer(seen{call: call})
			switch of := rules[call]; {
			case len(of) == 0 && got != answerAllow:
				t.Errorf("call %d has no rule: %#x", call, got)
			case len(of) == 1 && of[0].when.is == anything && got != of[0].answer:
				t.Errorf("call %d: %#x, want %#x", call, got, of[0].answer)
			}
		}
		for _, call := range []uintptr{firstUnknown, 0x40000000 + unix.SYS_READ, 1<<32 - 1} {
			if got := answer(seen{call: call}); got != answerMissing {
				t.Errorf("unknown call %#x: %#x", call, got)
			}
		}
	}
}

// TestFilter_IsShort: the kernel accepts 4096 instructions, and loading them takes time
// in every start.
func TestFilter_IsShort(t *testing.T) {
	if n := len(compile(filterKind{network: true, metadata: true, outside: true}.rules())); n > 300 {
		t.Errorf("the longest filter has %d instructions", n)
	}
}
