package eventlog

import "context"

// Owner is the cursor of the one that the output is for. It paces: events that
// it has not acknowledged stay, and writers block rather than have more than a
// window unacknowledged. Next and TryNext are used by one goroutine at a time;
// the other methods may be called from any. An owner ends with Release.
type Owner struct {
	log    *Log
	reader *Reader
}

// Own takes ownership, starting after the event afterSeq, which counts as
// acknowledged. Events after it that were evicted before are reported as a gap.
// The previous owner, if any, gets ErrReplaced from then on. When more than a
// window is unacknowledged already, writers wait until it is not. Own returns
// ErrFutureSeq when no event has that seq yet, and ErrTooManyReaders when more
// than MaxReaders owners were replaced and did neither call Next nor Release
// since.
func (l *Log) Own(afterSeq uint64) (*Owner, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.own(afterSeq)
}

// OwnAcknowledged is Own after what was acknowledged last, which nobody can
// change in between.
func (l *Log) OwnAcknowledged() (*Owner, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.own(l.acked.next - 1)
}

func (l *Log) own(afterSeq uint64) (*Owner, error) {
	if afterSeq > l.lastSeq() {
		return nil, errFuture(afterSeq, l.lastSeq())
	}
	if l.owners > l.limits.MaxReaders {
		return nil, ErrTooManyReaders
	}
	if l.owner != nil {
		l.owner.reader.failed = ErrReplaced
	}
	l.owners++
	l.owner = &Owner{log: l, reader: l.cursor(afterSeq, true)}
	l.held = false
	l.startWindow(l.owner.reader.pos)
	l.settle()
	return l.owner, nil
}

// Next is like Reader.Next. It does not acknowledge what earlier calls
// returned. When the ownership ended otherwise than by Release, it returns
// ErrReplaced or ErrFreed, even if events are there.
func (o *Owner) Next(ctx context.Context, maxBytes int) (Batch, error) {
	return o.reader.Next(ctx, maxBytes)
}

// TryNext is Next without blocking: it returns false when nothing is there.
func (o *Owner) TryNext(maxBytes int) (Batch, bool, error) {
	return o.reader.TryNext(maxBytes)
}

// Rewind has the owner go on after afterSeq as if it had taken the ownership anew:
// what follows it is not acknowledged, and what is not retained any more is
// reported as a gap. It is for the goroutine that calls Next. One that is not the
// owner any more gets the error of Acknowledge.
func (o *Owner) Rewind(afterSeq uint64) error {
	l := o.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owner != o {
		return o.reader.failed
	}
	if afterSeq > l.lastSeq() {
		return errFuture(afterSeq, l.lastSeq())
	}
	o.reader.pos = l.after(afterSeq)
	l.startWindow(o.reader.pos)
	l.settle()
	return nil
}

// Notify is like Reader.Notify.
func (o *Owner) Notify(told func()) { o.reader.Notify(told) }

// Acknowledge says that everything up to and including seq was taken, whether
// Next returned it or not. A lower seq than before is ignored. It returns
// ErrFutureSeq when no event has that seq yet. An owner that is not the owner
// any more changes nothing and gets ErrReplaced, ErrFreed or ErrClosed.
func (o *Owner) Acknowledge(seq uint64) error {
	l := o.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owner != o {
		return o.reader.failed
	}
	if seq > l.lastSeq() {
		return errFuture(seq, l.lastSeq())
	}
	if seq >= l.acked.next {
		l.acknowledge(l.after(seq))
		l.settle()
	}
	return nil
}

// Release ends the ownership and the cursor; a pending Next returns ErrClosed.
// With hold everything unacknowledged stays and writers still wait at the end
// of the window, until Own or Free. Without, the log is free: the oldest output
// goes and writers never wait. After a replacement, and when called again, it
// changes nothing in the log.
func (o *Owner) Release(hold bool) {
	l := o.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owner == o {
		o.reader.failed = ErrClosed
		l.owner = nil
		l.held = hold
		if !hold {
			l.stopWindow()
		}
	}
	o.reader.detach()
	l.settle()
}

// Free ends a hold or an ownership, whose Next then returns ErrFreed: the
// oldest output goes and writers never wait. Otherwise it does nothing.
func (l *Log) Free() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owner != nil {
		l.owner.reader.failed = ErrFreed
		l.owner = nil
	}
	l.held = false
	l.stopWindow()
	l.settle()
}
