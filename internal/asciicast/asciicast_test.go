package asciicast_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/execwire/execwire/internal/asciicast"
)

const s = time.Second

// record writes a recording that has everything.
func record(t *testing.T, version int) string {
	t.Helper()
	var file bytes.Buffer
	w, err := asciicast.NewWriter(&file, asciicast.Header{Version: version, Columns: 80, Rows: 24, Began: time.Unix(1504467315, 0),
		Command: "sh", Title: "a <title>", Term: "xterm-256color", IdleLimit: 2 * s})
	must(t, err)
	must(t, w.Output(248848*time.Microsecond, asciicast.Terminal, []byte("\x1b[1;31mHello \x1b[32mWorld!\x1b[0m\r\n")))
	must(t, w.Input(s, []byte("ls\r")))
	must(t, w.Resize(4050*time.Millisecond, 90, 30))
	must(t, w.Output(4*s, asciicast.Terminal, []byte("time does not go back"))) // the clock of the server may
	must(t, w.Output(5*s, asciicast.Stdout, []byte("a\nb\n")))
	must(t, w.Marker(6*s, "12 bytes of output are missing"))
	must(t, w.Output(6*s, asciicast.Terminal, []byte("\xff\x00 is not UTF-8, and this is half a rune: \xe2\x82")))
	must(t, w.Exit(7*s, 130, true))
	return file.String()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestWriter_Golden compares whole recordings. EXECWIRE_UPDATE_GOLDEN=1 writes them.
func TestWriter_Golden(t *testing.T) {
	for name, version := range map[string]int{"v2.cast": asciicast.V2, "v3.cast": asciicast.V3} {
		t.Run(name, func(t *testing.T) {
			got, file := record(t, version), filepath.Join("testdata", name)
			if os.Getenv("EXECWIRE_UPDATE_GOLDEN") != "" {
				must(t, os.WriteFile(file, []byte(got), 0o644))
			}
			want, err := os.ReadFile(file)
			must(t, err)
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			for line := range strings.Lines(got) {
				if !json.Valid([]byte(line)) {
					t.Errorf("not JSON: %s", line)
				}
			}
		})
	}
}

func read(t *testing.T, file string) (asciicast.Header, []asciicast.Event) {
	t.Helper()
	r, err := asciicast.NewReader(strings.NewReader(file))
	must(t, err)
	var events []asciicast.Event
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return r.Header(), events
		}
		must(t, err)
		events = append(events, e)
	}
}

// TestReader_BothVersionsAreTheSame but for the exit, which v2 has as a marker.
func TestReader_BothVersionsAreTheSame(t *testing.T) {
	h2, e2 := read(t, record(t, asciicast.V2))
	h3, e3 := read(t, record(t, asciicast.V3))
	if h2.Version, h3.Version = 0, 0; h2 != h3 {
		t.Errorf("headers are %+v and %+v", h2, h3)
	}
	if len(e2) != len(e3) {
		t.Fatalf("%d and %d events", len(e2), len(e3))
	}
	for i := range e2[:len(e2)-1] {
		if e2[i] != e3[i] {
			t.Errorf("event %d is %+v and %+v", i, e2[i], e3[i])
		}
	}
	if last := e3[len(e3)-1]; last != (asciicast.Event{At: 7 * s, Code: asciicast.CodeExit, Data: "130"}) {
		t.Errorf("the last event is %+v", last)
	}
	if e3[2].Code != asciicast.CodeResize || e3[2].Data != "90x30" {
		t.Errorf("the resize is %+v", e3[2])
	}
}

