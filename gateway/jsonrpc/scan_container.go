package jsonrpc

import "bytes"

// container is an array or an object that is being read.
type container struct {
	begun bool   // it is not empty, and something was read of it
	name  []byte // of the member at hand; part of the data if it has no escapes
	base  int    // where its names begin in the stack
	many  map[string]struct{}
}

// nameStack has the names of the members that were read of the objects around,
// the outermost first, but for those of objects with many.
type nameStack [][]byte

// fewNames is up to how many names of an object are compared one by one.
const fewNames = 16

// open reads the bracket that begins an array or object with depth others
// around it.
func (s *scanner) open(depth int) container {
	if depth >= MaxDepth {
		s.unexpected("recursion limit exceeded: more than %d arrays and objects within each other", MaxDepth)
	} else {
		s.pos++
	}
	return container{base: len(s.names)}
}

// member goes to the value of the next member, whose name it leaves in the
// object, and reports whether there is one.
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

// element goes to the next element of an array and reports whether there is one.
func (s *scanner) element(array *container) bool {
	return s.separator(array, ']', "a list") != 0
}

// separator reads the comma before the next member or element, whose first byte
// it returns, or the closing bracket, for which it returns 0.
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

// add remembers the name of the member at hand, and reports whether it is new to
// the object. The time it takes does not grow with what the object has.
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
