package gateway

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/gateway/jsonrpc"
)

// coreStreams are the streams of the core that a connection has open. They end with
// it. The zero value is ready.
type coreStreams struct {
	order fileOrder // of calls on the same stream

	mu    sync.Mutex
	byID  map[string]*coreStream   // guarded by mu
	asked map[*coreStream]struct{} // guarded by mu; whose turn to be opened has not come
}

// coreStream is one of them. Calls on it follow each other, but for the end.
type coreStream struct {
	id     string
	method *coreMethod
	leave  func() // gives back what it takes of a limit, once; nil for nothing

	over   bool                    // guarded by mu of all; it was ended
	cancel context.CancelCauseFunc // guarded by mu of all; nil until it is open
	stream grpc.ClientStream       // guarded by mu of all until it is open; nil until then

	failed error // what is to be told when it is received next
}

// streamCall is a call on a stream, which must not overtake those before.
type streamCall interface {
	call
	streamID() string
}

// ask notes that a stream is asked for. It is called in the order in which requests
// came.
func (s *coreStreams) ask(id string, method *coreMethod) *coreStream {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked == nil {
		s.asked = make(map[*coreStream]struct{})
	}
	asked := &coreStream{id: id, method: method}
	s.asked[asked] = struct{}{}
	return asked
}

// cancel ends the streams with an id that were asked for up to now, those among them
// that are not open yet.
func (s *coreStreams) cancel(id string) {
	var found []*coreStream
	s.mu.Lock()
	if open := s.byID[id]; open != nil {
		found = append(found, open)
	}
	for asked := range s.asked {
		if asked.id == id {
			found = append(found, asked)
		}
	}
	s.mu.Unlock()
	for _, one := range found {
		s.end(one, errStreamCancelled)
	}
}

// reserve takes the id for a stream whose turn to be opened has come. not wanted is
// one that was cancelled before.
func (s *coreStreams) reserve(asked *coreStream) (wanted bool, failed *jsonrpc.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.asked, asked)
	switch {
	case asked.over:
		return false, nil
	case s.byID[asked.id] != nil:
		return false, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "stream `%s` already exists", shorten(asked.id))
	case len(s.byID) >= maxStreams:
		return false, &jsonrpc.Error{Code: jsonrpc.CodeLimitReached, Message: fmt.Sprintf("at most %d streams may be open per connection", maxStreams),
			Data: map[string]any{"limit": maxStreams, retryMember: retryWhenFull.Milliseconds()}}
	case s.byID == nil:
		s.byID = make(map[string]*coreStream)
	}
	s.byID[asked.id] = asked
	return true, nil
}

func (s *coreStreams) find(id string) (*coreStream, *jsonrpc.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.byID[id]; found != nil && found.stream != nil {
		return found, nil
	}
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeNotFound, Message: "unknown stream `" + shorten(id) + "`", Data: map[string]string{"reason": "STREAM_NOT_FOUND"}}
}

// end ends a stream and gives its id back.
func (s *coreStreams) end(old *coreStream, why error) {
	s.mu.Lock()
	old.over = true
	delete(s.asked, old)
	if s.byID[old.id] == old {
		delete(s.byID, old.id)
	}
	cancel := old.cancel
	s.mu.Unlock()
	if cancel != nil {
		cancel(why)
	}
	if old.leave != nil {
		old.leave()
	}
}

// began notes what a stream that was reserved is, unless it was cancelled meanwhile.
func (s *coreStreams) began(opened *coreStream, stream grpc.ClientStream, cancel context.CancelCauseFunc) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	opened.stream, opened.cancel = stream, cancel
	return !opened.over
}
