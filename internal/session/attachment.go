package session

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/execwire/execwire/internal/eventlog"
)

// PingTimeout is how long an attached client has to answer a ping.
const PingTimeout = 2 * time.Second

// ErrDetached is what [Attachment.Next] returns after [Attachment.Lost].
var ErrDetached = errors.New("the attachment was given up")

// WhenDetached is the policy for output while no client is attached.
type WhenDetached uint8

// The policies.
const (
	// WhenDetachedUnchanged keeps the session's policy; that of a new session is to
	// block.
	WhenDetachedUnchanged WhenDetached = iota
	// WhenDetachedBlock blocks a process whose window is full.
	WhenDetachedBlock
	// WhenDetachedDiscardOldest evicts the oldest output; processes never block.
	WhenDetachedDiscardOldest
)

// AttachRequest is a request to attach to a session.
type AttachRequest struct {
	// SessionID is the session; empty creates one.
	SessionID string
	// AfterSeq are the client's cursors by process id. They count as acknowledged. A
	// process without a cursor continues after its last acknowledged event; ids
	// without a process are ignored.
	AfterSeq map[string]uint64
	// Grace is how long the session is kept after the attachment ended; 0 ends it at
	// once. Nil keeps the grace of the attachment before, or the default.
	Grace *time.Duration
	// WhenDetached is the policy while no client is attached.
	WhenDetached WhenDetached
	// MaxProcesses is how many processes of the session may run from now on. It only
	// lowers Config.ProcessesPerSession; 0 does not.
	MaxProcesses int
	// Ping sends a ping to the client, which [Attachment.Alive] answers. It must not
	// block and may be called from any goroutine. Nil cannot be pinged and never
	// answers.
	Ping func()
	// Borrow is called with the log of each process before its first event is read, for
	// example [eventlog.Owner.Borrow], which then limits how long the events of the
	// process are valid. Nil borrows nothing.
	Borrow func(*eventlog.Owner)
}

// Attachment is the lease of a session: it owns all processes of the session that no
// stream owns. Next is for one goroutine, all other methods for any. It must be ended
// with Lost, also after Next has failed.
type Attachment struct {
	session *Session
	holder  *holder
	resumed bool
}

// Delivery is the result of one Next: a batch or a release.
type Delivery struct {
	// Process is the process of the batch; nil for a release.
	Process *Process
	// Batch are events of the process; a gap, if any, precedes them. The slice is
	// valid until the next call of Next; the Data of its events for longer, unless it is
	// borrowed.
	Batch eventlog.Batch
	// Released is the id of a process that a stream owns, so that it is not in the
	// feed; empty for a batch. It is delivered when a stream takes the process, and
	// when the attachment begins. When the stream releases the process, it returns to
	// the feed after its last acknowledged event.
	Released string
}

// Session returns the session that was attached.
func (a *Attachment) Session() *Session { return a.session }

// Resumed reports whether the session existed before.
func (a *Attachment) Resumed() bool { return a.resumed }

// TookOver reports whether it took the session from another client that was attached.
func (a *Attachment) TookOver() bool { return a.holder.displaced }

// Next blocks until a process has events. Processes take turns: one that was served
// goes to the end of the queue. A batch has whole events of at most maxBytes of
// output, except that the first may be larger, and at most 64 KiB and 256 events,
// which is also what 0 means. Next does not acknowledge earlier batches. A process
// with a full window is skipped until it is acknowledged, without delaying others.
//
// It fails with kind [SessionTakenOver] or [SessionClosed] when that happened, with
// [Draining] after the registry was closed and the ends of all processes were
// delivered, with [ErrDetached] after Lost, and with the cause of ctx.
func (a *Attachment) Next(ctx context.Context, maxBytes int) (Delivery, error) {
	return a.holder.feed.next(ctx, maxBytes)
}

