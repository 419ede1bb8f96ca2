package client

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"time"
)

// markedSide is both ends of a transfer.
type markedSide struct {
	transferDestination
	marking  func() error
	modified map[string]time.Time
	marks    map[string]bool
}

func (s *markedSide) lastName() string { return "dest" }

func (s *markedSide) mark(_ context.Context, name string) error {
	s.marks[name] = true
	return s.marking()
}

func (s *markedSide) removeAll(ctx context.Context, name string) error {
	if ctx.Err() == nil {
		delete(s.marks, name)
	}
	return context.Cause(ctx)
}

func (s *markedSide) lstat(ctx context.Context, name string) (fileFacts, error) {
	modified, exists := s.modified[name]
	if !exists {
		return fileFacts{}, errors.Join(fs.ErrNotExist, context.Cause(ctx))
	}
	return fileFacts{kind: directory, modifyTime: modified}, context.Cause(ctx)
}

// A copy that is given up leaves no mark, also if nobody said that it was made.
func TestNoMarkIsLeftByACopyThatIsGivenUp(t *testing.T) {
	for _, answered := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		side := &markedSide{marks: map[string]bool{}, marking: func() error {
			cancel()
			if answered {
				return nil
			}
			return ctx.Err()
		}}
		err := newTransfer(side, side, TransferOptions{}).refuseMade(ctx, "a/dest")
		if len(side.marks) > 0 || answered == errors.Is(err, context.Canceled) {
			t.Errorf("answered is %t: it left %v, with %v", answered, side.marks, err)
		}
	}
}

// Where nothing can be made, a directory of another time is another directory.
func TestDirectoriesThatTakeNoMarkAreComparedByTheirTimes(t *testing.T) {
	now := time.Now()
	for name, tt := range map[string]struct {
		here, there time.Time
		refused     bool
	}{
		"two":            {now, now.Add(-time.Second), false},
		"one":            {now, now, true},
		"one, in millis": {now, now.Truncate(time.Millisecond), true},
		"not told":       {now, time.Unix(0, 0), true},
	} {
		side := &markedSide{marks: map[string]bool{}, modified: map[string]time.Time{"a/dest": tt.here, ".": tt.there},
			marking: func() error { return fs.ErrPermission }}
		err := newTransfer(side, side, TransferOptions{}).refuseMade(t.Context(), "a/dest")
		if tt.refused != errors.Is(err, fs.ErrPermission) || !tt.refused && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
