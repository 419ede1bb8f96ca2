package execserver

import (
	"context"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// readParams are the parameters of process/read.
type readParams struct {
	ProcessID string `json:"processId"`
	AfterSeq  uint64 `json:"afterSeq"`
	MaxBytes  uint64 `json:"maxBytes"`
}

// readResult is the result of process/read.
type readResult struct {
	Chunks        []wireChunk  `param:"chunks"`
	NextSeq       uint64       `param:"nextSeq"`
	Exited        bool         `param:"exited"`
	ExitCode      *int64       `param:"exitCode"`
	Closed        bool         `param:"closed"`
	SandboxDenied *bool        `param:"sandboxDenied"`
	Gap           *wireGap     `param:"gap"`
	Exit          *wireExit    `param:"exit"`
	Totals        *[]wireTotal `param:"totals"`
}

// maxChunkBytes is the most output in a chunk of any server: where so much would
// have had room, there was no more.
const maxChunkBytes = 32 << 10

// bytes is how much output there is.
func (r *readResult) bytes() (n uint64) {
	for i := range r.Chunks {
		n += uint64(len(r.Chunks[i].Chunk))
	}
	return n
}

type wireChunk struct {
	Seq    uint64         `param:"seq"`
	Stream string         `param:"stream"`
	Chunk  jsonrpc.Base64 `param:"chunk"`
	Offset *uint64        `param:"offset"`
}

// reading is what a read said, as events.
type reading struct {
	events   []*execwirev1.ProcessEvent
	position uint64 // up to where the events go
	last     uint64 // the last seq that the process was known to have
	complete bool   // there was nothing more
	closed   bool
	exit     *execwirev1.ExitRecord
}

// read asks over a link for what the process said after a seq. exitSeen is whether
// the exited event came before it.
func (p *process) read(ctx context.Context, l *link, after, most uint64, exitSeen bool) (*reading, error) {
	var result readResult
	params := readParams{ProcessID: p.id, AfterSeq: after, MaxBytes: most}
	if err := p.conn.callOn(ctx, l, p.conn.places, "process/read", params, &result); err != nil {
		return nil, err
	}
	if result.NextSeq == 0 {
		return nil, p.conn.broken(l, protocolErrorf("nextSeq of process/read is 0"))
	}
	r, err := p.interpret(&result, after, exitSeen)
	if err != nil {
		return nil, p.conn.broken(l, err)
	}
	r.complete = len(result.Chunks) == 0 || l.peer.uris && result.bytes()+maxChunkBytes <= most && !r.isCut(exitSeen)
	p.learn(r)
	return r, nil
}

// isCut reports whether the seqs of the answer end before those of the exit or the
// close, of which it tells. Servers of the reference do that where they were told how
// much to send: what they answer when there is no more output has all seqs.
func (r *reading) isCut(exitSeen bool) bool {
	hasExit, hasClose := exitSeen, false
	for _, event := range r.events {
		hasExit = hasExit || event.GetExited() != nil
		hasClose = hasClose || event.GetClosed() != nil
	}
	return r.exit != nil && !hasExit || r.closed && !hasClose
}

// interpret makes events of an answer. The protocol does not say which seq the exit
// and the close had: they are those that no chunk has.
func (p *process) interpret(result *readResult, after uint64, exitSeen bool) (*reading, error) {
	end := result.NextSeq - 1
	r := &reading{position: max(end, after), last: end, closed: result.Closed}
	if result.Exited {
		r.exit = p.exitOf(result.ExitCode, result.SandboxDenied, result.Exit)
	}
	var closing []*execwirev1.ProcessEvent
	chunks := result.Chunks
	if last := len(chunks) - 1; result.Closed && end > after && (last < 0 || chunks[last].Seq != end) {
		event, err := p.closedEvent(&eventParams{Seq: end, Totals: result.Totals})
		if err != nil {
			return nil, err
		}
		closing = append(closing, event)
		end--
	}
	holes, err := holesIn(chunks, after, end)
	if err != nil {
		return nil, err
	}
	exitHole := -1
	if result.Exited && !exitSeen {
		exitHole = likeliest(holes)
	}
	at, dropped := 0, uint64(0)
	if result.Gap != nil {
		dropped = result.Gap.DroppedBytes
	}
	for i := 0; i <= len(chunks); i++ {
		limit := end + 1
		if i < len(chunks) {
			limit = chunks[i].Seq
		}
		if at < len(holes) && holes[at].end == limit {
			r.events = append(r.events, holes[at].events(at == exitHole, r.exit, dropped)...)
			dropped = 0
			at++
		}
		if i < len(chunks) {
			stream, err := p.streamOf(chunks[i].Stream)
			if err != nil {
				return nil, err
			}
			r.events = append(r.events, outputEvent(chunks[i].Seq, stream, chunks[i].Chunk, chunks[i].Offset))
		}
	}
	r.events = append(r.events, closing...)
	return r, nil
}

// hole are seqs of an answer that no chunk has, from begin to before end.
type hole struct{ begin, end uint64 }

// holesIn finds them after one seq and up to another.
func holesIn(chunks []wireChunk, after, end uint64) ([]hole, error) {
	var holes []hole
	next := after + 1
	for i := range chunks {
		seq := chunks[i].Seq
		switch {
		case seq < next || seq > end:
			return nil, protocolErrorf("process/read after %d up to %d has a chunk with seq %d behind %d", after, end, seq, next-1)
		case seq > next:
			holes = append(holes, hole{next, seq})
		}
		next = seq + 1
	}
	if next <= end {
		holes = append(holes, hole{next, end + 1})
	}
	return holes, nil
}

// likeliest returns which of the holes has the exit in it: the last with one seq,
// because lost output leaves one at the beginning. -1 is none.
func likeliest(holes []hole) int {
	for i := len(holes) - 1; i >= 0; i-- {
		if holes[i].end-holes[i].begin == 1 {
			return i
		}
	}
	return len(holes) - 1
}

// events returns what a hole stands for: lost output, the exit, or one after the
// other.
func (h hole) events(hasExit bool, exit *execwirev1.ExitRecord, dropped uint64) (events []*execwirev1.ProcessEvent) {
	end := h.end
	if hasExit {
		end--
	}
	if end > h.begin {
		if dropped == 0 { // which the server does not tell
			dropped = maxChunkBytes * (end - h.begin)
		}
		events = append(events, gapEvent(end, dropped, false))
	}
	if hasExit {
		events = append(events, exitedEvent(end, exit))
	}
	return events
}
