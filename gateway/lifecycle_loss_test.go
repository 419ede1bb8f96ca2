package gateway

import (
	"errors"
	"slices"

	"github.com/execwire/execwire/internal/jsonrpc"
)

// reap takes all that a connection still tells, and waits until it is over.
func (w *walker) reap(isWanted func(error) bool) {
	w.t.Helper()
	w.running.Wait()
	if err := <-w.served; !isWanted(err) {
		w.fail("Serve returned %v", err)
	}
	w.takeAll()
}

// cut breaks the connection and makes another one. What was not answered is in
// doubt.
func (w *walker) cut() {
	w.t.Helper()
	w.takeAll()
	w.log = append(w.log, "-- is cut off")
	w.pipe.drop()
	w.reap(func(err error) bool { return errors.Is(err, errLost) })
	w.doubt()
	for _, lives := range w.model.lives {
		for _, l := range lives {
			l.resumed, l.wasResumed = true, true
		}
	}
	w.connect()
}

// doubt gives up what is not answered.
func (w *walker) doubt() {
	for _, a := range w.model.pending {
		switch {
		case a.refusal != nil:
		case a.life != nil:
			w.doubtStart(a)
		case a.write != nil:
			a.write.lost = true
		}
		for _, l := range slices.Concat(a.about, a.later) {
			if slices.Contains(l.killers, a) {
				l.loose = true
			}
		}
	}
	w.model.pending, w.model.noIDs = nil, 0
}

// doubtStart gives up a start whose answer was lost. If another one under the same
// name is in doubt, the model does not go into what each of them would mean.
func (w *walker) doubtStart(a *asked) {
	before, sure := w.model.target(a)
	switch {
	case before != nil && sure, a.life.fails:
		a.life.certainty = refused
		return
	case before == nil && sure:
		a.life.certainty = doubted
		return
	}
	for _, l := range a.about {
		l.certainty = refused
	}
	a.life.certainty, a.life.isVague = doubted, true
}

// leave ends the connection, and the session with it, and makes another one.
func (w *walker) leave() {
	w.t.Helper()
	w.takeAll()
	w.log = append(w.log, "-- leaves")
	close(w.pipe.finished)
	w.reap(func(err error) bool { return err == nil })
	w.doubt()
	ended := w.model.session
	w.model.session, w.model.lives = "", map[string][]*life{}
	w.connect()
	if ended != "" {
		w.initializeRefused(ended, jsonrpc.CodeInvalidRequest, "unknown session id "+ended)
	}
}
