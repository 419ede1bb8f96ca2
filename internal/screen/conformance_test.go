package screen

import (
	"strings"
	"testing"
	"time"
)

// The cases are what xterm's ctlseqs document and the tests of vttest describe. A screen has 10 columns
// and 4 rows; the text is without blank lines at the end, and | is the cursor.
func TestScreen_Conformance(t *testing.T) {
	fill := "1111111111\r\n2222222222\r\n3333333333\r\n4444444444"
	for name, test := range map[string]struct{ output, want string }{
		"text":                       {"one\r\ntwo", "one\ntwo|"},
		"wraps late":                 {"0123456789", "012345678|9"},
		"wraps with the next":        {"0123456789a", "0123456789\na|"},
		"late wrap ends with CR":     {"0123456789\ra", "a|123456789"},
		"late wrap ends with BS":     {"0123456789\bX", "01234567X|9"},
		"line feed in a late wrap":   {"0123456789\nX", "0123456789\n         |X"},
		"no wrap":                    {"\x1b[?7l0123456789abc", "012345678|c"},
		"scrolls":                    {"1\r\n2\r\n3\r\n4\r\n5", "2\n3\n4\n5|"},
		"reverse line feed scrolls":  {fill + "\x1b[H\x1bM", "|\n1111111111\n2222222222\n3333333333"},
		"NEL":                        {"ab\x1bEc", "ab\nc|"},
		"IND":                        {"ab\x1bDc", "ab\n  c|"},
		"VT and FF are line feeds":   {"a\vb\fc", "a\n b\n  c|"},
		"LNM":                        {"\x1b[20hab\nc", "ab\nc|"},
		"CUP":                        {"\x1b[2;3HX", "\n  X|"},
		"CUP is clipped":             {"\x1b[99;99HX", "\n\n\n         |X"},
		"CUP of zeros":               {"abc\x1b[0;0HX", "X|bc"},
		"CUU CUD CUF CUB":            {"\x1b[3B\x1b[4C\x1b[2A\x1b[DX", "\n   X|"},
		"CNL CPL":                    {"ab\x1b[2EX\x1b[FY", "ab\nY|\nX"},
		"CHA HPA VPA":                {"\x1b[4GX\x1b[2dY\x1b[2`Z", "   X\n Z|  Y"},
		"HPR VPR":                    {"\x1b[2aX\x1b[eY", "  X\n   Y|"},
		"tabs":                       {"\tX", "        X|"},
		"HTS":                        {"\x1b[4G\x1bH\r\tX", "   X|"},
		"TBC":                        {"\x1b[3g\tX", "         |X"},
		"TBC of one":                 {"\t\x1b[g\r\tX", "         |X"},
		"CHT CBT":                    {"\x1b[5GX\x1b[ZY\x1b[IZ", "Y   X   Z|"},
		"ED below":                   {fill + "\x1b[2;3H\x1b[J", "1111111111\n22|"},
		"ED above":                   {fill + "\x1b[2;3H\x1b[1J", "\n  | 2222222\n3333333333\n4444444444"},
		"ED all":                     {fill + "\x1b[2;3H\x1b[2J", "\n  |"},
		"EL right":                   {"0123456789\x1b[4G\x1b[K", "012|"},
		"EL left":                    {"0123456789\x1b[4G\x1b[1K", "   | 456789"},
		"EL all":                     {"0123456789\x1b[4G\x1b[2K", "   |"},
		"ECH":                        {"0123456789\x1b[4G\x1b[2X", "012|  56789"},
		"ICH":                        {"0123456789\x1b[4G\x1b[2@", "012|  34567"},
		"DCH":                        {"0123456789\x1b[4G\x1b[2P", "012|56789"},
		"IRM":                        {"abcdef\x1b[3G\x1b[4hXY\x1b[4l", "abXY|cdef"},
		"IL":                         {fill + "\x1b[2;3H\x1b[L", "1111111111\n|\n2222222222\n3333333333"},
		"DL":                         {fill + "\x1b[2;3H\x1b[2M", "1111111111\n|4444444444"},
		"IL in a region":             {fill + "\x1b[2;3r\x1b[2H\x1b[9L", "1111111111\n|\n\n4444444444"},
		"IL outside of a region":     {fill + "\x1b[2;3r\x1b[4;2H\x1b[L", "1111111111\n2222222222\n3333333333\n4|444444444"},
		"SU SD":                      {fill + "\x1b[3S\x1b[T\x1b[H", "|\n4444444444"},
		"DECSTBM homes":              {"ab\x1b[2;3rX", "X|b"},
		"DECSTBM of one line":        {"ab\x1b[2;2rX", "abX|"},
		"scrolls in a region":        {fill + "\x1b[2;3r\x1b[3H\n", "1111111111\n3333333333\n|\n4444444444"},
		"reverse in a region":        {fill + "\x1b[2;3r\x1b[2H\x1bM", "1111111111\n|\n2222222222\n4444444444"},
		"below a region":             {fill + "\x1b[1;2r\x1b[4H\nX", "1111111111\n2222222222\n3333333333\nX|444444444"},
		"CUU stops at the region":    {"\x1b[2;3r\x1b[3H\x1b[9AX", "\nX|"},
		"CUU above the region":       {"\x1b[3;4r\x1b[2H\x1b[9AX", "X|"},
		"DECOM":                      {"\x1b[2;3r\x1b[?6hX\x1b[9HY", "\nX\nY|"},
		"DECSC DECRC":                {"ab\x1b7\r\ncd\x1b8X", "abX|\ncd"},
		"DECRC without DECSC":        {"ab\r\ncd\x1b8X", "X|b\ncd"},
		"DECRC restores a late wrap": {"0123456789\x1b7\x1b[H\x1b8a", "0123456789\na|"},
		"SCOSC SCORC":                {"ab\x1b[s\r\x1b[uX", "abX|"},
		"DECALN":                     {"\x1b#8", "|EEEEEEEEEE\nEEEEEEEEEE\nEEEEEEEEEE\nEEEEEEEEEE"},
		"RIS":                        {fill + "\x1b[2;3r\x1bcX", "X|"},
		"DECSTR":                     {"ab\x1b[2;3r\x1b[?6h\x1b[4h\x1b[!p\x1b[HX", "X|b"},
		"1049":                       {"ab\x1b[?1049hcd\x1b[?1049lX", "abX|"},
		"1049 clears":                {"ab\x1b[?1049hcd", "  cd|"},
		"47 keeps the cursor":        {"ab\x1b[?47hcd\x1b[?47lX", "ab  X|"},
		"REP":                        {"ab\x1b[3bX", "abbbbX|"},
		"REP after a control":        {"ab\r\x1b[3bX", "X|b"},
		"line drawing":               {"\x1b(0lqk\x1b(Bq", "┌─┐q|"},
		"SO SI":                      {"\x1b)0q\x0eq\x0fq", "q─q|"},
		"single shift":               {"\x1b*0q\x1bNqq", "q─q|"},
		"UK":                         {"\x1b(A#", "£|"},
		"wide":                       {"漢字x", "漢字x|"},
		"wide at the edge":           {"012345678漢", "012345678\n漢|"},
		"half of wide overwritten":   {"漢字\x1b[2GX", " X|字"},
		"wide half deleted":          {"漢字x\x1b[2G\x1b[P", " |字x"},
		"combining":                  {"e\u0301x", "e\u0301x|"},
		"combining in a late wrap":   {"012345678e\u0301", "012345678|e\u0301"},
		"emoji":                      {"👍x", "👍x|"},
		"invalid UTF-8":              {"a\xffb\xc3", "a\ufffdb|"},
		"controls in a sequence":     {"ab\x1b[\r2CX", "abX|"},
		"CAN ends a sequence":        {"\x1b[2\x18CX", "CX|"},
		"ESC restarts a sequence":    {"\x1b[2\x1b[3CX", "   X|"},
		"unknown sequences":          {"a\x1b[?99h\x1b[5;6z\x1b[>c\x1b[c\x1b%G\x1b#3\x1bPq#\x1b\\\x1b_x\x1b\\\x1b]52;c;eA\ab", "ab|"},
		"too many parameters":        {"a\x1b[" + strings.Repeat("1;", 40) + "mb", "ab|"},
		"too long sequence":          {"a\x1b[" + strings.Repeat("1", 5000) + "mb", "ab|"},
		"DEL and NUL":                {"a\x7f\x00b", "ab|"},
		"huge parameters":            {"\x1b[99999999999999999999B\x1b[4294967297CX", "\n\n\n         |X"},
		"huge counts":                {fill + "\x1b[2H\x1b[2147483647L\x1b[2147483647@\x1b[2147483647P\x1b[2147483647S\x1b[2147483647T", "\n|"},
		"REP of much":                {"ab\x1b[2147483647bX", "bbbbbbbbbb\nbbbbbbbbbb\nbbbbbbbbbb\nbbX|"},
		"mouse request is not SD":    {"ab\x1b[1;2;3;4;5T", "ab|"},
		"XTMODKEYS is no style":      {"\x1b[>4;1mab", "ab|"},
		"DECSED":                     {"ab\x1b[H\x1b[?J", "|"},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(10, 4)
			s.Write([]byte(test.output))
			if got := withCursor(s); got != test.want {
				t.Errorf("%q shows\n%q, want\n%q", test.output, got, test.want)
			}
		})
	}
}

