package sandbox

import (
	"cmp"
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// filterRule gives a system call another answer than to allow it.
type filterRule struct {
	call   uintptr
	answer uint32
	when   condition // the zero value always holds
}

// condition is about an argument of a system call.
type condition struct {
	arg    int
	is     comparison
	value  uint32
	values []uint32 // of oneOf
}

type comparison uint8

const (
	anything comparison = iota
	differs             // the low 32 bits are not the value
	hasAny              // they have a bit of the value set
	hasNone             // they have no bit of the value set
	oneOf               // they are one of the values
	notNull             // the 64 bits are not all zero
)

// The answers of a filter.
const (
	answerAllow   = unix.SECCOMP_RET_ALLOW
	answerKill    = unix.SECCOMP_RET_KILL_PROCESS
	answerRefused = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	answerMissing = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
)

// Offsets in struct seccomp_data.
const (
	offsetCall = 0
	offsetArch = 4
	offsetArgs = 16
)

func loadWord(offset uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: offset, Size: 4} }

// maxJump is how far a conditional jump goes.
const maxJump = 255

// compile makes the BPF program of a filter. Calls of another architecture kill the process; calls from firstUnknown on
// fail with ENOSYS; rules for the same call are tried in their order; everything else is allowed. The kernel runs a
// filter once for every system call when it is loaded, so the program finds the rules of a call by binary search.
func compile(rules []filterRule) []bpf.Instruction {
	rules = slices.Clone(rules)
	slices.SortStableFunc(rules, func(a, b filterRule) int { return cmp.Compare(a.call, b.call) })
	return append([]bpf.Instruction{
		loadWord(offsetArch),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1},
		bpf.RetConstant{Val: answerKill},
		loadWord(offsetCall),
		bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: firstUnknown, SkipFalse: 1},
		bpf.RetConstant{Val: answerMissing},
	}, searchRules(rules)...)
}

// fewRules are tried one after the other.
const fewRules = 8

// searchRules finds the rules of the loaded call among rules that are sorted by call.
func searchRules(rules []filterRule) []bpf.Instruction {
	middle := len(rules) / 2
	for middle > 0 && rules[middle].call == rules[middle-1].call {
		middle--
	}
	if len(rules) <= fewRules || middle == 0 {
		return tryRules(rules)
	}
	lower := searchRules(rules[:middle])
	code := []bpf.Instruction{
		bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: uint32(rules[middle].call), SkipFalse: 1},
		bpf.Jump{Skip: uint32(len(lower))},
	}
	return slices.Concat(code, lower, searchRules(rules[middle:]))
}

// tryRules tries one rule after the other. Those that always refuse share an answer, which is the last instruction.
func tryRules(rules []filterRule) []bpf.Instruction {
	code := []bpf.Instruction{bpf.RetConstant{Val: answerAllow}, bpf.RetConstant{Val: answerRefused}}
	for _, rule := range slices.Backward(rules) {
		if rule.when.is == anything && rule.answer == answerRefused && len(code) <= maxJump {
			code = append([]bpf.Instruction{bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(rule.call), SkipTrue: uint8(len(code) - 1)}}, code...)
			continue
		}
		body := append(rule.when.test(), bpf.RetConstant{Val: rule.answer})
		if rule.when.is != anything {
			body = append(body, loadWord(offsetCall)) // where a condition that does not hold jumps to
		}
		skip := bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(rule.call), SkipFalse: uint8(len(body))}
		code = slices.Concat([]bpf.Instruction{skip}, body, code)
	}
	return code
}

// test skips the instruction after it unless the condition holds.
func (c condition) test() []bpf.Instruction {
	low, high := uint32(offsetArgs+8*c.arg), uint32(offsetArgs+8*c.arg+4) // both architectures are little-endian
	skipIf := func(cond bpf.JumpTest, value uint32) bpf.Instruction {
		return bpf.JumpIf{Cond: cond, Val: value, SkipTrue: 1}
	}
	switch c.is {
	case differs:
		return []bpf.Instruction{loadWord(low), skipIf(bpf.JumpEqual, c.value)}
	case hasAny:
		return []bpf.Instruction{loadWord(low), skipIf(bpf.JumpBitsNotSet, c.value)}
	case hasNone:
		return []bpf.Instruction{loadWord(low), skipIf(bpf.JumpBitsSet, c.value)}
	case notNull:
		return []bpf.Instruction{
			loadWord(low), bpf.JumpIf{Cond: bpf.JumpNotEqual, SkipTrue: 2},
			loadWord(high), skipIf(bpf.JumpEqual, 0),
		}
	case oneOf:
		code := []bpf.Instruction{loadWord(low)}
		for i, value := range c.values {
			code = append(code, bpf.JumpIf{Cond: bpf.JumpEqual, Val: value, SkipTrue: uint8(len(c.values) - i)})
		}
		return append(code, bpf.Jump{Skip: 1})
	}
	return nil
}
