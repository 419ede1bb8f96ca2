package daemon

import (
	"context"
	"errors"

	"google.golang.org/grpc/peer"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/inproc"
	"github.com/execwire/execwire/internal/listen"
)

// errUnknownDoor means that a call came in by a way that says nothing about the
// caller. No listener of this daemon does that.
var errUnknownDoor = errors.New("the caller is not known: the call came in by a way that does not identify it")

// authenticate tells who calls from the door that the call came in by.
func authenticate(ctx context.Context) (auth.Principal, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return auth.Principal{}, errUnknownDoor
	}
	switch info := p.AuthInfo.(type) {
	case listen.PeerAuthInfo:
		return info.Peer.Principal(), nil
	case listen.LoopbackAuthInfo:
		return auth.Loopback, nil
	case inproc.AuthInfo:
		return auth.InProcess, nil
	default:
		return auth.Principal{}, errUnknownDoor
	}
}
