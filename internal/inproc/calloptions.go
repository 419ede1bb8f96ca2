package inproc

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// credentialsOf returns the credentials given for one call; the last wins.
// What they may demand of the transport, this one has.
func credentialsOf(opts []grpc.CallOption) credentials.PerRPCCredentials {
	var creds credentials.PerRPCCredentials
	for _, o := range opts {
		if o, ok := o.(grpc.PerRPCCredsCallOption); ok {
			creds = o.Creds
		}
	}
	return creds
}

// fillOptions stores what the caller asked to know after the call.
func (cs *clientStream) fillOptions() {
	for _, o := range cs.opts {
		switch o := o.(type) {
		case grpc.HeaderCallOption:
			*o.HeaderAddr, _ = cs.call.clientHeader()
		case grpc.TrailerCallOption:
			*o.TrailerAddr = cs.call.clientTrailer()
		case grpc.PeerCallOption:
			if p, ok := peer.FromContext(cs.ctx); ok {
				*o.PeerAddr = *p
			}
		}
	}
}

// callOnFinish tells the caller's callbacks how the call ended.
func callOnFinish(opts []grpc.CallOption, err error) {
	for _, o := range opts {
		if o, ok := o.(grpc.OnFinishCallOption); ok {
			o.OnFinish(err)
		}
	}
}
