package client

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/execwire/execwire/client/execserver"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/backoff"
)

const (
	// assumedGrace is how long a server is taken to keep a process when nobody
	// said: the documented default.
	assumedGrace = 30 * time.Second
	// graceMargin is how much later than this client the server may notice that
	// the connection is gone: its own keepalive, and a little more.
	graceMargin = keepaliveInterval + keepaliveTimeout + 5*time.Second
	// oddFailures is how many failures in a row are retried that something
	// between client and server made up and that are not plain unavailability.
	oddFailures = 5
	// repeatWithin is for how long after its first sending a start that was not
	// answered may be repeated. The first may have run a short process of which
	// the server keeps a record, by which it knows a repetition, for 30 seconds:
	// the documented default of its closed_process_retention. Later than that
	// the repetition would run the command again; the rest is for its way there.
	repeatWithin = 25 * time.Second
)

// link is what a run knows about its connection to the process.
type link struct {
	// sentAt is when the start was first sent, and so may have reached the
	// server; zero before.
	sentAt time.Time
	// started is whether the server said that the process runs.
	started bool
	// instance is the run of the server that has said so, empty if it did not tell.
	instance string
	// lostAt is when the connection was lost, and lost why the last attempt
	// failed; zero while there is one.
	lostAt time.Time
	lost   error
	// odd counts failures without news in between.
	odd     int
	resumed int
	backoff backoff.Backoff
}

// follow runs streams one after the other until the process has closed, which
// is nil, or cannot be followed any more.
func (r *run) follow(ctx context.Context) error {
	for {
		err := r.attempt(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return r.giveUp(r.hopeless(context.Cause(ctx)))
		}
		if hopeless := r.hopeless(err); hopeless != nil {
			return r.giveUp(hopeless)
		}
		r.lose(err)
		if !r.link.backoff.Wait(ctx, retryAfter(err)) {
			return r.giveUp(r.hopeless(context.Cause(ctx)))
		}
	}
}

// hopeless returns what Run fails with when there is no use in another stream
// after err, or nil.
func (r *run) hopeless(err error) error {
	e, ok := err.(*Error) // not errors.As: what a writer returned is no answer
	switch {
	case !ok && r.link.sent() && errors.As(err, new(*ConnectionLostError)):
		return r.lostError(err)
	case !ok || !r.link.sent():
		return err
	case (r.link.started || r.found && !r.link.lostAt.IsZero()) && (e.Reason == execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND ||
		e.Reason == execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND):
		return r.lostError(err)
	case !r.link.started && r.link.lostAt.IsZero() && (e.Reason == execwirev1.ErrorReason_ERROR_REASON_DRAINING ||
		e.Reason == execwirev1.ErrorReason_ERROR_REASON_SANDBOX_NOT_STARTED):
		return err
	case !transient(e, &r.link.odd):
		return err
	case r.graceIsOver(), r.repeatIsLate():
		return r.lostError(err)
	}
	return nil
}

// transient reports whether e may be gone with the next stream. odd counts the
// failures that only patience tells from final ones. A connection that gave its place
// to another principal is a lost one.
func transient(e *Error, odd *int) bool {
	if e.Code == codes.Unavailable || e.Reason == execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_CONNECTIONS {
		return true
	}
	if e.fromServer {
		return false
	}
	switch e.Code {
	case codes.Canceled, codes.Unknown, codes.Internal, codes.Aborted, codes.DeadlineExceeded:
		*odd++
		return *odd <= oddFailures
	}
	return false
}

// graceIsOver reports whether the server has certainly given the process up.
func (r *run) graceIsOver() bool {
	if r.options.Grace != nil && *r.options.Grace <= 0 {
		return true
	}
	return !r.link.lostAt.IsZero() && time.Since(r.link.lostAt) > r.grace()+graceMargin
}

func (r *run) grace() time.Duration {
	if r.options.Grace != nil {
		return *r.options.Grace
	}
	return assumedGrace
}

// repeatIsLate reports whether sending the start, which was never answered,
// once more could run the command once more.
func (r *run) repeatIsLate() bool {
	return !r.link.started && !r.found && r.link.sent() && time.Since(r.link.sentAt) > repeatWithin
}

// isRestarted reports whether err is the answer of another run of the server than the
// one with the instance id; an empty one is not known.
func isRestarted(instance string, err error) bool {
	var ended *execserver.LostError
	if errors.As(err, &ended) {
		return ended.Restarted
	}
	var e *Error
	if instance == "" || !errors.As(err, &e) {
		return false
	}
	answered := e.Metadata["instance_id"]
	return answered != "" && answered != instance
}

func (l *link) sent() bool { return !l.sentAt.IsZero() }

// lose notes that the connection is lost, and reports it if that is news.
func (r *run) lose(err error) {
	r.link.lost = err
	if !r.link.lostAt.IsZero() {
		return
	}
	r.link.lostAt = lostAt(err)
	if r.options.OnLost != nil {
		r.options.OnLost(err)
	}
}

// regain notes that the process is owned, again or for the first time.
func (r *run) regain(process *execwirev1.Process) {
	first := !r.link.started
	r.link.started = true
	r.settle()
	if !r.link.lostAt.IsZero() {
		r.link.lostAt, r.link.lost = time.Time{}, nil
		r.link.resumed++
		if r.options.OnResumed != nil {
			r.options.OnResumed()
		}
	}
	if first && r.options.OnStarted != nil {
		r.options.OnStarted(process)
	}
}

// progress notes that the connection is worth something.
func (r *run) progress() {
	r.link.odd = 0
	r.link.backoff.Reset()
}

func (r *run) lostError(err error) *LostError {
	lost := time.Duration(0)
	if !r.link.lostAt.IsZero() {
		lost = time.Since(r.link.lostAt)
	}
	return &LostError{
		ProcessID: r.start.GetProcess().GetProcessId(),
		Started:   r.link.started || r.found,
		Exit:      r.events.exit,
		LastSeq:   r.events.last,
		Lost:      lost,
		Restarted: isRestarted(r.link.instance, err),
		Err:       err,
	}
}

func retryAfter(err error) time.Duration {
	var e *Error
	if errors.As(err, &e) {
		return min(e.RetryAfter, backoff.DefaultMost)
	}
	return 0
}
