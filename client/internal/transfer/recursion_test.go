package transfer

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"time"
)

// markedSide is both ends of a transfer.
type markedSide struct {
	Destination
	marking  func() error
	modified map[string]time.Time
	marks    map[string]bool
}

func (s *markedSide) LastName() string { return "dest" }

func (s *markedSide) Mark(_ context.Context, name string) error {
	s.marks[name] = true
	return s.marking()
}

func (s *markedSide) RemoveAll(ctx context.Context, name string) error {
	if ctx.Err() == nil {
		delete(s.marks, name)
	}
	return context.Cause(ctx)
}

func (s *markedSide) Lstat(ctx context.Context, name string) (Attributes, error) {
	modified, exists := s.modified[name]
	if !exists {
		return Attributes{}, errors.Join(fs.ErrNotExist, context.Cause(ctx))
	}
	return Attributes{Kind: Directory, ModifyTime: modified}, context.Cause(ctx)
}

// A cancelled copy removes its mark, also if its creation was not answered.
func TestTransfer_Cancelled_RemovesMark(t *testing.T) {
	for _, answered := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		side := &markedSide{marks: map[string]bool{}, marking: func() error {
			cancel()
			if answered {
				return nil
			}
			return ctx.Err()
		}}
		err := New(side, side, Options{}).rejectRecursion(ctx, "a/dest")
		if len(side.marks) > 0 || answered == errors.Is(err, context.Canceled) {
			t.Errorf("answered is %t: it left %v, with %v", answered, side.marks, err)
		}
	}
}

// Where nothing can be created, directories with different times are different.
func TestTransfer_ReadOnlyDirectories_AreComparedByTime(t *testing.T) {
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
		err := New(side, side, Options{}).rejectRecursion(t.Context(), "a/dest")
		if tt.refused != errors.Is(err, fs.ErrPermission) || !tt.refused && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
