package process

import (
	"bytes"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/testrace"
)

func newPattern(t testing.TB, expression string) *Pattern {
	t.Helper()
	p, err := NewPattern(expression)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// searchSplit passes text to a search as events, split by cuts, searches after each of them, and
// returns the match.
func searchSplit(t testing.TB, expression string, text []byte, cuts func(left int) int) PatternMatch {
	t.Helper()
	s := patternSearch{pattern: newPattern(t, expression)}
	seq, offset := uint64(0), 0
	for offset < len(text) && !s.found() {
		n := min(cuts(len(text)-offset), len(text)-offset)
		seq++
		s.add(eventlog.Event{Kind: eventlog.Output, Stream: eventlog.Stdout, Seq: seq, Offset: uint64(offset), Data: text[offset : offset+n]})
		s.searchAll(false)
		offset += n
	}
	s.searchAll(true)
	return s.match
}

// splits are ways to split output into events. Small events are only at the end, where the matches
// are, because each event makes the whole text be searched again.
var splits = map[string]func(int) int{
	"a byte":   func(left int) int { return max(1, left-smallSplits()) },
	"7 bytes":  func(left int) int { return max(7, left-7*smallSplits()) },
	"997":      func(int) int { return 997 },
	"a chunk":  func(int) int { return eventlog.MaxChunkBytes },
	"anyhow":   func(int) int { return 1 + rand.IntN(1000) },
	"the rest": func(left int) int { return left },
}

// smallSplits is the number of small events.
func smallSplits() int {
	if testing.Short() {
		return 60
	}
	return 300
}

func TestPattern_OutputSplitAnywhere(t *testing.T) {
	testrace.Slow(t)
	noise := bytes.Repeat([]byte("some line of output, é and \xff\xfe\x00 bytes\n"), 1500) // 60 KiB
	at := func(texts ...string) []byte { return append(bytes.Clone(noise), strings.Join(texts, "")...) }
	for _, tt := range []struct {
		expression string
		text       []byte
	}{
		{`needle[0-9]{3}`, at("a needle123")},
		{`(?m)^ready on \d+$`, at("not ready on 1\nready on 2\n")},
		{`\bneedle\b.`, at("needles needle.")},
		{`é{3}`, at("ééé")},
		{`[^\x00-\x{2000}]x`, at("ẞx and €x")},
		{`\xff`, at("ÿ")}, // a character: bytes that are none of UTF-8 match no character but U+FFFD
		{"\x00+end", at("\x00\x00end")},
		{`(?i)NEEDLE`, at("a Needle")},
		{`a|needle|$x`, bytes.Repeat([]byte("b"), 40_000)}, // nowhere
		{`\Qne.dle`, at("needle ne.dle")},
		{`^some`, noise},
		{`^needle`, at("\nneedle")},
		{``, noise},
		{`x*`, noise},
		{`\z`, []byte("x")},
	} {
		want := regexp.MustCompile(tt.expression).FindIndex(tt.text)
		for name, cuts := range splits {
			if got := searchSplit(t, tt.expression, tt.text, cuts); want == nil {
				if got.Seq != 0 {
					t.Errorf("%q cut by %s matched %q at %d, which is no match", tt.expression, name, got.Data, got.Offset)
				}
			} else if got.Seq == 0 || got.Offset != uint64(want[0]) && tt.expression != `\z` {
				t.Errorf("%q cut by %s is %q at %d, want %v", tt.expression, name, got.Data, got.Offset, want)
			}
		}
	}
}

// Text after a cut does not count as the start of the output, wherever the cut is.
func TestPattern_TruncatedTextHasNoStart(t *testing.T) {
	testrace.Slow(t)
	text := []byte(strings.Repeat("xfoo", 15_000) + " foo")
	for _, expression := range []string{`\bfoo`, `(?m)\A.*\z|\bfoo`, `\Bx foo`} {
		want := uint64(len(text) - 3)
		if expression == `(?m)\A.*\z|\bfoo` {
			text[len(text)-4] = '\n'
			want = 0 // it is the beginning at first
		}
		for name, cuts := range splits {
			got := searchSplit(t, expression, text, cuts)
			if expression == `\Bx foo` {
				if got.Seq != 0 {
					t.Errorf("%q cut by %s matched at %d", expression, name, got.Offset)
				}
				continue
			}
			if name != "the rest" && (got.Seq == 0 || got.Offset != want) {
				t.Errorf("%q cut by %s matched at %d, want %d", expression, name, got.Offset, want)
			}
		}
	}
}

func TestPattern_LongestMatch(t *testing.T) {
	testrace.Slow(t)
	for _, before := range []int{0, 1, 5, 40_000} {
		text := strings.Repeat("é", before) + "<" + strings.Repeat("-", MaxPatternMatch-2) + ">"
		for name, cuts := range splits {
			got := searchSplit(t, `<[^>]*>`, []byte(text), cuts)
			if len(got.Data) != MaxPatternMatch || got.Offset != uint64(2*before) {
				t.Errorf("behind %d characters, cut by %s: %d bytes at %d", before, name, len(got.Data), got.Offset)
			}
		}
	}
}

// newSearch returns a patternSearch for manual use.
func newSearch(t *testing.T, expression string, only eventlog.Stream) *patternSearch {
	return &patternSearch{pattern: newPattern(t, expression), stream: only}
}

func outputEvent(seq uint64, stream eventlog.Stream, offset uint64, text string) eventlog.Event {
	return eventlog.Event{Kind: eventlog.Output, Seq: seq, Stream: stream, Offset: offset, Data: []byte(text)}
}

func TestPattern_MissingOutput(t *testing.T) {
	s := newSearch(t, `needle`, 0)
	s.add(outputEvent(1, eventlog.Stdout, 0, "nee"))
	s.add(outputEvent(5, eventlog.Stdout, 10, "dle"))
	if s.searchAll(true); s.found() {
		t.Errorf("found %q around a gap", s.match.Data)
	}
	s = newSearch(t, `^dle`, 0)
	s.add(outputEvent(1, eventlog.Stdout, 0, "nee"))
	s.add(outputEvent(5, eventlog.Stdout, 10, "dle"))
	if s.searchAll(false); s.match.Offset != 10 || s.match.Seq != 5 {
		t.Errorf("after a gap it does not begin anew: %+v", s.match)
	}
	s = newSearch(t, `nee`, 0)
	s.add(outputEvent(1, eventlog.Stdout, 0, "nee"))
	s.add(outputEvent(5, eventlog.Stdout, 10, "dle"))
	if s.searchAll(false); s.match.Offset != 0 || s.match.Seq != 1 {
		t.Errorf("output before a gap is not searched: %+v", s.match)
	}
}

func TestPattern_StreamsAreSeparate(t *testing.T) {
	s := newSearch(t, `needle`, 0)
	s.add(outputEvent(1, eventlog.Stdout, 0, "nee"))
	s.add(outputEvent(2, eventlog.Stderr, 0, "dle"))
	if s.searchAll(false); s.found() {
		t.Errorf("found %+v over two streams", s.match)
	}
	s.add(outputEvent(3, eventlog.Stderr, 3, " needle"))
	s.add(outputEvent(4, eventlog.Stdout, 3, "dle"))
	if s.searchAll(false); s.match.Stream != eventlog.Stderr || s.match.Seq != 3 || s.match.Offset != 4 {
		t.Errorf("found %+v, want the match that was complete first", s.match)
	}
	s = newSearch(t, `needle`, eventlog.Stdout)
	s.add(outputEvent(1, eventlog.Stderr, 0, "needle"))
	if s.searchAll(true); s.found() {
		t.Errorf("found %+v in the other stream", s.match)
	}
}

// An incomplete character matches only at the end of the output.
func TestPattern_PartialCharacters(t *testing.T) {
	s := newSearch(t, `[^a-z]`, 0)
	s.add(outputEvent(1, eventlog.Stdout, 0, "a\xe2\x82"))
	if s.searchAll(false); s.found() {
		t.Fatalf("found %+v in half a character", s.match)
	}
	s.add(outputEvent(2, eventlog.Stdout, 3, "\xac"))
	if s.searchAll(false); string(s.match.Data) != "€" || s.match.Seq != 2 || s.match.Offset != 1 {
		t.Errorf("found %+v", s.match)
	}
	s = newSearch(t, `[^a-z]`, 0)
	s.add(outputEvent(1, eventlog.Stdout, 0, "a\xe2"))
	s.searchAll(false)
	if s.searchAll(true); string(s.match.Data) != "\xe2" || s.match.Seq != 1 {
		t.Errorf("found %+v at the end", s.match)
	}
}

func TestPattern_SeqOfMatch(t *testing.T) {
	s := newSearch(t, `b+c`, 0)
	s.add(outputEvent(3, eventlog.Stdout, 0, "ab"))
	s.add(outputEvent(4, eventlog.Stdout, 2, "bb"))
	s.add(outputEvent(7, eventlog.Stdout, 4, "cd"))
	s.add(outputEvent(8, eventlog.Stdout, 6, "bc"))
	if s.searchAll(false); s.match.Seq != 7 || s.match.Offset != 1 || string(s.match.Data) != "bbbc" {
		t.Errorf("found %+v", s.match)
	}
}

func TestPattern_MemoryIsBounded(t *testing.T) {
	s := newSearch(t, `never`, 0)
	chunk := strings.Repeat("x", eventlog.MaxChunkBytes)
	for i := range 300 {
		offset := uint64(i) * uint64(len(chunk)+1)
		s.add(outputEvent(uint64(2*i+1), eventlog.Stdout, offset, chunk))
		s.add(outputEvent(uint64(2*i+2), eventlog.Stdout, offset+uint64(len(chunk)), "y"))
		for range 20 {
			s.searchAll(false)
		}
	}
	text := &s.streams[eventlog.Stdout]
	if most := 2*(patternTailBytes+patternBatchBytes+eventlog.MaxChunkBytes) + 4096; cap(text.data) > most || cap(text.events) > 2*patternBatchEvents {
		t.Errorf("%d bytes and %d events are kept", cap(text.data), cap(text.events))
	}
}

func TestNewPattern_Invalid(t *testing.T) {
	for expression, says := range map[string]string{
		`(`:                            "missing closing )",
		`[z-a]`:                        "z-a",
		`a**`:                          "**",
		`(?P<n>`:                       "(?P<n>",
		`\1`:                           `\\1`,
		`(?=x)`:                        "(?=",
		"\xff":                         "UTF-8",
		`x{1001}`:                      "1001",
		`(x{999}y{999})z{9}`:           "complex",
		strings.Repeat("x", 1+1<<10):   "1024 bytes",
		`((x{20}){20}){20}`:            "repeat",
		strings.Repeat("(", 200) + "x": "missing closing",
	} {
		_, err := NewPattern(expression)
		wantKind(t, err, InvalidArgument)
		if typed, ok := err.(*Error); !ok || typed.Field != "regular_expression" || !strings.Contains(typed.Err.Error(), says) {
			t.Errorf("%.40q fails with %v, want %q in it", expression, err, says)
		}
	}
}
