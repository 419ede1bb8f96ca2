package session

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/execwire/execwire/internal/eventlog"
)

// AnswerTime is how long an attached client has to answer, once somebody else
// wants its session.
const AnswerTime = 2 * time.Second

// ErrDetached is what [Attachment.Next] returns after [Attachment.Lost] or
// [Attachment.Detach].
var ErrDetached = errors.New("the attachment was given up")

// WhenDetached says what happens to the output of a session's processes while
// nobody is attached.
type WhenDetached uint8

// The policies.
const (
	// WhenDetachedUnchanged leaves the session's policy as it is; a new
	// session's is to block.
	WhenDetachedUnchanged WhenDetached = iota
	// WhenDetachedBlock has a process block whose window is used up.
	WhenDetachedBlock
	// WhenDetachedDiscardOldest lets the oldest output go; processes never
	// block.
	WhenDetachedDiscardOldest
	// WhenDetachedSpool puts output into a file, up to Config.SpoolBytes, and
	// blocks beyond that.
	WhenDetachedSpool
)

// AttachRequest asks for the lease of a session.
type AttachRequest struct {
	// SessionID is the session; empty asks for a new one.
	SessionID string
	// AfterSeq is what the client has taken of each process, by id. It counts
	// as acknowledged. A process that is not in it goes on after what was last
	// acknowledged; an id that no process has is ignored.
	AfterSeq map[string]uint64
	// Grace is how long the session is kept after the attachment ended; 0 ends
	// it at once. Nil is what the attachment before had, or the default.
	Grace *time.Duration
	// WhenDetached is the policy for the time without an attachment.
	WhenDetached WhenDetached
	// MaxProcesses is how many processes of the session may run from now on. It
	// lowers Config.ProcessesPerSession; 0 does not.
	MaxProcesses int
	// Ping asks this client whether it is there, which [Attachment.Alive]
	// answers. It must not block and may be called from any goroutine. Nil
	// cannot be asked and so never answers.
	Ping func()
}

// Attachment is the lease of a session: the right to pace all processes of it
// that no stream owns, and to lose nothing of them. Next is for one goroutine,
// everything else for any. It must be ended with Lost or Detach, also after
// Next has failed.
type Attachment struct {
	session *Session
	holder  *holder
	feed    *feed
	resumed bool
}

// Delivery is what one Next returns: either a batch or a release.
type Delivery struct {
	// Process is whose batch this is; nil if it is a release.
	Process *Process
	// Batch is what the process said; a gap, if any, precedes the events. The
	// slice is valid until the next Next; the Data of its events for longer.
	Batch eventlog.Batch
	// Released is the id of a process that is not in the feed because a stream owns
	// it; empty if this is a batch. When the stream gives the process up it comes
	// back, with events from what was acknowledged last. It is said when a stream
	// takes a process, and of all that streams have when the attachment begins.
	Released string
}

// Session returns the session that was attached.
func (a *Attachment) Session() *Session { return a.session }

// Resumed reports whether the session was there before.
func (a *Attachment) Resumed() bool { return a.resumed }

// Next blocks until a process has something to say. Every process that has gets
// its turn: whoever was served goes to the end of the queue. A batch has whole
// events of at most maxBytes of output, except that the first may be larger,
// and never more than 64 KiB and 256 events, which is also what 0 means. It does
// not acknowledge what earlier calls returned; a process of which a window is
// unacknowledged says nothing more, and stops no other.
//
// It fails with kind [SessionTakenOver] or [SessionClosed] when that happened,
// with [Draining] when the registry was closed and the ends of all processes
// were delivered, with [ErrDetached] after the attachment was given up, and with
// the cause of ctx.
func (a *Attachment) Next(ctx context.Context, maxBytes int) (Delivery, error) {
	return a.feed.next(ctx, maxBytes)
}

// Alive says that the client was heard, which answers a ping.
func (a *Attachment) Alive() { a.session.lease.alive(a.holder) }

// Lost says that the connection broke. The session is kept for its grace. After
// a takeover, or when it was said before, it changes nothing.
func (a *Attachment) Lost() { a.leave() }

// Detach gives the attachment up because the client asked for it. What happens
// is the same as when the connection breaks.
func (a *Attachment) Detach() { a.leave() }

