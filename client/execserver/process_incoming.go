package execserver

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/backoff"
	"github.com/execwire/execwire/internal/jsonrpc"
)

const (
	// readBytes is how much output is read at once: less than a connection carries that is
	// lost again and again, and if each byte is a chunk, which has four JSON values, fewer
	// values than a message may have.
	readBytes = 64_000
	// maxChunkBytes is the largest chunk of any known server.
	maxChunkBytes = 32 << 10
	// maxMessageOutput limits the output in a message of the server: many times what known
	// servers send.
	maxMessageOutput = 1 << 20
	// reorderTimeout is how long an event may come later than one that follows it: the
	// reference sends those of two streams in any order.
	reorderTimeout = time.Second
	// sharedPause is how long a slow owner may pause a link that others need.
	sharedPause = 100 * time.Millisecond
)

// incoming puts the events of the server in order.
type incoming struct {
	received  uint64    // the server's seq up to which its events are in the log
	announced uint64    // the highest seq of a notification
	ended     bool      // the close was announced
	early     []arrival // beyond the next seq, sorted
	bytes     int       // the cost of early
	recovery  *link     // the link over which missing events are being read
	lagging   bool      // the owner is too slow and cannot pause the link: events are read later

	exit    *execwirev1.ExitRecord // as soon as it is known: it may be long before its event is in the log
	exitSeq uint64                 // the seq of the exit; 0 if only reads have reported it
}

// arrival is an event with the server's seq.
type arrival struct {
	seq   uint64
	event *execwirev1.ProcessEvent
}

// eventParams are the parameters of process/output, process/exited and process/closed.
type eventParams struct {
	ProcessID     string         `param:"processId"`
	Seq           uint64         `param:"seq"`
	Stream        string         `param:"stream,optional"`
	Chunk         jsonrpc.Base64 `param:"chunk,optional"`
	ExitCode      *int64         `param:"exitCode"`
	SandboxDenied *bool          `param:"sandboxDenied"`
}

// notify handles a notification. Unknown ones are ignored: the server may be newer.
func (c *Conn) notify(l *link, method string, raw []byte) error {
	switch method {
	case "process/output", "process/exited", "process/closed":
	default:
		return nil
	}
	var params eventParams
	if err := jsonrpc.DecodeParams(raw, &params); err != nil {
		return protocolErrorf("the notification %s cannot be understood: %v", method, err)
	}
	p := c.processes.find(params.ProcessID)
	if p == nil {
		return nil // its start failed here, or it is forgotten
	}
	arrived := arrival{params.Seq, closedEvent()}
	switch {
	case params.Seq == 0:
		return protocolErrorf("the notification %s has the seq 0", method)
	case len(params.Chunk) > maxMessageOutput:
		return protocolErrorf("the notification %s has a chunk of %d bytes: %d are the limit", method, len(params.Chunk), maxMessageOutput)
	case method == "process/output":
		stream, err := p.streamOf(params.Stream)
		if err != nil {
			return err
		}
		arrived.event = outputEvent(stream, params.Chunk)
	case method == "process/exited":
		if params.ExitCode == nil {
			return protocolErrorf("process %.100q exited without an exit code", p.id)
		}
		arrived.event = exitedEvent(p.exitOf(params.ExitCode, params.SandboxDenied))
	}
	if p.pauseLink(l) {
		p.arrive(l, arrived)
	}
	return nil
}

var streams = map[string]execwirev1.OutputStream{
	"stdout": execwirev1.OutputStream_OUTPUT_STREAM_STDOUT,
	"stderr": execwirev1.OutputStream_OUTPUT_STREAM_STDERR,
	"pty":    execwirev1.OutputStream_OUTPUT_STREAM_TERMINAL,
}

// streamOf returns the stream with a name. A terminal has only one, whatever the server
// calls it.
func (p *process) streamOf(name string) (execwirev1.OutputStream, error) {
	stream, ok := streams[name]
	switch {
	case !ok:
		return 0, protocolErrorf("process %.100q has output of the unknown stream %.100q", p.id, name)
	case p.hasTerminal:
		return execwirev1.OutputStream_OUTPUT_STREAM_TERMINAL, nil
	}
	return stream, nil
}

// signalBase is what a server adds to the number of the signal that killed a process.
const signalBase = 128