// TestWriter_SplitAnywhere_KeepsTheText writes text in pieces that may end in runes.
func TestWriter_SplitAnywhere_KeepsTheText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		var file bytes.Buffer
		w, err := asciicast.NewWriter(&file, asciicast.Header{Version: rapid.SampledFrom([]int{2, 3}).Draw(t, "version"), Columns: 1, Rows: 1})
		if err != nil {
			t.Fatal(err)
		}
		at := time.Duration(0)
		for rest := []byte(text); len(rest) > 0; {
			n := rapid.IntRange(1, min(len(rest), 5)).Draw(t, "piece")
			at += time.Duration(rapid.IntRange(0, 3e9).Draw(t, "pause"))
			if err := w.Output(at, asciicast.Terminal, rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := w.End(at); err != nil {
			t.Fatal(err)
		}
		r, err := asciicast.NewReader(&file)
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		var last time.Duration
		for {
			e, err := r.Next()
			if err != nil {
				break
			}
			got.WriteString(e.Data)
			last = e.At
		}
		if got.String() != text {
			t.Errorf("got %q, want %q", got.String(), text)
		}
		if text != "" && (last > at || at-last > time.Microsecond && utf8.RuneCountInString(text) == 0) {
			t.Errorf("the last event is at %v, written at %v", last, at)
		}
	})
}

// TestWriter_LongLine_IsManyEvents and the memory of a reader stays bounded.
func TestWriter_LongLine_IsManyEvents(t *testing.T) {
	const size = 10 << 20
	var file bytes.Buffer
	w, err := asciicast.NewWriter(&file, asciicast.Header{Columns: 80, Rows: 24})
	must(t, err)
	must(t, w.Output(0, asciicast.Terminal, bytes.Repeat([]byte("yé"), size/3)))
	got := 0
	for line := range strings.Lines(file.String()) {
		if len(line) > 200<<10 {
			t.Fatalf("a line has %d bytes", len(line))
		}
	}
	_, events := read(t, file.String())
	for _, e := range events {
		got += len(e.Data)
		if !utf8.ValidString(e.Data) || strings.ContainsRune(e.Data, utf8.RuneError) {
			t.Fatal("a rune was torn")
		}
	}
	if want := size / 3 * 3; got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
}

// TestReader_Refuses what is no recording, and says where.
func TestReader_Refuses(t *testing.T) {
	for file, want := range map[string]string{
		"":                                   "line 1 is missing",
		"hello\n":                            "line 1 is not the header",
		`{"version":1,"width":1,"height":1}`: "line 1 has version 1",
		`{"version":2}`:                      "line 1 has no size",
		`{"version":3,"term":{"cols":1}}`:    "line 1 has no size",
		"{\"version\":2,\"width\":1,\"height\":1}\n[1,\"o\"]\n[2,\"o\",\"\"]\n":    "line 2 is not an event",
		"{\"version\":2,\"width\":1,\"height\":1}\n\n[-1,\"o\",\"\"]\n":            "line 3 is not an event",
		"{\"version\":2,\"width\":1,\"height\":1}\n" + strings.Repeat("x", 17<<20): "line 2 has more than 16 MiB",
	} {
		r, err := asciicast.NewReader(strings.NewReader(file))
		if err == nil {
			_, err = r.Next()
		}
		var invalid *asciicast.Error
		if !errors.As(err, &invalid) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.60q: %v, want %s", file, err, want)
		}
	}
}

// TestReader_SkipsCommentsAndABrokenEnd of a recording that was broken off.
func TestReader_SkipsCommentsAndABrokenEnd(t *testing.T) {
	h, events := read(t, "{\"version\": 3, \"term\": {\"cols\": 80, \"rows\": 24}}\r\n# a comment\n[0.5, \"o\", \"a\"]\n[1.5, \"z\", \"\"]\n[1e300, \"o\", \"b\"]\n[1, \"o\", \"c")
	if h.Columns != 80 || len(events) != 3 || events[1].At != 2*s || events[2].At < events[1].At {
		t.Errorf("%+v %+v", h, events)
	}
}

func FuzzReader(f *testing.F) {
	f.Add("{\"version\":2,\"width\":1,\"height\":1}\n[1,\"o\",\"x\"]\n")
	f.Add("{\"version\":3,\"term\":{\"cols\":1,\"rows\":1}}\n#\n[1,\"r\",\"1x1\"]")
	f.Fuzz(func(t *testing.T, file string) {
		r, err := asciicast.NewReader(strings.NewReader(file))
		if err != nil {
			return
		}
		for last := time.Duration(0); ; {
			e, err := r.Next()
			if err != nil {
				return
			}
			if e.At < last {
				t.Fatalf("%v after %v", e.At, last)
			}
			last = e.At
		}
	})
}
