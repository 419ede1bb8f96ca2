package asciicast

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"
)

// maxLineBytes is the longest line that a reader accepts.
const maxLineBytes = 16 << 20

// Error is a recording that cannot be read.
type Error struct {
	Line    int    // from 1
	Problem string // what is wrong
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("line %d %s", e.Line, e.Problem) }

// Reader reads a recording. It is for one goroutine.
type Reader struct {
	from   *bufio.Reader
	line   int
	cut    bool // the line that was read last has no end
	header Header
	last   time.Duration
}

// NewReader reads the header. Its error is an [*Error], or one of the reader.
func NewReader(from io.Reader) (*Reader, error) {
	r := &Reader{from: bufio.NewReaderSize(from, 64<<10)}
	line, err := r.next()
	if errors.Is(err, io.EOF) {
		return nil, &Error{Line: 1, Problem: "is missing: the file is empty"}
	}
	if err != nil {
		return nil, err
	}
	var h struct {
		Version       int
		Width, Height int
		Term          struct {
			Cols, Rows int
			Type       string
		}
		Timestamp      float64
		IdleLimit      float64 `json:"idle_time_limit"`
		Command, Title string
		Env            map[string]any
	}
	switch err := json.Unmarshal(line, &h); {
	case err != nil:
		return nil, &Error{Line: 1, Problem: "is not the header of a recording of asciinema, version 2 or 3"}
	case h.Version != V2 && h.Version != V3:
		return nil, &Error{Line: 1, Problem: fmt.Sprintf("has version %d of the format of asciinema, which is neither 2 nor 3: convert it with asciinema convert", h.Version)}
	}
	r.header = Header{Version: h.Version, Columns: h.Term.Cols, Rows: h.Term.Rows, Term: h.Term.Type, Command: h.Command, Title: h.Title,
		IdleLimit: seconds(h.IdleLimit)}
	if h.Version == V2 {
		r.header.Columns, r.header.Rows = h.Width, h.Height
		r.header.Term, _ = h.Env["TERM"].(string)
	}
	if h.Timestamp > 0 {
		r.header.Began = time.Unix(int64(h.Timestamp), 0)
	}
	if r.header.Columns <= 0 || r.header.Rows <= 0 {
		return nil, &Error{Line: 1, Problem: "has no size of the terminal"}
	}
	return r, nil
}

// Header returns the header.
func (r *Reader) Header() Header { return r.header }

// Next returns the next event, of any kind, and io.EOF after the last one. Other errors are [*Error] and
// those of the reader. A part of a line at the end, of a recording that was broken off, is no event.
func (r *Reader) Next() (Event, error) {
	for {
		line, err := r.next()
		if err != nil {
			return Event{}, err
		}
		if len(line) == 0 || r.header.Version == V3 && line[0] == '#' {
			continue
		}
		cut := r.cut
		var fields []json.RawMessage
		var at float64
		var e Event
		if json.Unmarshal(line, &fields) != nil || len(fields) != 3 || json.Unmarshal(fields[0], &at) != nil ||
			json.Unmarshal(fields[1], &e.Code) != nil || json.Unmarshal(fields[2], &e.Data) != nil || at < 0 {
			if cut {
				return Event{}, io.EOF
			}
			return Event{}, &Error{Line: r.line, Problem: "is not an event: [time, \"code\", \"data\"]"}
		}
		e.At = seconds(at)
		if r.header.Version == V3 {
			e.At += r.last
		}
		r.last = min(max(r.last, e.At), maxTime)
		e.At = r.last
		return e, nil
	}
}

// maxTime is the longest recording. The sum of two such times is in the range of time.Duration.
const maxTime = 100 * 365 * 24 * time.Hour

func seconds(s float64) time.Duration {
	return time.Duration(math.Round(min(max(s, 0), maxTime.Seconds())*1e6)) * time.Microsecond
}

// next returns the next whole line without its end.
func (r *Reader) next() ([]byte, error) {
	r.line++
	var line []byte
	for {
		part, err := r.from.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxLineBytes:
			return nil, &Error{Line: r.line, Problem: fmt.Sprintf("has more than %d MiB", maxLineBytes>>20)}
		case err == nil || errors.Is(err, io.EOF) && len(line) > 0:
			r.cut = err != nil
			return bytes.TrimRight(line, "\r\n"), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}
