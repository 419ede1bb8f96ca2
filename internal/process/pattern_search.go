package process

import (
	"time"
	"unicode/utf8"

	"github.com/execwire/execwire/internal/eventlog"
)

const (
	// MaxPatternMatch is the length up to which a match is always found, regardless of how the
	// output is split into events.
	MaxPatternMatch = 16 << 10
	// patternTailBytes is what is kept of searched output: the longest match, and space for
	// incomplete characters.
	patternTailBytes = MaxPatternMatch + 2*utf8.UTFMax
	// patternBatchBytes is how much output is collected before it is searched.
	patternBatchBytes = 16 << 10
	// patternBatchEvents is how many events are collected.
	patternBatchEvents = 1 << 10
	// patternMaxPause is the longest pause between searches.
	patternMaxPause = 5 * time.Millisecond
)

// PatternMatch is a match of a pattern.
type PatternMatch struct {
	Stream eventlog.Stream // of the match
	Offset uint64          // of Data[0] in the stream
	Data   []byte          // the match; may be empty
	Seq    uint64          // of the event that completed the match
}

// patternSearch searches the output of a process for a pattern.
type patternSearch struct {
	pattern *Pattern
	stream  eventlog.Stream // 0: each stream separately
	streams [eventlog.Terminal + 1]patternText
	match   PatternMatch // Seq is 0 while there is none

	searchedBytes, newBytes int // since the last pause
	elapsed                 time.Duration
}

// patternText is the end of the output of one stream.
type patternText struct {
	begin     uint64 // offset of data[0]
	truncated bool   // there was output before data[0]
	data      []byte
	searched  int            // data[:searched] was searched before
	events    []patternEvent // of data[searched:], and the one before
}

type patternEvent struct{ end, seq uint64 }

// add adds an event, in the order of sequence numbers.
func (s *patternSearch) add(e eventlog.Event) {
	if s.found() || e.Kind != eventlog.Output || s.stream != 0 && e.Stream != s.stream {
		return
	}
	t := &s.streams[e.Stream]
	if e.Offset != t.begin+uint64(len(t.data)) {
		// Output is missing, or this is the first event. The text so far is complete.
		s.searchStream(e.Stream, true)
		*t = patternText{begin: e.Offset, data: t.data[:0]}
	}
	t.data = append(t.data, e.Data...)
	t.events = append(t.events, patternEvent{end: e.Offset + uint64(len(e.Data)), seq: e.Seq})
	if len(t.data)-t.searched >= patternBatchBytes || len(t.events) > patternBatchEvents {
		s.searchStream(e.Stream, false)
	}
}

// searchAll searches the collected output. At the end of the output incomplete characters are
// included.
func (s *patternSearch) searchAll(end bool) {
	for id := range s.streams {
		s.searchStream(eventlog.Stream(id), end)
	}
}

// found reports whether there is a match. Later output does not change it.
func (s *patternSearch) found() bool { return s.match.Seq != 0 }

// pause returns how long to wait before the next search. If most of the searched bytes were old it
// equals the time of the search: a process that writes byte by byte then costs at most half a CPU.
func (s *patternSearch) pause() time.Duration {
	pause := min(s.elapsed, patternMaxPause)
	if s.newBytes > s.searchedBytes/4 {
		pause = 0
	}
	s.searchedBytes, s.newBytes, s.elapsed = 0, 0, 0
	return pause
}

// searchStream searches one stream if it has new output. The match that was complete first counts.
func (s *patternSearch) searchStream(id eventlog.Stream, end bool) {
	t := &s.streams[id]
	text := t.data
	if !end {
		text = text[:len(text)-partialRune(text)]
	}
	if len(text) <= t.searched {
		return
	}
	began := time.Now()
	from, to, found := s.pattern.find(text, t.truncated)
	s.elapsed += time.Since(began)
	s.searchedBytes += len(text)
	s.newBytes += len(text) - t.searched
	if found {
		m := PatternMatch{Stream: id, Offset: t.begin + uint64(from), Data: text[from:to]}
		m.Seq = t.seqOf(t.begin + uint64(to))
		if !s.found() || m.Seq < s.match.Seq {
			s.match = m
		}
		t.searched = len(text)
		return
	}
	t.trim(len(text))
}

// seqOf returns the sequence number of the event with the byte before end.
func (t *patternText) seqOf(end uint64) uint64 {
	for _, e := range t.events {
		if e.end >= end {
			return e.seq
		}
	}
	return t.events[len(t.events)-1].seq
}

// trim drops the text that cannot be part of a later match, given that the first searched bytes
// contain no match.
func (t *patternText) trim(searched int) {
	t.searched = searched
	t.events = append(t.events[:0], t.events[len(t.events)-1])
	drop := len(t.data) - patternTailBytes
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
	t.searched -= drop
	t.truncated = true
}

// partialRune returns the number of bytes at the end of text that begin an incomplete character.
func partialRune(text []byte) int {
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
