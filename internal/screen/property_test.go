package screen

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// fullState is all of a Screen that later output depends on, without REP.
type fullState struct {
	Columns, Rows   int
	Main, Alternate []string
	Cursor          string
	Saved           [2]string
	Top, Bottom     int
	Tabs            []bool
	Modes           Modes
	Keyboards       [2]string
	Title           string
	Titles          []string
	Parser          string
}

func stateOf(s *Screen) fullState {
	s.flush()
	lines := func(lines []row) (text []string) {
		for _, line := range lines {
			var b strings.Builder
			for _, c := range line {
				if c.char == wideTail {
					b.WriteByte('>')
				} else {
					s.writeChar(&b, c.char)
				}
				if c.pen != 0 {
					fmt.Fprintf(&b, "%+v", s.pens.style(c.pen))
				}
			}
			text = append(text, b.String())
		}
		return text
	}
	at := func(c cursor) string {
		style := s.pens.style(c.pen)
		c.pen = 0
		return fmt.Sprintf("%+v %+v", c, style)
	}
	tabs := make([]bool, s.columns)
	for x := range tabs {
		tabs[x] = s.tabs.isSet(x)
	}
	return fullState{
		Columns: s.columns, Rows: s.rows, Main: lines(s.main), Alternate: lines(s.alternate), Cursor: at(s.cursor),
		Saved: [2]string{at(s.saved[0]), at(s.saved[1])}, Top: s.top, Bottom: s.bottom, Tabs: tabs, Modes: s.modes,
		Keyboards: [2]string{fmt.Sprint(s.keyboards[0]), fmt.Sprint(s.keyboards[1])}, Title: s.title,
		Titles: append([]string{}, s.titles...), Parser: fmt.Sprintf("%d %q", s.parser.state, s.parser.partial),
	}
}

// fragments are sequences that the random output is made of.
var fragments = []string{
	"a", "bcd", "hello, world ", " ", "漢字", "e\u0301", "\u0301", "👍", "é", "\xe6\xbc", "\xff", "\u200d", "\r\n", "\r\n", "\n", "\r", "\b", "\t",
	"\v", "\x0e", "\x0f", "\x07", "\x00", "\x7f", "\x18", "\x1b", "\x1b[", "\x1b[3", "\x1b]2;ti", "\x1b]2;title\a", "\x1b]0;漢\x1b\\", "\x1bP1;2q#0",
	"\x1b\\", "\x1b[A", "\x1b[3B", "\x1b[C", "\x1b[2D", "\x1b[H", "\x1b[2;3H", "\x1b[99;99H", "\x1b[5d", "\x1b[7G", "\x1b[J", "\x1b[1J", "\x1b[2J", "\x1b[K", "\x1b[1K",
	"\x1b[2K", "\x1b[L", "\x1b[2M", "\x1b[@", "\x1b[2P", "\x1b[3X", "\x1b[S", "\x1b[2T", "\x1b[3b", "\x1b[2;4r", "\x1b[r", "\x1b[3r", "\x1b[?6h", "\x1b[?6l",
	"\x1b[4h", "\x1b[4l", "\x1b[20h", "\x1b[20l", "\x1b[?7l", "\x1b[?7h", "\x1b[?1h", "\x1b[?25l", "\x1b[?25h", "\x1b[?1049h", "\x1b[?1049l", "\x1b[?47h", "\x1b[?47l",
	"\x1b[?1047h", "\x1b[?1048h", "\x1b[?1048l", "\x1b[?1000;1006h", "\x1b[?1002l", "\x1b[?2004h", "\x1b[?1004h", "\x1b[?5h", "\x1b[?12h", "\x1b=", "\x1b>", "\x1b7", "\x1b8", "\x1b[s",
	"\x1b[u", "\x1b(0lqk", "\x1b(B", "\x1b)0", "\x1b*A", "\x1bN", "\x1bO", "\x1bn", "\x1bo", "\x1bD", "\x1bE", "\x1bM", "\x1bH", "\x1b[g", "\x1b[3g", "\x1b[I", "\x1b[Z", "\x1b#8",
	"\x1b[m", "\x1b[1m", "\x1b[31;42m", "\x1b[97;100m", "\x1b[38;5;200m", "\x1b[48;2;1;2;3m", "\x1b[38:2::9:8:7m", "\x1b[4:3;58:5:9m", "\x1b[7;9;53m", "\x1b[22;24;27m",
	"\x1b[49m", "\x1b[!p", "\x1bc", "\x1b[>4;2m", "\x1b[>1u", "\x1b[<u", "\x1b[=5;2u", "\x1b[2 q", "\x1b[22;0t", "\x1b[23;0t", "\x1b[38;5", ";", "1m", "\x1b[1\n2H",
}

