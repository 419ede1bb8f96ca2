package sandbox

import (
	"cmp"
	"slices"

	"golang.org/x/sys/unix"
)

// filterRule answers a system call otherwise than by letting it through.
type filterRule struct {
	call   uintptr
	answer uint32
	when   []condition // all hold; none: always
}

// condition is about an argument.
type condition struct {
	arg    int
	is     comparison
	value  uint32
	values []uint32 // of oneOf
}

type comparison uint8

const (
	equal   comparison = iota // the low 32 bits are the value
	differs                   // they are not
	hasAny                    // they have any of the value's
	hasNone                   // they have none of the value's
	oneOf                     // they are one of the values
	notNull                   // the 64 bits are not all zero
)

// The answers of a filter.
const (
	answerAllow   = unix.SECCOMP_RET_ALLOW
	answerKill    = unix.SECCOMP_RET_KILL_PROCESS
	answerRefused = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	answerMissing = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
)

// Where a struct seccomp_data has what.
const (
	offsetCall = 0
	offsetArch = 4
	offsetArgs = 16
)

// assembler makes a BPF program.
type assembler struct{ code []unix.SockFilter }

func (a *assembler) load(offset uint32) {
	a.code = append(a.code, unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset})
}

func (a *assembler) answer(answer uint32) {
	a.code = append(a.code, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: answer})
}

// mask keeps bits of what was loaded.
func (a *assembler) mask(bits uint32) {
	a.code = append(a.code, unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: bits})
}

// jump goes on by so many instructions more if what was loaded is the value, and if it is not.
func (a *assembler) jump(value uint32, same, other int) {
	a.code = append(a.code, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jt: uint8(same), Jf: uint8(other)})
}

// atLeast does the same for at least the value, and less.
func (a *assembler) atLeast(value uint32, same, other int) {
	a.code = append(a.code, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: value, Jt: uint8(same), Jf: uint8(other)})
}

// jumpAlways goes on by so many instructions more.
func (a *assembler) jumpAlways(skip int) {
	a.code = append(a.code, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JA, K: uint32(skip)})
}

// maxJump is how far a conditional jump goes.
const maxJump = 255

// compile makes the program of a filter: calls of another architecture kill, calls that nobody has judged yet do not
// exist, rules for the same call are looked at in their order, and whatever they do not answer is let through. The kernel runs a filter once for every call that there
// is when it is loaded, so the way to the rules of a call is a binary search.
func compile(rules []filterRule) []unix.SockFilter {
	var a assembler
	a.load(offsetArch)
	a.jump(auditArch, 1, 0)
	a.answer(answerKill)
	a.load(offsetCall)
	a.atLeast(firstUnknown, 0, 1)
	a.answer(answerMissing)
	rules = slices.Clone(rules)
	slices.SortStableFunc(rules, func(a, b filterRule) int { return cmp.Compare(a.call, b.call) })
	return append(a.code, searchRules(rules)...)
}

// fewRules are looked at one after the other.
const fewRules = 8

// searchRules finds the rules of the call that is loaded, which are in the order of calls.
func searchRules(rules []filterRule) []unix.SockFilter {
	middle := len(rules) / 2
	for middle > 0 && rules[middle].call == rules[middle-1].call {
		middle--
	}
	if len(rules) <= fewRules || middle == 0 {
		return tryRules(rules)
	}
	var a assembler
	lower := searchRules(rules[:middle])
	if len(lower) <= maxJump {
		a.atLeast(uint32(rules[middle].call), len(lower), 0)
	} else {
		a.atLeast(uint32(rules[middle].call), 0, 1)
		a.jumpAlways(len(lower))
	}
	a.code = append(a.code, lower...)
	return append(a.code, searchRules(rules[middle:])...)
}

// tryRules looks at one rule after the other. Those that refuse always share the answer, which is the last instruction.
func tryRules(rules []filterRule) []unix.SockFilter {
	code := []unix.SockFilter{
		{Code: unix.BPF_RET | unix.BPF_K, K: answerAllow},
		{Code: unix.BPF_RET | unix.BPF_K, K: answerRefused},
	}
	for _, rule := range slices.Backward(rules) {
		var a assembler
		if len(rule.when) == 0 && rule.answer == answerRefused && len(code) <= maxJump {
			a.jump(uint32(rule.call), len(code)-1, 0)
		} else {
			body := rule.body()
			a.jump(uint32(rule.call), 0, len(body))
			a.code = append(a.code, body...)
		}
		code = append(a.code, code...)
	}
	return code
}

// body is what follows the comparison of the call. If it does not answer it leaves the call loaded.
func (r filterRule) body() []unix.SockFilter {
	var blocks [][]unix.SockFilter
	rest := 2 // the answer, and loading the call again, which is where a condition that does not hold goes
	if len(r.when) == 0 {
		rest = 1
	}
	for i := len(r.when) - 1; i >= 0; i-- { // from the last, to know how far it is to the end
		block := r.when[i].test(rest - 1)
		rest += len(block)
		blocks = append(blocks, block)
	}
	var a assembler
	for i := len(blocks) - 1; i >= 0; i-- {
		a.code = append(a.code, blocks[i]...)
	}
	a.answer(r.answer)
	if len(r.when) > 0 {
		a.load(offsetCall)
	}
	return a.code
}

// test goes on if the condition holds, and otherwise skips that many instructions more.
func (c condition) test(skip int) []unix.SockFilter {
	low, high := uint32(offsetArgs+8*c.arg), uint32(offsetArgs+8*c.arg+4) // both architectures are little-endian
	var a assembler
	a.load(low)
	switch c.is {
	case equal:
		a.jump(c.value, 0, skip)
	case differs:
		a.jump(c.value, skip, 0)
	case hasAny:
		a.mask(c.value)
		a.jump(0, skip, 0)
	case hasNone:
		a.mask(c.value)
		a.jump(0, 0, skip)
	case oneOf:
		for i, value := range c.values {
			a.jump(value, len(c.values)-i, 0)
		}
		a.jumpAlways(skip)
	case notNull:
		a.jump(0, 0, 2)
		a.load(high)
		a.jump(0, skip, 0)
	}
	return a.code
}
