package fsops

import (
	"path"
	"time"

	"golang.org/x/sys/unix"
)

// ChangeKind is what happened to a name.
type ChangeKind uint8

// The kinds of changes. There is no zero kind.
const (
	// Created means that the name is new, or stands for something else than before:
	// what was known of it, and of all below it, does not hold any more.
	Created ChangeKind = iota + 1
	// Modified means that the content of the file was written.
	Modified
	// MetadataChanged means that its mode, owner, times or the like were changed,
	// and its content was not.
	MetadataChanged
	// Removed means that the name is gone, and all below it.
	Removed
)

// Change is what happened to a name since the batch before.
type Change struct {
	// Path is where it happened, relative to the directory that is watched. It need
	// not be UTF-8.
	Path string
	// Kind is what happened.
	Kind ChangeKind
	// Type is what the name stands for now, itself and not where it leads; zero if
	// it is gone.
	Type Type
}

// LostReason is why something is not watched any more.
type LostReason uint8

// The reasons. There is no zero reason.
const (
	// LostRemoved means that the directory was removed.
	LostRemoved LostReason = iota + 1
	// LostMoved means that the path resolves to another file or to none.
	LostMoved
	// LostUnmounted means that the file system was unmounted.
	LostUnmounted
	// LostNoWatches means that there are no more watches or descriptors for it.
	LostNoWatches
	// LostNotAllowed means that the server's user may not read it.
	LostNotAllowed
)

// Lost is a directory that is not watched any more, with all below it.
type Lost struct {
	// Path is the directory, relative to the one that is watched; "" is that one
	// itself, after which nothing comes.
	Path string
	// Reason is why.
	Reason LostReason
	// Message is the reason as a text, and how to fix it.
	Message string
}

// Batch is what happened, in this order. The parts can be empty.
type Batch struct {
	// Overflowed reports that changes were lost, so that the tree has to be read again.
	Overflowed bool
	// Changes are those since the batch before or since the overflow, at most one
	// for each path, in an order in which they lead to what there is now.
	Changes []Change
	// Lost are directories that are not watched any more.
	Lost []Lost
}

// pending has the changes that were not reported yet.
type pending struct {
	limit      int // of bytes
	overflowed bool
	bytes      int
	places     map[string]int // where the change of a path is
	changes    []Change       // with holes of kind 0
	lost       []Lost
}

func (p *pending) isEmpty() bool { return !p.overflowed && len(p.places) == 0 && len(p.lost) == 0 }

// add adds a change. It replaces an earlier one of the same path.
func (p *pending) add(c Change) {
	if at, ok := p.places[c.Path]; ok {
		before := &p.changes[at]
		switch {
		case c.Kind == Modified && before.Kind == MetadataChanged:
			before.Kind = Modified
			return
		case c.Kind == Modified, c.Kind == MetadataChanged:
			return // is part of what is reported already
		}
		p.bytes -= changeBytes(c.Path)
		before.Kind = 0
	}
	if p.bytes += changeBytes(c.Path); p.bytes > p.limit {
		p.overflow()
		return
	}
	if p.places == nil {
		p.places = make(map[string]int)
	}
	p.places[c.Path] = len(p.changes)
	p.changes = append(p.changes, c)
	if len(p.changes) > 2*len(p.places)+eventOverhead {
		p.pack()
	}
}

func changeBytes(path string) int { return len(path) + eventOverhead }

// pack closes the holes.
func (p *pending) pack() {
	kept := p.changes[:0]
	for _, c := range p.changes {
		if c.Kind != 0 {
			p.places[c.Path] = len(kept)
			kept = append(kept, c)
		}
	}
	p.changes = kept
}

// overflow forgets the changes.
func (p *pending) overflow() {
	p.overflowed, p.bytes, p.places, p.changes = true, 0, nil, nil
}

// take returns the pending changes and clears them.
func (p *pending) take() Batch {
	p.pack()
	b := Batch{Overflowed: p.overflowed, Changes: p.changes, Lost: p.lost}
	*p = pending{limit: p.limit}
	return b
}

// resolve fills in the types that events do not contain.
func (w *Watch) resolve(changes []Change) {
	opened, dir := "", descriptor(-1)
	defer func() {
		if dir >= 0 {
			dir.release()
		}
	}()
	for i := range changes {
		c := &changes[i]
		if c.Kind == Removed || c.Type != 0 {
			continue
		}
		if above := path.Dir(c.Path); dir < 0 || above != opened {
			if dir >= 0 {
				dir.release()
			}
			var err error
			if dir, err = w.open(above, openDirPath); err != nil {
				dir = -1
				continue
			}
			opened = above
		}
		m, _ := statAt(dir, path.Base(c.Path), unix.AT_SYMLINK_NOFOLLOW)
		c.Type = m.Type
	}
}

// settling is when changes are reported: when there were no more for a while, or when
// it has been long.
type settling struct {
	timer    *time.Timer
	deadline time.Time // zero while nothing is pending
	isOver   bool
}

// longestSettling is for how many pauses, and for how long, changes may draw out
// the settling.
const (
	longestSettling  = 10
	settlingDuration = 10 * time.Second
)

// extend begins the pause, or begins it again.
func (s *settling) extend(pause time.Duration) {
	if s.isOver || pause == 0 {
		s.isOver = true
		return
	}
	now := time.Now()
	if s.deadline.IsZero() {
		s.deadline = now.Add(min(longestSettling*pause, max(pause, settlingDuration)))
	}
	s.timer.Reset(min(pause, s.deadline.Sub(now)))
}

// end is for when the changes were reported.
func (s *settling) end() {
	s.timer.Stop()
	s.isOver, s.deadline = false, time.Time{}
}