// withCursor returns the text with | before the cell of the cursor.
func withCursor(s *Screen) string {
	s.flush()
	lines := strings.Split(s.Text(), "\n")
	x, line := s.cursor.x, s.lines[s.cursor.y]
	var before strings.Builder
	for _, c := range line[:x] {
		s.writeChar(&before, c.char)
	}
	lines[s.cursor.y] = before.String() + "|" + strings.TrimPrefix(lines[s.cursor.y], before.String())
	if strings.HasPrefix(before.String(), lines[s.cursor.y]) { // the line ends before the cursor
		lines[s.cursor.y] = before.String() + "|"
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// Styles are what SGR selects, and erased cells have the background.
func TestScreen_Styles(t *testing.T) {
	for output, want := range map[string]Style{
		"\x1b[1;3;4;9mx":                 {Attributes: Bold | Italic | Strikethrough, Underline: 1},
		"\x1b[1;2;5;7;8;53m\x1b[22;27mx": {Attributes: Blink | Invisible | Overline},
		"\x1b[31;42mx":                   {Foreground: indexed | 1, Background: indexed | 2},
		"\x1b[97;100mx":                  {Foreground: indexed | 15, Background: indexed | 8},
		"\x1b[38;5;200;48;2;1;2;3mx":     {Foreground: indexed | 200, Background: direct | 0x010203},
		"\x1b[38:5:9;48:2::4:5:6mx":      {Foreground: indexed | 9, Background: direct | 0x040506},
		"\x1b[48:2:4:5:6mx":              {Background: direct | 0x040506},
		"\x1b[4:3;58:5:9mx":              {Underline: 3, UnderlineColor: indexed | 9},
		"\x1b[31;1m\x1b[mx":              {},
		"\x1b[31;1m\x1b[39mx":            {Attributes: Bold},
		"\x1b[38;5mx":                    {},
		"\x1b[38;2;1;2mx":                {},
		"\x1b[1;44m\x1b[K":               {Background: indexed | 4},
	} {
		s := New(4, 2)
		s.Write([]byte(output))
		s.flush()
		if got := s.pens.style(s.lines[0][0].pen); got != want {
			t.Errorf("%q gives %+v, want %+v", output, got, want)
		}
	}
}

// The size of a screen bounds its memory, whatever is written.
func TestScreen_HostileOutput_IsBounded(t *testing.T) {
	var styles, clusters strings.Builder
	for i := range 40_000 {
		styles.WriteString("\x1b[38;2;" + itoa(i%251) + ";" + itoa(i%241) + ";" + itoa(i%239) + "mx")
		clusters.WriteString("e" + strings.Repeat("\u0301", i%30))
	}
	for name, output := range map[string]string{
		"styles":   styles.String(),
		"clusters": clusters.String(),
		"titles":   strings.Repeat("\x1b]2;"+strings.Repeat("t", 5000)+"\a\x1b[22;0t", 100),
		"string":   "\x1bP" + strings.Repeat("q", 1<<20),
		"keyboard": strings.Repeat("\x1b[>1u", 10_000),
		"sequence": "\x1b[" + strings.Repeat("1;", 1<<19),
	} {
		s := New(80, 24)
		s.Write([]byte(output))
		s.flush()
		if len(s.pens.list) > 4000 || len(s.clusters) > 5000 || len(s.title) > maxTitleBytes || len(s.titles) > maxTitles ||
			cap(s.parser.partial) > 2*maxPartial || len(s.keyboards[0]) > maxFlagSet {
			t.Errorf("after %s: %d styles, %d clusters, %d bytes of title, %d titles, %d bytes of a sequence",
				name, len(s.pens.list), len(s.clusters), len(s.title), len(s.titles), cap(s.parser.partial))
		}
	}
}

func itoa(i int) string {
	return string(rune('0'+i/100)) + string(rune('0'+i/10%10)) + string(rune('0'+i%10))
}

// A used screen of the usual size, with both screens, takes at most 40 KiB.
func TestScreen_Memory(t *testing.T) {
	s := New(80, 24)
	s.Write([]byte("\x1b[?1049h"))
	for range 1000 {
		s.Write([]byte("\x1b[1;32mgreen\x1b[0m and some more text\r\n"))
	}
	if n := s.Bytes(); n > 40<<10 || n < 2*8*80*24 {
		t.Errorf("%d bytes", n)
	}
}

// FuzzScreen checks that no output breaks a screen or its copy, and that the time is bounded.
func FuzzScreen(f *testing.F) {
	f.Add([]byte(strings.Join(fragments, "")), uint8(9), uint8(5))
	f.Fuzz(func(t *testing.T, output []byte, columns, rows uint8) {
		s := New(int(columns)+1, int(rows)+1)
		began := time.Now()
		s.Write(output)
		s.flush()
		if took := time.Since(began); took > 5*time.Second+time.Duration(len(output))*time.Millisecond {
			t.Errorf("%d bytes took %v", len(output), took)
		}
		copied := New(s.columns, s.rows)
		copied.Write(s.Repaint())
		if a, b := stateOf(s), stateOf(copied); a.Cursor != b.Cursor || strings.Join(a.Main, "\n") != strings.Join(b.Main, "\n") || a.Parser != b.Parser {
			t.Errorf("%q is not restored by %q", output, s.Repaint())
		}
		s.Resize(int(rows)+1, int(columns)+1)
		s.Write(output)
		_ = s.Snapshot()
	})
}
