package session

import (
	"context"
	"errors"
	"log/slog"

	"github.com/execwire/execwire/internal/eventlog"
)

// spooler moves what a session's processes say into the spool, one batch of each
// in turn. It is the owner of their logs while nobody is attached: what is in the
// file is acknowledged, so that the processes can go on. When the file is full,
// or cannot be written, it stops, and processes block once their windows are used
// up.
type spooler struct {
	session *Session
	feed    *feed
	done    chan struct{} // closed when it writes no more
}

// startSpooler sets a spooler going after the one before has let go of the file.
// It returns nil when the registry closes. s.mu is held.
func (s *Session) startSpooler() *spooler {
	sp := &spooler{session: s, feed: newFeed(), done: make(chan struct{})}
	before := s.spooler
	running := s.registry.background(func() {
		defer close(sp.done)
		if before != nil {
			<-before.done
		}
		if err := sp.run(); err != nil {
			s.registry.cfg.Logger.Warn("stopped to spool: processes block instead",
				slog.String("session_id", s.id), slog.String("error", err.Error()))
		}
	})
	if !running {
		return nil
	}
	return sp
}

// run spools until the feed ends. An error is of the file.
func (sp *spooler) run() error {
	var buf []byte
	for {
		it, batch, err := sp.feed.take(context.Background(), 0)
		if err != nil {
			return nil // somebody attached, or the session ended
		}
		if len(batch.Events) == 0 {
			continue // a stream took the process
		}
		buf = appendBatch(buf[:0], batch)
		if err := sp.put(it.cursor, buf, batch); err != nil {
			return sp.unless(err)
		}
	}
}

// unless returns err, but nil if the feed has ended: then the file may be closed.
func (sp *spooler) unless(err error) error {
	select {
	case <-sp.feed.ended:
		return nil
	default:
		return err
	}
}

// put appends a batch, waiting for room if there is none. Only errors of the
// file are returned.
func (sp *spooler) put(c *cursor, encoded []byte, batch eventlog.Batch) error {
	bytes := uint64(0)
	for _, e := range batch.Events {
		bytes += uint64(len(e.Data))
	}
	lastSeq := batch.Events[len(batch.Events)-1].Seq
	for {
		err := c.spooling.append(c, encoded, lastSeq, bytes)
		switch {
		case err == nil, errors.Is(err, errSpoolSealed):
			return nil
		case !errors.Is(err, errSpoolFull):
			return err
		}
		select {
		case <-c.spooling.spool.room:
		case <-sp.feed.ended:
			return nil
		}
	}
}
