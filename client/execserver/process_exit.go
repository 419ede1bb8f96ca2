package execserver

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// fill fills a record with what a server tells exactly.
func (w *wireExit) fill(record *execwirev1.ExitRecord) {
	switch {
	case w.Signal != nil:
		record.Status = &execwirev1.ExitRecord_Signal{Signal: execwirev1.Signal(*w.Signal)}
	case w.Code != nil:
		record.Status = &execwirev1.ExitRecord_ExitCode{ExitCode: *w.Code}
	}
	record.Cause = causes[w.Cause]
	if w.ExitedAtMs != nil {
		record.ExitTime = timestamppb.New(time.UnixMilli(*w.ExitedAtMs))
	}
	record.WallTime = microseconds(w.WallTimeUs)
	if w.UserTimeUs != nil || w.SystemTimeUs != nil || w.MaxResidentBytes != nil {
		record.Usage = &execwirev1.ResourceUsage{UserTime: microseconds(w.UserTimeUs), SystemTime: microseconds(w.SystemTimeUs)}
		if w.MaxResidentBytes != nil {
			record.Usage.MaxResidentBytes = *w.MaxResidentBytes
		}
	}
}

func microseconds(n *int64) *durationpb.Duration {
	if n == nil {
		return nil
	}
	return durationpb.New(time.Duration(*n) * time.Microsecond)
}
