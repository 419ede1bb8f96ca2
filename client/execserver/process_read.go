package execserver

import (
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
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

// readMissing reads events until there are no more. It reports whether the process is
// still known.
func (p *process) readMissing(l *link) bool {
	for {
		if !p.awaitWindow(l) {
			return false
		}
		p.mu.Lock()
		after, announced := p.incoming.received, p.incoming.announced
		p.mu.Unlock()
		var result readResult
		if err := p.conn.call(l.over, l, "process/read", readParams{p.id, after, readBytes}, &result); err != nil {
			p.fail(l, err)
			return false
		}
		if err := p.addRead(&result, after, announced); err != nil {
			p.conn.lose(l, err)
			return false
		}
		if len(result.Chunks) == 0 {
			return true
		}
	}
}

// fail records that the server has no more events, unless the link was lost.
func (p *process) fail(l *link, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.over.Err() == nil {
		p.failed = err
		p.changed.Notify()
	}
}

// addRead adds the events of an answer for those after a seq. Servers report no seq of
// the exit and of the close: they are among those that no chunk has. So are those of
// lost output, which precede the first chunk.
func (p *process) addRead(r *readResult, after, announced uint64) error {
	var exit *execwirev1.ExitRecord
	if r.Exited {
		exit = p.exitOf(r.ExitCode, r.SandboxDenied)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	in := &p.incoming
	exitBefore := lastHole(r.Chunks, in.received)
	for _, chunk := range r.Chunks {
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
		missing := chunk.Seq - in.received - 1
		if missing > 0 && exit != nil && p.log.exit == nil && chunk.Seq == exitBefore {
			p.addLost(missing - 1)
			p.append(exitedEvent(exit))
		} else {
			p.addLost(missing)
		}
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
		p.addEnd(end, exit, r.Closed)
	}
	return nil
}

// lastHole returns the seq of the chunk after the last hole, where the exit is; 0 if
// there is no hole.
func lastHole(chunks []wireChunk, after uint64) (seq uint64) {
	for _, chunk := range chunks {
		if chunk.Seq > after+1 {
			seq = chunk.Seq
		}
		after = max(after, chunk.Seq)
	}
	return seq
}

// addEnd adds what follows the last output, up to a seq: lost output, the exit if it was
// not found before, and the close. The caller holds mu.
func (p *process) addEnd(end uint64, exit *execwirev1.ExitRecord, closed bool) {
	missing := end - p.incoming.received
	hasExit, hasClose := exit != nil && p.log.exit == nil, closed && !p.log.closed
	for _, has := range []bool{hasExit, hasClose} {
		if has && missing > 0 {
			missing--
		}
	}
	p.addLost(missing)
	if hasExit {
		p.append(exitedEvent(exit))
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
