package gateway

import (
	"errors"
	"slices"

	"github.com/execwire/execwire/internal/jsonrpc"
)

// drain receives all remaining messages of a connection and waits for its end.
func (w *walker) drain(isWanted func(error) bool) {
	w.t.Helper()
	w.running.Wait()
	if err := <-w.served; !isWanted(err) {
		w.fail("Serve returned %v", err)
	}
	w.receiveBuffered()
}

// cut breaks the connection and makes another one. Requests in flight are
// abandoned.
func (w *walker) cut() {
	w.t.Helper()
	w.receiveBuffered()
	w.log = append(w.log, "-- cuts the connection")
	w.pipe.drop()
	w.drain(func(err error) bool { return errors.Is(err, errLost) })
	w.abandonRequests()
	for _, processes := range w.model.processes {
		for _, l := range processes {
			l.resumed, l.wasResumed = true, true
		}
	}
	w.connect()
}

// abandonRequests gives up all pending requests.
func (w *walker) abandonRequests() {
	for _, a := range w.model.pending {
		switch {
		case a.refusal != nil:
		case a.modelProcess != nil:
			w.abandonStart(a)
		case a.write != nil:
			a.write.lost = true
		}
		for _, l := range slices.Concat(a.candidates, a.laterStarts) {
			if slices.Contains(l.killRequests, a) {
				l.killLost = true
			}
		}
	}
	w.model.pending, w.model.errorsWithoutID = nil, 0
}

// abandonStart gives up a start whose response was lost. If another one under the
// same id was abandoned, the model does not distinguish their effects.
func (w *walker) abandonStart(a *walkRequest) {
	before, sure := w.model.target(a)
	switch {
	case before != nil && sure, a.modelProcess.fails:
		a.modelProcess.startState = startRefused
		return
	case before == nil && sure:
		a.modelProcess.startState = startUnknown
		return
	}
	for _, l := range a.candidates {
		l.startState = startRefused
	}
	a.modelProcess.startState, a.modelProcess.isAmbiguous = startUnknown, true
}

// closeNormally ends the connection, and the session with it, and makes another
// connection.
func (w *walker) closeNormally() {
	w.t.Helper()
	w.receiveBuffered()
	w.log = append(w.log, "-- closes normally")
	close(w.pipe.finished)
	w.drain(func(err error) bool { return err == nil })
	w.abandonRequests()
	ended := w.model.session
	w.model.session, w.model.processes = "", map[string][]*modelProcess{}
	w.connect()
	if ended != "" {
		w.initializeRefused(ended, jsonrpc.CodeInvalidRequest, "unknown session id "+ended)
	}
}
