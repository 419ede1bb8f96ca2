package client

import (
	"context"
	"time"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// send acknowledges, answers pings and detaches, until ctx is done or the
// stream breaks; why it broke, the receiver learns.
func (s *Session) send(ctx context.Context, stream sessionStream) {
	idle := time.NewTimer(acknowledgeIdle)
	idle.Stop()
	defer idle.Stop()
	for {
		var requests []*execwirev1.AttachSessionRequest
		select {
		case <-ctx.Done():
			return
		case nonce := <-s.pongs:
			requests = append(requests, &execwirev1.AttachSessionRequest{Message: &execwirev1.AttachSessionRequest_Pong{
				Pong: &execwirev1.SessionPong{Nonce: nonce}}})
		case <-s.feed.due:
			requests = s.feed.acknowledge(false)
		case <-s.feed.soon:
			idle.Reset(acknowledgeIdle)
		case <-idle.C:
			requests = s.feed.acknowledge(true)
		case <-s.leaving:
			requests = append(s.feed.acknowledge(true), &execwirev1.AttachSessionRequest{
				Message: &execwirev1.AttachSessionRequest_Detach{Detach: &execwirev1.SessionDetach{}}})
			sendAll(stream, requests)
			return
		}
		if !sendAll(stream, requests) {
			return
		}
	}
}

func sendAll(stream sessionStream, requests []*execwirev1.AttachSessionRequest) bool {
	for _, request := range requests {
		if stream.Send(request) != nil {
			return false
		}
	}
	return true
}
