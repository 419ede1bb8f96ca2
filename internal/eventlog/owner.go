package eventlog

// Owner is the cursor of the owner. It paces: unacknowledged events are not evicted,
// and writers block when a window is unacknowledged. Acknowledge and Release may be
// called from any goroutine. An owner ends with Release.
type Owner struct{ cursor }

// Own takes the ownership and starts after the event afterSeq, which counts as
// acknowledged. Later events that were evicted are reported as a gap. The previous
// owner, if any, gets ErrReplaced from then on. If more than a window is
// unacknowledged, writers wait. Own returns ErrFutureSeq when no event has that seq
// yet, and ErrTooManyReaders when more than MaxReaders owners were replaced and have
// called neither Next nor Release since.
func (l *Log) Own(afterSeq uint64) (*Owner, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.own(afterSeq)
}

// OwnAcknowledged is Own after the last acknowledged event.
func (l *Log) OwnAcknowledged() (*Owner, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.own(l.window.acked.next - 1)
}

func (l *Log) own(afterSeq uint64) (*Owner, error) {
	if afterSeq > l.lastSeq() {
		return nil, errFuture(afterSeq, l.lastSeq())
	}
	if l.owners > l.limits.MaxReaders {
		return nil, ErrTooManyReaders
	}
	if l.owner != nil {
		l.owner.failed = ErrReplaced
	}
	l.owners++
	l.owner = &Owner{cursor{owns: true}}
	l.owner.begin(l, afterSeq)
	l.window.start(l.owner.pos)
	l.settle()
	return l.owner, nil
}

// BorrowUntilAcknowledged is Borrow, but the Data of an event is valid until the event is
// acknowledged, or for as long as it is referenced if the ownership ends before, by whatever:
// what is unacknowledged is retained in any case. Data of events that were acknowledged before
// Next returned them is not borrowed.
func (o *Owner) BorrowUntilAcknowledged() {
	o.log.mu.Lock()
	defer o.log.mu.Unlock()
	if o.log.owner == o {
		o.holds, o.log.window.lent = true, true
	}
}

// Acknowledge acknowledges all events up to and including seq, whether Next returned
// them or not. It ignores a lower seq than before. It returns ErrFutureSeq when no
// event has that seq yet. After the ownership has ended, it changes nothing; after a
// replacement it returns ErrReplaced, and after Release ErrClosed.
func (o *Owner) Acknowledge(seq uint64) error {
	l := o.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owner != o {
		return o.failed
	}
	if seq > l.lastSeq() {
		return errFuture(seq, l.lastSeq())
	}
	if l.window.paced && seq >= l.window.acked.next {
		l.window.acknowledge(l.after(seq))
		l.settle()
	}
	return nil
}

// Release ends the ownership and the cursor; a pending Next returns ErrClosed. With
// hold, unacknowledged events are kept and writers block at the end of the window,
// until Own or Free. Without, the log is free: the oldest output is evicted and
// writers never block. After a replacement or an earlier call, it changes nothing in
// the log, and after Free hold has no effect.
func (o *Owner) Release(hold bool) {
	l := o.log
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owner == o {
		o.failed = ErrClosed
		l.owner = nil
		if !hold {
			l.window.stop()
		}
	}
	o.detach()
	l.settle()
}

// Free ends a hold or an ownership: the oldest output is evicted and writers never
// block. The cursor of the owner continues like that of an observer, until another
// owner replaces it. Otherwise Free does nothing.
func (l *Log) Free() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.window.stop()
	l.settle()
}
