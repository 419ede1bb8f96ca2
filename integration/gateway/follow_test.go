package gateway

import (
	"fmt"
	"maps"
	"slices"

	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/testproc"
)

// rpcFollower receives the output of a process like clients of the reference: from
// notifications, and after a resume from process/read, which continues after the last number
// received. It checks that every number comes once and every byte is right.
type rpcFollower struct {
	id      string
	streams map[string]*testproc.Verifier
	// last is the last number of which everything before was taken.
	last    uint64
	waiting map[uint64]harness.RPCEvent // after a hole
	exit    *int
	closed  bool
}

// followFlood follows the program flood.
func followFlood(id string) *rpcFollower {
	return &rpcFollower{id: id, waiting: map[uint64]harness.RPCEvent{}, streams: map[string]*testproc.Verifier{
		"stdout": testproc.StdoutPattern.NewVerifier(), "stderr": testproc.StderrPattern.NewVerifier()}}
}

// take receives a notification.
func (f *rpcFollower) take(e harness.RPCEvent) error {
	f.note(e)
	return f.advance()
}

// note keeps new events: what was read may be notified again.
func (f *rpcFollower) note(e harness.RPCEvent) {
	if e.Seq > f.last {
		f.waiting[e.Seq] = e
	}
}

// advance handles the next events as long as there is no gap.
func (f *rpcFollower) advance() error {
	for {
		next, there := f.waiting[f.last+1]
		if !there {
			return nil
		}
		delete(f.waiting, f.last+1)
		f.last++
		if err := f.apply(next); err != nil {
			return err
		}
	}
}

func (f *rpcFollower) apply(e harness.RPCEvent) error {
	switch {
	case f.closed:
		return fmt.Errorf("%s has %s after its close", f.id, e.Method)
	case e.Method == "process/exited":
		f.exit = &e.ExitCode
	case e.Method == "process/closed":
		f.closed = true
	default:
		if _, err := f.streams[e.Stream].Write(e.Chunk); err != nil {
			return fmt.Errorf("%s of %s: %w", e.Stream, f.id, err)
		}
	}
	return nil
}

// takeRead handles a response to process/read after a number; notifications may have arrived
// meanwhile. Its numbers have no gaps except for the ends, which have no numbers there.
func (f *rpcFollower) takeRead(after uint64, read harness.RPCRead) error {
	missing := map[uint64]bool{}
	for seq := after + 1; seq < read.NextSeq; seq++ {
		missing[seq] = true
	}
	for _, chunk := range read.Chunks {
		if !missing[chunk.Seq] {
			return fmt.Errorf("read after %d, %s has number %d before %d", after, f.id, chunk.Seq, read.NextSeq)
		}
		delete(missing, chunk.Seq)
		f.note(chunk)
	}
	for seq := range missing {
		if seq <= f.last || f.waiting[seq].Method != "" {
			delete(missing, seq) // an end that was notified
		}
	}
	holes := slices.Sorted(maps.Keys(missing))
	if read.Closed && len(holes) > 0 {
		f.note(harness.RPCEvent{Method: "process/closed", Seq: holes[len(holes)-1]})
		holes = holes[:len(holes)-1]
	}
	if read.Exited && len(holes) > 0 {
		f.note(harness.RPCEvent{Method: "process/exited", Seq: holes[0], ExitCode: *read.ExitCode})
		holes = holes[1:]
	}
	if len(holes) > 0 {
		return fmt.Errorf("read after %d, the numbers %d of %s are missing before %d", after, holes, f.id, read.NextSeq)
	}
	return f.advance()
}
