// Package filemode parses the modes of chmod.
package filemode

import (
	"fmt"
	"strconv"
	"strings"
)

// Change is a change of permission bits. The zero value changes nothing.
type Change struct {
	bits    uint32 // if there are no clauses
	clauses []clause
}

// clause is one of u+x, go=rX or =.
type clause struct {
	who      uint32 // the bits of those that are named
	operator byte
	bits     uint32 // of everybody
	x        bool   // X: x for directories, and for files with an x
}

// whoBits are the permission bits of those that a letter names.
var whoBits = map[rune]uint32{'u': 0o4700, 'g': 0o2070, 'o': 0o1007, 'a': 0o7777}

// permissionBits are the bits of letters, for everybody.
var permissionBits = map[rune]uint32{'r': 0o444, 'w': 0o222, 'x': 0o111, 's': 0o6000, 't': 0o1000, 'X': 0}

// Parse parses a mode in octal, or as in u+x,go-w. Without u, g, o or a it is for all of them;
// there is no umask.
func Parse(text string) (Change, error) {
	if bits, err := strconv.ParseUint(text, 8, 32); err == nil && bits <= 0o7777 {
		return Change{bits: uint32(bits)}, nil
	}
	var change Change
	for part := range strings.SplitSeq(text, ",") {
		at := strings.IndexAny(part, "+-=")
		if at < 0 {
			return Change{}, badMode(text)
		}
		c := clause{operator: part[at]}
		for _, letter := range part[:at] {
			if whoBits[letter] == 0 {
				return Change{}, badMode(text)
			}
			c.who |= whoBits[letter]
		}
		if at == 0 {
			c.who = whoBits['a']
		}
		for _, letter := range part[at+1:] {
			bits, isKnown := permissionBits[letter]
			if !isKnown {
				return Change{}, badMode(text)
			}
			c.bits |= bits
			c.x = c.x || letter == 'X'
		}
		change.clauses = append(change.clauses, c)
	}
	return change, nil
}

func badMode(text string) error {
	return fmt.Errorf("the mode is %q: it has to be octal, from 0 to 7777, or as in u+x,go-w", text)
}

// IsAbsolute reports whether the result does not depend on the bits of the file.
func (c Change) IsAbsolute() bool { return c.clauses == nil }

// Apply returns the bits of a file that has these.
func (c Change) Apply(bits uint32, isDirectory bool) uint32 {
	if c.clauses == nil {
		return c.bits
	}
	for _, part := range c.clauses {
		change := part.bits
		if part.x && (isDirectory || bits&0o111 != 0) {
			change |= 0o111
		}
		change &= part.who
		switch part.operator {
		case '+':
			bits |= change
		case '-':
			bits &^= change
		default:
			replaced := part.who
			if isDirectory { // as chmod(1), it keeps the set-ID bits that are not named
				replaced &^= 0o6000
			}
			bits = bits&^replaced | change
		}
	}
	return bits
}
