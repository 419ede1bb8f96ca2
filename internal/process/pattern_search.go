package process

import (
	"time"
	"unicode/utf8"

	"github.com/execwire/execwire/internal/eventlog"
)

const (
	// MaxPatternMatch is how long a match may be that is found for certain, however the output was cut into events.
	MaxPatternMatch = 16 << 10
	// patternKeep is what is kept of searched output: the longest match, and room for characters that are cut.
	patternKeep = MaxPatternMatch + 2*utf8.UTFMax
	// patternFresh is how much output is gathered at most before it is searched.
	patternFresh = 16 << 10
	// patternEvents is how many events are.
	patternEvents = 1 << 10
	// patternPause is the longest pause between searches.
	patternPause = 5 * time.Millisecond
)

// PatternMatch is where a pattern was found.
type PatternMatch struct {
	Stream eventlog.Stream // in whose output
	Offset uint64          // of Data[0] in the stream
	Data   []byte          // what matched; may be empty
	Seq    uint64          // of the event that completed the match
}

// patternSearch looks for a pattern in the output of a process as it comes.
type patternSearch struct {
	pattern *Pattern
	only    eventlog.Stream // 0: every stream by itself
	streams [eventlog.Terminal + 1]patternText
	match   PatternMatch // Seq is 0 while nothing was found

	searched, fresh int // bytes that were looked at since the last pause, and how many of them were new
	took            time.Duration
}

// patternText is the end of what one stream said.
type patternText struct {
	begin  uint64 // offset of data[0]
	cut    bool   // earlier output preceded data[0]
	data   []byte
	old    int            // data[:old] was searched before
	events []patternEvent // that data[old:] came in, and the one before
}

type patternEvent struct{ end, seq uint64 }

// take adds an event, in the order of seqs.
func (s *patternSearch) take(e eventlog.Event) {
	if s.found() || e.Kind != eventlog.Output || s.only != 0 && e.Stream != s.only {
		return
	}
	t := &s.streams[e.Stream]
	if e.Offset != t.begin+uint64(len(t.data)) {
		// Output is missing, or this is the first. What came before is as complete as it will get.
		s.look(e.Stream, true)
		*t = patternText{begin: e.Offset, data: t.data[:0]}
	}
	t.data = append(t.data, e.Data...)
	t.events = append(t.events, patternEvent{end: e.Offset + uint64(len(e.Data)), seq: e.Seq})
	if len(t.data)-t.old >= patternFresh || len(t.events) > patternEvents {
		s.look(e.Stream, false)
	}
}

// lookAll searches what was taken. At the end of the output nothing more can complete a character.
func (s *patternSearch) lookAll(end bool) {
	for id := range s.streams {
		s.look(eventlog.Stream(id), end)
	}
}

// found reports whether there is a match. Output that is taken later cannot change it.
func (s *patternSearch) found() bool { return s.match.Seq != 0 }

// pause returns how long to wait before the next search, now that nothing is there to search. Where most of what was
// looked at was old it is as long as looking took: a process that writes byte by byte costs half a processor at most.
func (s *patternSearch) pause() time.Duration {
	pause := min(s.took, patternPause)
	if s.fresh > s.searched/4 {
		pause = 0
	}
	s.searched, s.fresh, s.took = 0, 0, 0
	return pause
}

// look searches one stream, if it has said something new. Of several matches the one that was complete first counts.
func (s *patternSearch) look(id eventlog.Stream, end bool) {
	t := &s.streams[id]
	text := t.data
	if !end {
		text = text[:len(text)-cutCharacter(text)]
	}
	if len(text) <= t.old {
		return
	}
	began := time.Now()
	from, to, found := s.pattern.find(text, t.cut)
	s.took += time.Since(began)
	s.searched += len(text)
	s.fresh += len(text) - t.old
	if found {
		m := PatternMatch{Stream: id, Offset: t.begin + uint64(from), Data: text[from:to]}
		m.Seq = t.seqOf(t.begin + uint64(to))
		if !s.found() || m.Seq < s.match.Seq {
			s.match = m
		}
		t.old = len(text)
		return
	}
	t.forget(len(text))
}

// seqOf returns the seq of the event that the stream's byte before end came in.
func (t *patternText) seqOf(end uint64) uint64 {
	for _, e := range t.events {
		if e.end >= end {
			return e.seq
		}
	}
	return t.events[len(t.events)-1].seq
}

// forget drops what no match can reach any more, now that everything before searched is known not to complete one.
func (t *patternText) forget(searched int) {
	t.old = searched
	t.events = append(t.events[:0], t.events[len(t.events)-1])
	drop := len(t.data) - patternKeep
	if drop <= 0 {
		return
	}
	for range utf8.UTFMax - 1 { // not within a character
		if utf8.RuneStart(t.data[drop]) {
			break
		}
		drop++
	}
	t.data = t.data[:copy(t.data, t.data[drop:])]
	t.begin += uint64(drop)
	t.old -= drop
	t.cut = true
}

// cutCharacter returns how many bytes at the end of text are the beginning of a character whose rest may still come.
func cutCharacter(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if last := text[len(text)-n:]; utf8.RuneStart(last[0]) {
			if utf8.FullRune(last) {
				return 0
			}
			return n
		}
	}
	return 0
}