func randomOutput(t *rapid.T) []byte {
	var output []byte
	for _, fragment := range rapid.SliceOfN(rapid.SampledFrom(fragments), 0, 80).Draw(t, "output") {
		output = append(output, fragment...)
	}
	return output
}

// randomScreen is one after random output and resizes.
func randomScreen(t *rapid.T) *Screen {
	size := rapid.IntRange(1, 12)
	s := New(size.Draw(t, "columns"), size.Draw(t, "rows"))
	s.Write(randomOutput(t))
	if rapid.Bool().Draw(t, "resized") {
		s.Resize(size.Draw(t, "columns"), size.Draw(t, "rows"))
		s.Write(randomOutput(t))
	}
	return s
}

// A screen that is fed what another repaints is the same, whatever it was before, and stays the same.
func TestRepaint_RestoresTheWholeState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := randomScreen(t)
		copied := New(s.columns, s.rows)
		copied.Write(s.Repaint())
		if diff := cmp.Diff(stateOf(s), stateOf(copied)); diff != "" {
			t.Fatalf("after %q:\n%s", s.Repaint(), diff)
		}
		s.last, copied.last = 0, 0 // both are flushed
		later := randomOutput(t)
		s.Write(later)
		copied.Write(later)
		if diff := cmp.Diff(stateOf(s), stateOf(copied)); diff != "" {
			t.Fatalf("after later output: %s", diff)
		}
	})
}

// What is printed on the alternate screen between two outputs of the program leaves no trace.
func TestRepaintAlternate_RestoresTheWholeState(t *testing.T) {
	alternate := 0
	rapid.Check(t, func(t *rapid.T) {
		s := randomScreen(t)
		s.Write([]byte("\x1b\\\x1b[?1049h"))
		s.Write(randomOutput(t))
		repaint := s.RepaintAlternate()
		if !s.isAlternate() {
			if repaint != nil {
				t.Fatalf("the main screen is painted: %q", repaint)
			}
			return
		}
		alternate++
		shown := New(s.columns, s.rows)
		shown.Write(s.Repaint())
		shown.Write([]byte("\nexecwire: connection lost\n\x1b[15~"))
		shown.Write(repaint)
		want, got := stateOf(s), stateOf(shown)
		want.Title = got.Title // of which the program may have sent a part
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("after %q:\n%s", repaint, diff)
		}
	})
	if alternate == 0 {
		t.Error("the alternate screen was never shown")
	}
}

// What a terminal shows does not depend on what it has shown before it is repainted.
func TestRepaint_OverAnotherScreen_ShowsTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, other := randomScreen(t), randomScreen(t)
		other.Resize(s.columns, s.rows)
		other.Write(s.Repaint())
		want, got := s.Snapshot(), other.Snapshot()
		if s.title == "" {
			got.Title = ""
		}
		want.Modes.AlternateScroll, want.Modes.CursorBlinks = got.Modes.AlternateScroll, got.Modes.CursorBlinks
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("after %q:\n%s", s.Repaint(), diff)
		}
	})
}

// Where output is split has no effect, also not for output of which most scrolls out.
func TestWrite_SplitAnywhere_IsTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := randomScreen(t)
		split := New(whole.columns, whole.rows)
		split.Write(whole.Repaint())
		split.flush()
		split.last = whole.last
		output := randomOutput(t)
		for range rapid.IntRange(0, 3).Draw(t, "floods") {
			line := rapid.SampledFrom([]string{"line of text\r\n", "\tx\r\n", "\x1b[1;32mgreen\x1b[0m\r\n", "\x1b[44mblue\r\n", "漢\b\r\n", "\n"}).Draw(t, "line")
			output = append(output, strings.Repeat(line, rapid.IntRange(0, 40).Draw(t, "lines"))...)
			output = append(output, randomOutput(t)...)
		}
		whole.Write(output)
		for rest := range slices.Chunk(output, rapid.IntRange(1, 7).Draw(t, "chunk")) {
			split.Write(rest)
			split.flush()
		}
		if diff := cmp.Diff(stateOf(whole), stateOf(split)); diff != "" {
			t.Fatalf("after %q: %s", output, diff)
		}
	})
}
