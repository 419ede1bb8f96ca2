package jsonrpc

import (
	"bytes"
)

// Limits of a message that Parse accepts. The transport limits its size.
const (
	// MaxDepth is the largest depth of nested arrays and objects.
	MaxDepth = 128
	// MaxValues is the largest number of JSON values in a message, at any depth;
	// names of members do not count.
	MaxValues = 262_144
)

// scanner scans JSON and rejects invalid input. The first error stays in err and moves
// to the end of the data, so that callers may check err at the end.
type scanner struct {
	data   []byte
	pos    int // of the next byte
	values int // number of values begun
	err    error
	place  string // of the error, as ".argv[1]"; of parameters only
	names  nameStack
}

func newScanner(data []byte) *scanner { return &scanner{data: data} }

// next skips whitespace and returns the next byte without consuming it. It returns 0
// after an error: the end of the data, inside what, or a byte that is 0.
func (s *scanner) next(what string) byte {
	for ; s.pos < len(s.data); s.pos++ {
		switch c := s.data[s.pos]; c {
		case ' ', '\t', '\n', '\r':
		case 0:
			s.unexpected("expected value")
			return 0
		default:
			return c
		}
	}
	s.ended(what)
	return 0
}

// end checks that only whitespace is left.
func (s *scanner) end() {
	if s.err == nil && s.next("") != 0 {
		s.unexpected("trailing characters")
	}
}

// value reads one value that is nested in depth arrays and objects.
func (s *scanner) value(depth int) {
	c := s.next("a value")
	if s.values++; s.values > MaxValues {
		s.unexpected("more than %d JSON values in one message: send it in parts", MaxValues)
		return
	}
	switch {
	case c == '"':
		s.text()
	case c == '{':
		for object := s.open(depth); s.member(&object); {
			s.value(depth + 1)
		}
	case c == '[':
		for array := s.open(depth); s.element(&array); {
			s.value(depth + 1)
		}
	case isNumber(c):
		s.number()
	case c == 'n':
		s.literal("null")
	case c == 't':
		s.literal("true")
	case c == 'f':
		s.literal("false")
	default:
		s.unexpected("expected value")
	}
}

// raw reads one value, as value does, and returns it without surrounding whitespace.
func (s *scanner) raw(depth int) []byte {
	s.next("a value")
	from := s.pos
	s.value(depth)
	return s.data[from:s.pos:s.pos]
}

func (s *scanner) literal(word string) {
	for i := range len(word) {
		if s.pos == len(s.data) {
			s.ended("a value")
			return
		}
		s.pos++
		if s.data[s.pos-1] != word[i] {
			s.failed("expected ident")
			return
		}
	}
}

func isNumber(first byte) bool { return first == '-' || isDigit(first) }
func isDigit(c byte) bool      { return '0' <= c && c <= '9' }

// number reads a number of any size and returns it.
func (s *scanner) number() []byte {
	from := s.pos
	if s.data[s.pos] == '-' {
		s.pos++
	}
	zero := s.pos < len(s.data) && s.data[s.pos] == '0'
	if digits := s.digits(); zero && digits > 1 {
		s.pos += 2 - digits
		s.failed("invalid number")
	}
	if s.pos < len(s.data) && s.data[s.pos] == '.' {
		s.pos++
		s.digits()
	}
	if s.pos < len(s.data) && s.data[s.pos]|0x20 == 'e' {
		s.pos++
		if s.pos < len(s.data) && (s.data[s.pos] == '+' || s.data[s.pos] == '-') {
			s.pos++
		}
		s.digits()
	}
	return s.data[from:s.pos]
}

// digits reads at least one digit and returns their number.
func (s *scanner) digits() int {
	from := s.pos
	for s.pos < len(s.data) && isDigit(s.data[s.pos]) {
		s.pos++
	}
	switch {
	case s.pos > from:
	case s.pos == len(s.data):
		s.ended("a value")
	default:
		s.unexpected("invalid number")
	}
	return s.pos - from
}

// container is the state of reading an array or an object.
type container struct {
	begun bool   // a member or an element was read
	name  []byte // of the current member; aliases the data if it has no escapes
	base  int    // index of its first name in the stack
	many  map[string]struct{}
}

// nameStack has the names of the members read so far of the open objects, the outermost
// object first, except of objects with a map of many.
type nameStack [][]byte

// fewNames is the largest number of names of an object that are compared linearly.
const fewNames = 16

// open reads the opening bracket of an array or object that is nested in depth others.
func (s *scanner) open(depth int) container {
	if depth >= MaxDepth {
		s.unexpected("recursion limit exceeded: more than %d arrays and objects within each other", MaxDepth)
	} else {
		s.pos++
	}
	return container{base: len(s.names)}
}

// member moves to the value of the next member, stores its name in object, and reports
// whether there is one.
func (s *scanner) member(object *container) bool {
	c := s.separator(object, '}', "an object")
	if c == 0 {
		s.names = s.names[:object.base]
		return false
	}
	if c != '"' {
		s.unexpected("key must be a string")
		return false
	}
	object.name = s.content(s.text())
	if s.err == nil && !s.names.add(object) {
		s.failed("duplicate JSON object key `%s`", clip(object.name))
	}
	if c := s.next("an object"); c != ':' {
		s.unexpected("expected `:`")
		return false
	}
	s.pos++
	return true
}

// element moves to the next element of an array and reports whether there is one.
func (s *scanner) element(array *container) bool {
	return s.separator(array, ']', "a list") != 0
}

// separator reads the comma before the next member or element and returns the first byte
// of that, or reads the closing bracket and returns 0.
func (s *scanner) separator(of *container, closing byte, what string) byte {
	c := s.next(what)
	switch {
	case s.err != nil:
		return 0
	case c == closing:
		s.pos++
		return 0
	case !of.begun:
		of.begun = true
		return c
	case c != ',':
		s.unexpected("expected `,` or `%c`", closing)
		return 0
	}
	s.pos++
	if c = s.next("a value"); c == closing {
		s.unexpected("trailing comma")
		return 0
	}
	return c
}

// add records the name of the current member, and reports whether it is new in the
// object. Its time is bounded, whatever the number of members.
func (names *nameStack) add(object *container) bool {
	if object.many != nil {
		return addName(object.many, object.name)
	}
	own := (*names)[object.base:]
	for _, known := range own {
		if bytes.Equal(known, object.name) {
			return false
		}
	}
	if len(own) < fewNames {
		if *names == nil {
			*names = make(nameStack, 0, 8)
		}
		*names = append(*names, object.name)
		return true
	}
	object.many = make(map[string]struct{}, 4*fewNames)
	for _, known := range own {
		addName(object.many, known)
	}
	return addName(object.many, object.name)
}

func addName(set map[string]struct{}, name []byte) bool {
	before := len(set)
	set[string(name)] = struct{}{}
	return len(set) > before
}