func (a *Attachment) leave() {
	s := a.session
	s.lease.leave(a.holder)
	a.feed.fail(ErrDetached)
	s.mu.Lock()
	last := s.reading
	s.mu.Unlock()
	if last { // the registry has closed
		s.closeSpool()
	}
}

// Acknowledge says that everything of a process up to seq was taken. A lower
// seq than before changes nothing, and so does a process that this attachment
// does not own or that does not exist. A seq that the process has not reached is
// [eventlog.ErrFutureSeq]. It never blocks on a process or a reader.
func (a *Attachment) Acknowledge(processID string, seq uint64) error {
	it := a.feed.item(processID)
	if it == nil {
		return nil
	}
	if err := it.cursor.acknowledge(seq); err != nil {
		if isDismissed(err) {
			return nil
		}
		return err
	}
	select {
	case <-it.process.Closed():
		a.session.lock()
		if it.process.owner.item == it {
			a.session.settle(it.process)
		}
		a.session.unlock()
	default:
	}
	return nil
}

// Attach leases a session of the principal, or a new one. If somebody is
// attached already it asks that one and waits up to [AnswerTime] for the answer:
// kind [SessionAttached] if there is one, and without one the attachment is
// taken over. Other kinds: [SessionNotFound], [SessionAccessDenied] for one that
// was granted, [DefaultSession], [GraceTooLong], [TooManySessions],
// [TooManySessionsInAll], [SpoolUnavailable], [Draining] for a new session; and
// [eventlog.ErrFutureSeq] for a cursor that its process has not reached. A
// refusal changes nothing.
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
	h, err := s.newHolder(&req)
	if err == nil {
		err = s.lease.attach(ctx, h)
	}
	if h != nil && h.request.spool != nil { // there was one already, or nothing came of it
		h.request.spool.close()
	}
	if err != nil {
		if req.SessionID == "" {
			s.lease.close() // nobody knows of it
		}
		return nil, err
	}
	return &Attachment{session: s, holder: h, feed: h.feed, resumed: req.SessionID != ""}, nil
}

// toAttach finds the session or makes a new one.
func (r *Registry) toAttach(principal, id string) (*Session, error) {
	if id != "" {
		return r.OpenFor(principal, id, AccessOwner)
	}
	s := r.makeSession(uuid.NewString(), principal)
	s.lease = &lease{sessionID: s.id, grace: r.cfg.DefaultGrace,
		hooks: leaseHooks{attached: s.onAttached, detached: s.onDetached, ended: s.end}}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.draining {
		return nil, &Error{Kind: Draining}
	}
	if most := r.cfg.SessionsPerPrincipal; most > 0 && r.counts[principal] >= most {
		return nil, &Error{Kind: TooManySessions, Subject: principal, Limit: int64(most)}
	}
	if most := r.cfg.SessionsTotal; most > 0 && int64(len(r.leased)) >= available(int64(most), int64(r.counts[principal]), 1) {
		return nil, &Error{Kind: TooManySessionsInAll, Limit: int64(most)}
	}
	r.leased[s.id] = s
	r.counts[principal]++
	return s, nil
}

// newHolder prepares what an attachment needs. The file for a spool is made here,
// because it takes time and may fail.
func (s *Session) newHolder(req *AttachRequest) (*holder, error) {
	a := &attaching{afterSeq: req.AfterSeq, whenDetached: req.WhenDetached, maxProcesses: req.MaxProcesses}
	h := &holder{ping: req.Ping, grace: req.Grace, feed: newFeed(), request: a}
	h.admit = func() error { return s.admit(a) }
	s.mu.Lock()
	has := s.spool != nil
	s.mu.Unlock()
	if cfg := s.registry.cfg; a.whenDetached == WhenDetachedSpool && !has && cfg.SpoolBytes > 0 {
		sp, err := newSpool(cfg.SpoolDirectory, cfg.SpoolBytes, s.registry.background)
		if err != nil {
			s.registry.cfg.Logger.Warn("failed to make a file to spool to", slog.String("error", err.Error()))
			return nil, &Error{Kind: SpoolUnavailable, Subject: s.id} // where files are is not the client's business
		}
		a.spool = sp
	}
	return h, nil
}
