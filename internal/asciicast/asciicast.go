package asciicast

import (
	"strings"
	"time"
)

// The versions of the format.
const (
	V2 = 2
	V3 = 3
)

// Codes of events. A reader skips those that it does not know.
const (
	CodeOutput = "o"
	CodeInput  = "i"
	CodeMarker = "m"
	CodeResize = "r" // Data is COLUMNSxROWS
	CodeExit   = "x" // Data is the exit status; v3 only
)

// Header is the first line of a recording.
type Header struct {
	// Version is V2 or V3. A writer takes 0 as V2, which every player reads.
	Version int
	// Columns and Rows are the size of the terminal. Required.
	Columns, Rows int
	// Began is when the recording began, to a second; zero: unknown.
	Began time.Time
	// Command is what was recorded, and Title is its title; empty: unknown.
	Command, Title string
	// Term is the type of the terminal, as in TERM; empty: unknown.
	Term string
	// IdleLimit is the longest pause that a player makes; 0: none.
	IdleLimit time.Duration
}

// SafeName returns the part of a recording's file name that is for the id of its process.
func SafeName(id string) string {
	safe := strings.Map(func(c rune) rune {
		if strings.ContainsRune("-_.", c) || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
			return c
		}
		return '_'
	}, id)
	return safe[:min(len(safe), 100)]
}

// Event is an event of a recording.
type Event struct {
	// At is the time since the beginning. It never decreases.
	At time.Duration
	// Code is the kind.
	Code string
	// Data is what was written or typed, or as the kind says.
	Data string
}
