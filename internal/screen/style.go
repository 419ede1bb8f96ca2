package screen

import (
	"fmt"
	"slices"
)

// Color is a colour: 0 is the default, else see Indexed and RGB.
type Color uint32

const (
	indexed Color = 1 << 24
	direct  Color = 2 << 24
)

// Index returns the index in the palette of 256 colours, and whether the colour is one of it.
func (c Color) Index() (uint8, bool) { return uint8(c), c&^0xff == indexed }

// RGB returns the components, and whether the colour has them.
func (c Color) RGB() (r, g, b uint8, ok bool) {
	return uint8(c >> 16), uint8(c >> 8), uint8(c), c&^0xffffff == direct
}

// Attributes is a set of attributes.
type Attributes uint16

// The attributes.
const (
	Bold Attributes = 1 << iota
	Faint
	Italic
	Blink
	Inverse
	Invisible
	Strikethrough
	Overline
)

// Style is how a character looks.
type Style struct {
	// Foreground and Background are the colours of the character and of its cell, UnderlineColor is that
	// of the underline, where 0 is that of the character.
	Foreground, Background, UnderlineColor Color
	// Attributes are all but the underline.
	Attributes Attributes
	// Underline is 0 for none, 1 single, 2 double, 3 curly, 4 dotted, 5 dashed.
	Underline uint8
}

// sgrs are the codes of the attributes, in order.
var sgrs = []int{1, 2, 3, 5, 7, 8, 9, 53}

// SGR returns the sequence that selects the style on a terminal in any other one, not empty.
func (s Style) SGR() string {
	text := []byte("\x1b[0")
	for i, code := range sgrs {
		if s.Attributes&(1<<i) != 0 {
			text = fmt.Appendf(text, ";%d", code)
		}
	}
	switch s.Underline {
	case 0:
	case 1:
		text = append(text, ";4"...)
	default:
		text = fmt.Appendf(text, ";4:%d", s.Underline)
	}
	text = s.Foreground.append(text, 30)
	text = s.Background.append(text, 40)
	text = s.UnderlineColor.append(text, 50)
	return string(append(text, 'm'))
}

// append appends the parameters of a colour; base is 30, 40 or 50.
func (c Color) append(text []byte, base int) []byte {
	index, isIndexed := c.Index()
	red, green, blue, isDirect := c.RGB()
	switch {
	case isIndexed && index < 8 && base < 50:
		return fmt.Appendf(text, ";%d", base+int(index))
	case isIndexed && index < 16 && base < 50:
		return fmt.Appendf(text, ";%d", base+60+int(index)-8)
	case isIndexed:
		return fmt.Appendf(text, ";%d;5;%d", base+8, index)
	case isDirect:
		return fmt.Appendf(text, ";%d;2;%d;%d;%d", base+8, red, green, blue)
	}
	return text
}

// palette numbers the styles that are in use, and some that were. The zero value has the default style.
type palette struct {
	list  []Style // without the default one, whose number is 0
	index map[Style]uint16
	limit int // of list, before the unused are removed
}

func (p *palette) style(pen uint16) Style {
	if pen == 0 {
		return Style{}
	}
	return p.list[pen-1]
}

const (
	minPens = 256
	maxPens = 1<<16 - 1
)

// penFor returns the number of a style. If there are too many the style is the default one.
func (g *grid) penFor(style Style) uint16 {
	if style == (Style{}) {
		return 0
	}
	p := &g.pens
	if pen, ok := p.index[style]; ok {
		return pen
	}
	if len(p.list) >= max(p.limit, minPens) {
		g.removeUnusedPens()
	}
	if len(p.list) == maxPens {
		return 0
	}
	if p.index == nil {
		p.index = map[Style]uint16{}
	}
	p.list = append(p.list, style)
	p.index[style] = uint16(len(p.list))
	return uint16(len(p.list))
}

// removeUnusedPens numbers the styles anew. Its time is that of all cells, so the number of new styles
// before the next call is in proportion to them.
func (g *grid) removeUnusedPens() {
	old := g.pens.list
	g.pens = palette{index: map[Style]uint16{}}
	numbers := make([]uint16, len(old)+1)
	renumber := func(pen *uint16) {
		if *pen == 0 {
			return
		}
		if numbers[*pen] == 0 {
			g.pens.list = append(g.pens.list, old[*pen-1])
			numbers[*pen] = uint16(len(g.pens.list))
			g.pens.index[old[*pen-1]] = numbers[*pen]
		}
		*pen = numbers[*pen]
	}
	g.eachCell(func(c *cell) { renumber(&c.pen) })
	renumber(&g.cursor.pen)
	renumber(&g.saved[0].pen)
	renumber(&g.saved[1].pen)
	g.pens.limit = min(len(g.pens.list)+max(minPens, g.columns*g.rows/8), maxPens)
}

func (g *grid) eachCell(do func(*cell)) {
	for _, lines := range [][]row{g.main, g.alternate} {
		for _, line := range lines {
			for x := range line {
				do(&line[x])
			}
		}
	}
}

// maxClusterBytes is the size of a character with all its combining ones. More are dropped.
const maxClusterBytes = 32

// combine adds a code point without a width to the character at a cell.
func (g *grid) combine(c *cell, r rune) {
	if c.char < firstCluster {
		base := string(c.char)
		if c.char == 0 {
			base = " "
		}
		if len(g.clusters) >= 64 && len(g.clusters) == cap(g.clusters) {
			g.removeUnusedClusters()
		}
		g.clusters = append(g.clusters, base+string(r))
		c.char = firstCluster + rune(len(g.clusters)-1)
		return
	}
	if text := &g.clusters[c.char-firstCluster]; len(*text) < maxClusterBytes {
		*text += string(r)
	}
}

// removeUnusedClusters leaves as much free capacity as there are clusters.
func (g *grid) removeUnusedClusters() {
	var used []string
	g.eachCell(func(c *cell) {
		if c.char >= firstCluster {
			used = append(used, g.clusters[c.char-firstCluster])
			c.char = firstCluster + rune(len(used)-1)
		}
	})
	g.clusters = slices.Grow(slices.Clip(used), max(64, len(used), g.columns*g.rows/8))
}
