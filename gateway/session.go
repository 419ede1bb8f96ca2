package gateway

import (
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// session is the attached session of a connection.
type session struct {
	id      string
	resumed bool // another connection had it before
	stream  grpc.BidiStreamingClient[execwirev1.AttachSessionRequest, execwirev1.AttachSessionResponse]
	// windowBytes and windowEvents are the window of a process.
	windowBytes, windowEvents uint64

	sending sync.Mutex // held while sending on stream

	// takenOver is set when another connection has attached the session; then this one
	// does not end it.
	takenOver atomic.Bool
}

// send sends on the stream. If it fails, the feed gets the reason.
func (s *session) send(m *execwirev1.AttachSessionRequest) {
	s.sending.Lock()
	defer s.sending.Unlock()
	_ = s.stream.Send(m)
}

// acknowledgement is for the server, of one process.
type acknowledgement struct {
	id  string
	seq uint64
}

// acknowledge sends acknowledgements to the server.
func (s *session) acknowledge(acks []acknowledgement) {
	for _, n := range acks {
		s.send(&execwirev1.AttachSessionRequest{Message: &execwirev1.AttachSessionRequest_Acknowledge{
			Acknowledge: &execwirev1.SessionAcknowledge{ProcessId: n.id, Seq: n.seq}}})
	}
}

// pong answers a ping of the server.
func (s *session) pong(nonce uint64) {
	s.send(&execwirev1.AttachSessionRequest{Message: &execwirev1.AttachSessionRequest_Pong{
		Pong: &execwirev1.SessionPong{Nonce: nonce}}})
}
