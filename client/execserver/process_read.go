package execserver

import (
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/jsonrpc"
)

type readParams struct {
	ProcessID string `json:"processId"`
	AfterSeq  uint64 `json:"afterSeq"`
	MaxBytes  uint64 `json:"maxBytes"`
}

type readResult struct {
	Chunks        []wireChunk `param:"chunks"`
	NextSeq       uint64      `param:"nextSeq"`
	Exited        bool        `param:"exited"`
	ExitCode      *int64      `param:"exitCode"`
	Closed        bool        `param:"closed"`
	SandboxDenied *bool       `param:"sandboxDenied"`
}

type wireChunk struct {
	Seq    uint64         `param:"seq"`
	Stream string         `param:"stream"`
	Chunk  jsonrpc.Base64 `param:"chunk"`
}

// bytes returns how much output the answer has.
func (r *readResult) bytes() (bytes int) {
	for _, chunk := range r.Chunks {
		bytes += len(chunk.Chunk)
	}
	return bytes
}

// readMissing reads events until there are no more, and waits while the owner has a
// window of them to acknowledge. It reports whether the process is still known.
func (p *process) readMissing(l *link) bool {
	for {
		if p.await(l.over, l, func() bool { return !p.log.isFull() }) != nil {
			return false
		}
		p.mu.Lock()
		after, announced := p.incoming.received, p.incoming.announced
		p.mu.Unlock()
		result, exitIsFirst, err := p.read(l, after)
		if err != nil {
			p.fail(l, err)
			return false
		}
		if err := p.addRead(&result, after, announced, exitIsFirst); err != nil {
			p.conn.lose(l, err)
			return false
		}
		if len(result.Chunks) == 0 {
			return true
		}
	}
}

// read reads the events after a seq. One event that is missing before the first chunk of
// a process that has exited is the exit or lost output. The chunks that follow show which
// it is, so they are read too, up to a window; exitIsFirst reports the result.
func (p *process) read(l *link, after uint64) (result readResult, exitIsFirst bool, err error) {
	read := func(after uint64, into *readResult) error {
		err := p.conn.call(l.over, l, "process/read", readParams{p.id, after, readBytes}, into)
		if size := into.bytes(); err == nil && size > maxMessageOutput {
			return p.conn.broken(l, protocolErrorf("process/read returned %d bytes: %d were asked for, and %d are the limit", size, readBytes, maxMessageOutput))
		}
		return err
	}
	err = read(after, &result)
	if err != nil || !result.Exited || len(result.Chunks) == 0 || result.Chunks[0].Seq != after+2 {
		return result, false, err
	}
	for len(result.Chunks)*eventCost+result.bytes() < windowBytes && !hasHole(result.Chunks) {
		last := result.Chunks[len(result.Chunks)-1].Seq
		var next readResult
		if err := read(last, &next); err != nil {
			return result, false, err
		}
		if len(next.Chunks) == 0 {
			return result, next.NextSeq == last+1 || next.Closed && next.NextSeq == last+2, nil
		}
		result.Chunks = append(result.Chunks, next.Chunks...)
	}
	return result, false, nil
}

// hasHole reports whether an event is missing between two chunks.
func hasHole(chunks []wireChunk) bool {
	for i := 1; i < len(chunks); i++ {
		if chunks[i].Seq != chunks[i-1].Seq+1 {
			return true
		}
	}
	return false
}

// fail records that the server has no more events, unless the link was lost. If it has
// removed the process and its end was announced, what was not received is lost output.
func (p *process) fail(l *link, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	in := &p.incoming
	switch {
	case l.over.Err() != nil, p.log.closed:
	case in.ended && in.exit != nil && errorinfo.Reason(err) == execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND:
		for p.takeEarly(); len(in.early) > 0; p.takeEarly() {
			p.addMissing(in.early[0].seq, in.early[0].event.GetClosed() != nil)
		}
		p.addEnd(max(in.announced, in.received), true)
	default:
		p.failed, p.endedAt = err, time.Now()
		p.changed.Notify()
	}
}

// addRead adds the events of an answer for those after a seq. Of the exit and of the close
// only notifications report the seq. What is missing before the first chunk is lost output, and
// perhaps the exit; what is missing between two chunks is the exit. One that is found
// nowhere else follows all output.
func (p *process) addRead(r *readResult, after, announced uint64, exitIsFirst bool) error {
	var exit *execwirev1.ExitRecord
	if r.Exited {
		exit = p.exitOf(r.ExitCode, r.SandboxDenied)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	in := &p.incoming
	if in.exit == nil && exit != nil {
		in.exit = exit
		p.changed.Notify()
	}
	for i, chunk := range r.Chunks {
		stream, err := p.streamOf(chunk.Stream)
		if err != nil {
			return err
		}
		if chunk.Seq <= after {
			return protocolErrorf("process/read after %d returned a chunk with seq %d", after, chunk.Seq)
		}
		if p.takeEarly(); chunk.Seq <= in.received {
			continue
		}
		p.addMissing(chunk.Seq, i > 0 || exitIsFirst)
		in.received = chunk.Seq
		p.append(outputEvent(stream, chunk.Chunk))
	}
	if p.takeEarly(); len(r.Chunks) > 0 {
		return nil
	}
	end := r.NextSeq - 1
	switch {
	case r.NextSeq == 0:
		return protocolErrorf("nextSeq of process/read is 0")
	case end < announced && in.received < announced:
		return protocolErrorf("process %.100q has announced seq %d, and has nothing after %d when it is read", p.id, announced, end)
	case in.received <= end:
		p.addEnd(end, r.Closed)
	}
	return nil
}

// addMissing adds what is missing before a seq: lost output, and the exit if its seq is
// among the missing ones or, where only reads have reported it, hasExit is set. The caller
// holds mu.
func (p *process) addMissing(seq uint64, hasExit bool) {
	in := &p.incoming
	missing := seq - in.received - 1
	if in.exitSeq > 0 {
		hasExit = in.received < in.exitSeq && in.exitSeq < seq
	}
	if missing > 0 && hasExit && in.exit != nil && p.log.exit == nil {
		p.addLost(missing - 1)
		p.append(exitedEvent(in.exit))
	} else {
		p.addLost(missing)
	}
	in.received = seq - 1
}

// addEnd adds what follows the last output, up to a seq: lost output, the exit if it was
// not found before, and the close. The caller holds mu.
func (p *process) addEnd(end uint64, closed bool) {
	missing := end - p.incoming.received
	hasExit, hasClose := p.incoming.exit != nil && p.log.exit == nil, closed && !p.log.closed
	for _, has := range []bool{hasExit, hasClose} {
		if has && missing > 0 {
			missing--
		}
	}
	p.addLost(missing)
	if hasExit {
		p.append(exitedEvent(p.incoming.exit))
	}
	if hasClose {
		p.append(closedEvent())
	}
	p.incoming.received = end
}

// addLost adds a gap for lost events, if there are any. The caller holds mu.
func (p *process) addLost(events uint64) {
	if events > 0 {
		p.append(gapEvent(0, events*maxChunkBytes))
	}
}