// Alive reports that the client has sent a message, which answers a ping.
func (a *Attachment) Alive() { a.session.lease.alive(a.holder) }

// Lost ends the attachment, because the connection was lost or because the client
// detaches. The session is kept for its grace. After a takeover or an earlier call it
// changes nothing.
func (a *Attachment) Lost() {
	a.session.lease.leave(a.holder)
	a.holder.feed.fail(ErrDetached)
}

// Acknowledge acknowledges all events of a process up to seq. It ignores a seq lower
// than before, and a process that does not exist or that this attachment does not
// own. A seq that the process has not reached is [eventlog.ErrFutureSeq]. It never
// blocks on a process or a reader.
func (a *Attachment) Acknowledge(processID string, seq uint64) error {
	it := a.holder.feed.item(processID)
	if it == nil {
		return nil
	}
	if err := it.log.Acknowledge(seq); err != nil {
		if isOwnershipLost(err) {
			return nil
		}
		return err
	}
	select {
	case <-it.process.Closed():
		a.session.lock()
		if it.process.owner.item == it {
			it.process.settle()
		}
		a.session.unlock()
	default:
	}
	return nil
}

// Attach attaches to a session of the principal, or to a new one. If a client is
// attached, Attach pings it and waits up to [PingTimeout] for the answer: kind
// [SessionAttached] if there is one, otherwise the attachment is taken over. Other
// kinds: [SessionNotFound], [SessionAccessDenied] for a session that was granted,
// [DefaultSession], [GraceTooLong], [TooManySessions], [TooManySessionsInAll],
// [Draining] for a new session; and [eventlog.ErrFutureSeq] for a cursor that its
// process has not reached. A failed Attach changes nothing.
func (r *Registry) Attach(ctx context.Context, principal string, req AttachRequest) (*Attachment, error) {
	if _, err := r.resolveGrace(req.SessionID, req.Grace); err != nil {
		return nil, err
	}
	if req.SessionID == DefaultID {
		return nil, &Error{Kind: DefaultSession, Subject: DefaultID}
	}
	s, err := r.toAttach(principal, req.SessionID)
	if err != nil {
		return nil, err
	}
	h := &holder{
		ping: req.Ping, grace: req.Grace, feed: newFeed(req.Borrow),
		afterSeq: req.AfterSeq, whenDetached: req.WhenDetached, maxProcesses: req.MaxProcesses,
	}
	h.check = func() error { return s.checkCursors(h.afterSeq) }
	if err := s.lease.attach(ctx, h); err != nil {
		if req.SessionID == "" {
			s.lease.close() // no client knows it
		}
		return nil, err
	}
	return &Attachment{session: s, holder: h, resumed: req.SessionID != ""}, nil
}

// toAttach finds the session or creates one.
func (r *Registry) toAttach(principal, id string) (*Session, error) {
	if id != "" {
		return r.Open(principal, id, AccessOwner)
	}
	s := r.makeSession(uuid.NewString(), principal)
	s.lease = s.newLease(r.cfg().DefaultGrace)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.draining || r.frozen != nil {
		return nil, &Error{Kind: Draining}
	}
	if most := r.cfg().SessionsPerPrincipal; most > 0 && r.counts[principal] >= most {
		return nil, &Error{Kind: TooManySessions, Subject: principal, Limit: int64(most)}
	}
	if most := r.cfg().SessionsTotal; most > 0 && int64(len(r.leased)) >= available(int64(most), int64(r.counts[principal]), 1) {
		return nil, &Error{Kind: TooManySessionsInAll, Limit: int64(most)}
	}
	r.leased[s.id] = s
	r.counts[principal]++
	return s, nil
}

// newLease returns a lease whose hooks are those of the session.
func (s *Session) newLease(grace time.Duration) *lease {
	return &lease{sessionID: s.id, grace: grace, hooks: leaseHooks{attached: s.onAttached, detached: s.onDetached, ended: s.end}}
}
