package gateway

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// exactExit is an exit record as clients are told it that acknowledge.
type exactExit struct {
	Code             *int32  `json:"code,omitempty"`
	Signal           *int32  `json:"signal,omitempty"`
	Cause            string  `json:"cause"`
	ExitedAtMs       *int64  `json:"exitedAtMs,omitempty"`
	WallTimeUs       *int64  `json:"wallTimeUs,omitempty"`
	UserTimeUs       *int64  `json:"userTimeUs,omitempty"`
	SystemTimeUs     *int64  `json:"systemTimeUs,omitempty"`
	MaxResidentBytes *uint64 `json:"maxResidentBytes,omitempty"`
}

// exactTotal is how much came out of a stream.
type exactTotal struct {
	Stream string `json:"stream"`
	Bytes  uint64 `json:"bytes"`
}

// exactExitOf is the exit record of a process for a client that acknowledges, nil
// for others, and while there is none.
func (c *connection) exactExitOf(exit *execwirev1.ExitRecord) *exactExit {
	if exit == nil || !c.acknowledges {
		return nil
	}
	return newExactExit(exit)
}

func newExactExit(exit *execwirev1.ExitRecord) *exactExit {
	exact := &exactExit{Cause: exitCauses[exit.GetCause()], WallTimeUs: microseconds(exit.GetWallTime())}
	switch status := exit.GetStatus().(type) {
	case *execwirev1.ExitRecord_ExitCode:
		exact.Code = &status.ExitCode
	case *execwirev1.ExitRecord_Signal:
		exact.Signal = (*int32)(&status.Signal)
	}
	if exit.GetExitTime() != nil {
		ms := exit.GetExitTime().AsTime().UnixMilli()
		exact.ExitedAtMs = &ms
	}
	if usage := exit.GetUsage(); usage != nil {
		exact.UserTimeUs, exact.SystemTimeUs = microseconds(usage.GetUserTime()), microseconds(usage.GetSystemTime())
		exact.MaxResidentBytes = &usage.MaxResidentBytes
	}
	return exact
}

func microseconds(d *durationpb.Duration) *int64 {
	if d == nil {
		return nil
	}
	n := int64(d.AsDuration() / time.Microsecond)
	return &n
}

// appendOffset appends the member that says where output is in its stream.
func appendOffset(dst []byte, output *execwirev1.ProcessOutput) []byte {
	return strconv.AppendUint(append(dst, `,"offset":`...), output.GetOffset(), 10)
}

// appendExact appends the members that say how a process ended and how much its
// streams had, each if it is there.
func appendExact(dst []byte, exit *execwirev1.ExitRecord, closed *execwirev1.ProcessClosed) []byte {
	if exit != nil {
		dst = appendMember(dst, "exit", newExactExit(exit))
	}
	if closed != nil {
		totals := make([]exactTotal, 0, len(closed.GetTotals()))
		for _, total := range closed.GetTotals() {
			totals = append(totals, exactTotal{Stream: streamName(total.GetStream()), Bytes: total.GetBytes()})
		}
		dst = appendMember(dst, "totals", totals)
	}
	return dst
}

func appendMember(dst []byte, name string, value any) []byte {
	dst = append(append(append(dst, `,"`...), name...), `":`...)
	buffer := bytes.NewBuffer(dst)
	if err := json.NewEncoder(buffer).Encode(value); err != nil {
		panic("gateway: " + name + ": " + err.Error()) // of plain fields
	}
	return bytes.TrimSuffix(buffer.Bytes(), []byte("\n"))
}
