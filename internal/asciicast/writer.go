package asciicast

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf8"
)

// maxEventBytes is the most data of one event: lines stay below 200 KiB, whatever is in them.
const maxEventBytes = 32 << 10

// Stream is one of the streams that a recording has.
type Stream uint8

// The streams. Those of pipes have no terminal that makes "\r\n" of "\n": the writer does.
const (
	Terminal Stream = iota
	Stdout
	Stderr
	input
	streams
)

// Writer writes a recording. Each event is one write of a whole line. It is for one goroutine.
// After an error of a write it must not be used any more. The SDKs for Python and TypeScript have
// their own, _recording.py and recording.ts, which must write the same: their tests compare it with that
// of the command.
type Writer struct {
	to      io.Writer
	version int
	last    int64           // time of the last event, in µs
	began   [streams][]byte // the bytes of a rune that is not complete yet
}

// NewWriter writes the header, and returns a writer of events.
func NewWriter(to io.Writer, h Header) (*Writer, error) {
	w := Continue(to, h.Version, 0, nil)
	return w, w.Next(h)
}

// Continue returns a writer that goes on with a recording of a version, whose last event was at a time,
// and that has the rest of the output of its terminal: see Rest.
func Continue(to io.Writer, version int, last time.Duration, rest []byte) *Writer {
	if version != V3 {
		version = V2
	}
	w := &Writer{to: to, version: version, last: last.Microseconds()}
	w.began[Terminal] = rest
	return w
}

// Next begins another recording, of the same version, which goes on with this one.
func (w *Writer) Next(h Header) error {
	type env map[string]string
	var header any
	var timestamp int64
	if !h.Began.IsZero() {
		timestamp = h.Began.Unix()
	}
	if w.version == V2 {
		var of env
		if h.Term != "" {
			of = env{"TERM": h.Term}
		}
		header = struct {
			Version   int     `json:"version"`
			Width     int     `json:"width"`
			Height    int     `json:"height"`
			Timestamp int64   `json:"timestamp,omitempty"`
			IdleLimit float64 `json:"idle_time_limit,omitempty"`
			Command   string  `json:"command,omitempty"`
			Title     string  `json:"title,omitempty"`
			Env       env     `json:"env,omitempty"`
		}{V2, h.Columns, h.Rows, timestamp, h.IdleLimit.Seconds(), h.Command, h.Title, of}
	} else {
		type term struct {
			Cols int    `json:"cols"`
			Rows int    `json:"rows"`
			Type string `json:"type,omitempty"`
		}
		header = struct {
			Version   int     `json:"version"`
			Term      term    `json:"term"`
			Timestamp int64   `json:"timestamp,omitempty"`
			IdleLimit float64 `json:"idle_time_limit,omitempty"`
			Command   string  `json:"command,omitempty"`
			Title     string  `json:"title,omitempty"`
		}{V3, term{h.Columns, h.Rows, h.Term}, timestamp, h.IdleLimit.Seconds(), h.Command, h.Title}
	}
	var line bytes.Buffer
	if err := encode(&line, header); err != nil {
		return err
	}
	w.last = 0
	_, err := w.to.Write(line.Bytes())
	return err
}

// Rest returns the bytes of output of the terminal that wait for the rest of their rune.
func (w *Writer) Rest() []byte { return w.began[Terminal] }

// Last returns the time of the last event.
func (w *Writer) Last() time.Duration { return time.Duration(w.last) * time.Microsecond }

// Output writes output of a stream. The bytes of a rune that is not complete wait for the rest of it;
// what is not UTF-8 becomes U+FFFD.
func (w *Writer) Output(at time.Duration, stream Stream, data []byte) error {
	if stream != Terminal {
		data = bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n"))
	}
	return w.text(at, CodeOutput, stream, data)
}

// Input writes what was typed, as Output does.
func (w *Writer) Input(at time.Duration, data []byte) error {
	return w.text(at, CodeInput, input, data)
}

// Resize writes that the terminal got a size.
func (w *Writer) Resize(at time.Duration, columns, rows int) error {
	return w.event(at, CodeResize, fmt.Sprintf("%dx%d", columns, rows))
}

// Marker writes a marker with a label, which players show on their time line.
func (w *Writer) Marker(at time.Duration, label string) error { return w.event(at, CodeMarker, label) }

// Exit ends the recording with the exit status of the process; v2 has a marker with it, and both
// have another one if the status is not known.
func (w *Writer) Exit(at time.Duration, status int, known bool) error {
	if err := w.End(at); err != nil {
		return err
	}
	switch {
	case !known:
		return w.Marker(at, "the exit status is not known")
	case w.version == V2:
		return w.Marker(at, "exit status "+strconv.Itoa(status))
	}
	return w.event(at, CodeExit, strconv.Itoa(status))
}

// End writes runes that are not complete, as U+FFFD. It does not close anything.
func (w *Writer) End(at time.Duration) error {
	for stream, rest := range w.began {
		w.began[stream] = nil
		code := CodeOutput
		if Stream(stream) == input {
			code = CodeInput
		}
		if len(rest) > 0 {
			if err := w.event(at, code, string(utf8.RuneError)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *Writer) text(at time.Duration, code string, stream Stream, data []byte) error {
	if began := w.began[stream]; len(began) > 0 {
		data = append(began, data...)
		w.began[stream] = nil
	}
	for len(data) > 0 {
		n := wholeRunes(data[:min(len(data), maxEventBytes)])
		if n == 0 {
			w.began[stream] = bytes.Clone(data)
			return nil
		}
		if err := w.event(at, code, string(data[:n])); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// wholeRunes returns how many bytes of data are before a rune that is not complete.
func wholeRunes(data []byte) int {
	for back := 1; back < utf8.UTFMax && back <= len(data); back++ {
		start := len(data) - back
		if utf8.RuneStart(data[start]) {
			if utf8.FullRune(data[start:]) {
				break
			}
			return start
		}
	}
	return len(data)
}

func (w *Writer) event(at time.Duration, code, data string) error {
	now := max(at.Microseconds(), w.last)
	shown := now
	if w.version == V3 {
		shown -= w.last // whole microseconds: the error does not add up
	}
	line := bytes.NewBuffer(make([]byte, 0, len(data)+len(data)/8+32))
	fmt.Fprintf(line, "[%d.%06d, %q, ", shown/1e6, shown%1e6, code)
	if err := encode(line, data); err != nil {
		return err
	}
	line.Truncate(line.Len() - 1)
	line.WriteString("]\n")
	if _, err := w.to.Write(line.Bytes()); err != nil {
		return err
	}
	w.last = now
	return nil
}

// encode appends a value and a newline.
func encode(line *bytes.Buffer, value any) error {
	encoder := json.NewEncoder(line)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}
