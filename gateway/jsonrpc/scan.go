package jsonrpc

// Limits of a message that Parse accepts, beside its size.
const (
	// MaxDepth is how many arrays and objects may be within each other.
	MaxDepth = 128
	// MaxValues is how many JSON values a message may have, counting those of
	// arrays and objects but not the names of members.
	MaxValues = 262_144
)

// scanner walks over JSON and refuses what is not valid. What is wrong first
// stays in err; from then on it finds nothing any more, so that callers may look
// at err when they are done.
type scanner struct {
	data   []byte
	pos    int // where to go on
	values int // how many were begun
	err    error
	place  string // of what is wrong, from within: "argv[1]"; only of parameters
	names  nameStack
}

func newScanner(data []byte) *scanner { return &scanner{data: data} }

// next goes to the next byte that is no blank and returns it, or 0 if something
// is wrong: that the data ends, within what, or that the byte itself is 0.
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

// end wants that nothing but blanks is left.
func (s *scanner) end() {
	if s.err == nil && s.next("") != 0 {
		s.unexpected("trailing characters")
	}
}

// value reads one value that has depth arrays and objects around it.
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

// raw reads one value, as value does, and returns it without blanks around it.
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

// digits reads at least one digit and returns how many there were.
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
