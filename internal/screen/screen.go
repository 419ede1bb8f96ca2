package screen

// MaxCells is how many cells a screen has at most. It takes 8 bytes for each, and once more while the
// alternate screen is shown.
const MaxCells = 1 << 17

// Fits reports whether a Screen can have a size: at least 1 by 1, and at most MaxCells.
func Fits(columns, rows int) bool {
	return columns > 0 && rows > 0 && columns <= MaxCells && rows <= MaxCells/columns
}

// Screen is the state of a terminal. Its methods are called one at a time.
type Screen struct {
	terminal
	parser  parser
	pending []byte // output that is not yet processed
}

// New returns an empty screen. It panics unless the size Fits.
func New(columns, rows int) *Screen {
	if !Fits(columns, rows) {
		panic("screen: the size does not fit")
	}
	return &Screen{terminal: newTerminal(columns, rows)}
}

// Size returns the size.
func (s *Screen) Size() (columns, rows int) { return s.columns, s.rows }

// Bytes returns about how much memory the screen takes.
func (s *Screen) Bytes() int {
	const overhead = 1 << 10
	n := 8*s.columns*s.rows + 24*s.rows
	if s.alternate != nil {
		n *= 2
	}
	return overhead + n + 64*len(s.pens.list) + 64*len(s.clusters) + len(s.tabs) + cap(s.parser.partial) + cap(s.pending)
}

// Resize changes the size as xterm does without scrollback: lines are cut or filled at the right and at
// the bottom; at the top, as far as the cursor would be cut otherwise. It panics unless the size Fits.
func (s *Screen) Resize(columns, rows int) {
	if !Fits(columns, rows) {
		panic("screen: the size does not fit")
	}
	if columns == s.columns && rows == s.rows {
		return
	}
	s.flush()
	s.resize(columns, rows)
	s.tabs.resize(columns)
	s.top, s.bottom = 0, rows-1
}