// exitOf returns the exit record for an exit code. If this program terminated the
// process, the code may stand for SIGKILL; otherwise it is what the process passed to
// exit.
func (p *process) exitOf(code *int64, denied *bool) *execwirev1.ExitRecord {
	p.mu.Lock()
	killed := p.killed
	p.mu.Unlock()
	record := &execwirev1.ExitRecord{Cause: execwirev1.ExitCause_EXIT_CAUSE_EXITED, SandboxDenied: denied != nil && *denied}
	if killed {
		record.Cause = execwirev1.ExitCause_EXIT_CAUSE_TERMINATED
	}
	switch {
	case code == nil, *code < 0 && !killed, *code > 1<<31-1:
		record.Cause = execwirev1.ExitCause_EXIT_CAUSE_LOST
	case killed && (*code < 0 || *code == signalBase+int64(syscall.SIGKILL)):
		record.Status = &execwirev1.ExitRecord_Signal{Signal: execwirev1.Signal_SIGNAL_KILL}
	default:
		record.Status = &execwirev1.ExitRecord_ExitCode{ExitCode: int32(*code)}
	}
	return record
}

// pauseLink blocks while the owner, who may be about to resume, has a window of events to
// acknowledge: the protocol has no acknowledgements, so the link is not read from. If
// other requests or owners need the link, the pause is short, and there is none once this
// program has terminated the process, because it waits for the exit. Further events are
// then dropped and read later, as far as the server still has them. It returns false if
// the link was lost meanwhile: what is missing is read over the next one.
func (p *process) pauseLink(l *link) bool {
	for {
		p.mu.Lock()
		isFull := p.log.isFull() && !p.incoming.lagging && !p.killed
		changed := p.changed.Wait()
		p.mu.Unlock()
		if !isFull {
			return true
		}
		ctx, cancel := context.WithTimeoutCause(l.over, sharedPause, errPaused)
		err := awaitChange(ctx, l, changed)
		cancel()
		switch {
		case l.over.Err() != nil:
			return false
		case err != nil && (!l.isIdle() || p.conn.processes.hasOwnedBeside(p)):
			p.mu.Lock()
			p.incoming.lagging = true
			p.mu.Unlock()
		}
	}
}

var errPaused = errors.New("the link was paused for long enough")

// acknowledge drops the events that the owner has consumed. The caller holds mu.
func (p *process) acknowledge(number uint64) {
	p.log.evict(number)
	p.incoming.lagging = p.incoming.lagging && p.log.bytes > windowBytes/2
	p.changed.Notify()
}

// arrive adds an event to the log when those before it are there and the owner has
// acknowledged enough. The others are read later.
func (p *process) arrive(l *link, arrived arrival) {
	p.mu.Lock()
	defer p.mu.Unlock()
	in := &p.incoming
	in.announced = max(in.announced, arrived.seq)
	in.ended = in.ended || arrived.event.GetClosed() != nil
	if exited := arrived.event.GetExited(); exited != nil && in.exitSeq == 0 {
		in.exit, in.exitSeq = cmp.Or(in.exit, exited.GetExit()), arrived.seq
		arrived.event = exitedEvent(in.exit)
		p.changed.Notify()
	}
	switch {
	case arrived.seq <= in.received: // it was read
	case p.log.isFull(), in.bytes >= windowBytes: // it is read later
	case arrived.seq == in.received+1:
		in.received = arrived.seq
		p.append(arrived.event)
	default:
		at, known := slices.BinarySearchFunc(in.early, arrived.seq, func(a arrival, seq uint64) int { return cmp.Compare(a.seq, seq) })
		if !known {
			in.early = slices.Insert(in.early, at, arrived)
			in.bytes += costOf(arrived.event)
		}
	}
	p.takeEarly()
	if in.received < in.announced && in.recovery != l {
		in.recovery = l
		p.conn.tasks.Go(func() { p.recover(l, reorderTimeout) })
	}
}

// takeEarly adds the early events that follow the last one. The caller holds mu.
func (p *process) takeEarly() {
	in := &p.incoming
	for len(in.early) > 0 && in.early[0].seq <= in.received+1 {
		next := in.early[0]
		in.early, in.bytes = in.early[1:], in.bytes-costOf(next.event)
		if next.seq > in.received {
			in.received = next.seq
			p.append(next.event)
		}
	}
}

// startRecovery reads the events that came while there was no link.
func (p *process) startRecovery(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.started && !p.log.closed {
		p.incoming.recovery = l
		p.conn.tasks.Go(func() { p.recover(l, 0) })
	}
}

// recover reads the events that are still missing after a time; those after a lost link
// at once.
func (p *process) recover(l *link, wait time.Duration) {
	for ; backoff.Pause(l.over, wait); wait = reorderTimeout {
		p.mu.Lock()
		isDone := wait > 0 && p.incoming.received >= p.incoming.announced
		if isDone && p.incoming.recovery == l {
			p.incoming.recovery = nil
		}
		p.mu.Unlock()
		if isDone || !p.readMissing(l) {
			return
		}
	}
}
