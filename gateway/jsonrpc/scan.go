package jsonrpc

// Limits of a message that Parse accepts, beside its size.
const (
	// MaxDepth is how many arrays and objects may be within each other.
	MaxDepth = 128
	// MaxValues is how many JSON values a message may have, counting those of
	// arrays and objects but not the names of members.
	MaxValues = 262_144
)

// scanner walks over JSON and refuses what is not valid. Its methods leave pos
// behind what they read, or return an error after which it is of no use.
type scanner struct {
	data   []byte
	pos    int
	values int
	names  nameStack
}

// span is a part of the scanned data.
type span struct {
	from, to int
	escaped  bool // of a string: it has escape sequences
}

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// next returns the first byte that is no blank, and leaves it there.
func (s *scanner) next(within string) (byte, error) {
	s.space()
	if s.pos == len(s.data) {
		return 0, s.endWithin(within)
	}
	return s.data[s.pos], nil
}

// end fails unless nothing but blanks is left.
func (s *scanner) end() error {
	s.space()
	if s.pos < len(s.data) {
		return s.unexpected("trailing characters")
	}
	return nil
}

// value reads one value at a depth of arrays and objects around it.
func (s *scanner) value(depth int) error {
	c, err := s.next("a value")
	if err != nil {
		return err
	}
	if s.values++; s.values > MaxValues {
		return s.unexpected("more than %d JSON values in one message", MaxValues)
	}
	switch {
	case c == '"':
		_, err = s.text()
		return err
	case c == '{':
		return s.object(depth, func(span) error { return s.value(depth + 1) })
	case c == '[':
		return s.array(depth, func() error { return s.value(depth + 1) })
	case c == '-' || '0' <= c && c <= '9':
		_, err = s.number()
		return err
	case c == 'n':
		return s.literal("null")
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	}
	return s.unexpected("expected value")
}

// object reads an object and lets member read the value of each of its members.
func (s *scanner) object(depth int, member func(name span) error) error {
	if depth >= MaxDepth {
		return s.unexpected("recursion limit exceeded: more than %d arrays and objects within each other", MaxDepth)
	}
	s.pos++
	names := s.names.open()
	defer s.names.close(names)
	for first := true; ; first = false {
		c, err := s.next("an object")
		switch {
		case err != nil:
			return err
		case c == '}' && first:
			s.pos++
			return nil
		case c == '}':
			s.pos++
			return nil
		case !first && c != ',':
			return s.unexpected("expected `,` or `}`")
		case !first:
			s.pos++
			if c, err = s.next("a value"); err != nil {
				return err
			}
			if c == '}' {
				return s.unexpected("trailing comma")
			}
		}
		if c != '"' {
			return s.unexpected("key must be a string")
		}
		name, err := s.text()
		if err != nil {
			return err
		}
		if !s.names.add(&names, s.content(name)) {
			return s.failed("duplicate JSON object key `%s`", clip(s.content(name)))
		}
		if c, err = s.next("an object"); err != nil {
			return err
		}
		if c != ':' {
			return s.unexpected("expected `:`")
		}
		s.pos++
		if err := member(name); err != nil {
			return err
		}
	}
}

// array reads an array and lets element read each of its values.
func (s *scanner) array(depth int, element func() error) error {
	if depth >= MaxDepth {
		return s.unexpected("recursion limit exceeded: more than %d arrays and objects within each other", MaxDepth)
	}
	s.pos++
	for first := true; ; first = false {
		c, err := s.next("a list")
		switch {
		case err != nil:
			return err
		case c == ']':
			s.pos++
			return nil
		case !first && c != ',':
			return s.unexpected("expected `,` or `]`")
		case !first:
			s.pos++
			if c, err = s.next("a value"); err != nil {
				return err
			}
			if c == ']' {
				return s.unexpected("trailing comma")
			}
		}
		if err := element(); err != nil {
			return err
		}
	}
}

func (s *scanner) literal(word string) error {
	for i := range len(word) {
		if s.pos == len(s.data) {
			return s.endWithin("a value")
		}
		s.pos++
		if s.data[s.pos-1] != word[i] {
			return s.failed("expected ident")
		}
	}
	return nil
}

// number reads a number by the grammar of JSON, of any size.
func (s *scanner) number() (span, error) {
	from := s.pos
	if s.data[s.pos] == '-' {
		s.pos++
	}
	leading := s.pos
	if err := s.digits(); err != nil {
		return span{}, err
	}
	if s.data[leading] == '0' && s.pos > leading+1 {
		s.pos = leading + 2
		return span{}, s.failed("invalid number")
	}
	if s.pos < len(s.data) && s.data[s.pos] == '.' {
		s.pos++
		if err := s.digits(); err != nil {
			return span{}, err
		}
	}
	if s.pos < len(s.data) && s.data[s.pos]|0x20 == 'e' {
		s.pos++
		if s.pos < len(s.data) && (s.data[s.pos] == '+' || s.data[s.pos] == '-') {
			s.pos++
		}
		if err := s.digits(); err != nil {
			return span{}, err
		}
	}
	return span{from: from, to: s.pos}, nil
}

// digits reads at least one digit.
func (s *scanner) digits() error {
	from := s.pos
	for s.pos < len(s.data) && '0' <= s.data[s.pos] && s.data[s.pos] <= '9' {
		s.pos++
	}
	switch {
	case s.pos > from:
		return nil
	case s.pos == len(s.data):
		return s.endWithin("a value")
	}
	return s.unexpected("invalid number")
}
