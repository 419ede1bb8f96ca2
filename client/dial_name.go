package client

import "google.golang.org/grpc"

// WithName tells servers what program this is, for their logs: as the clientName of
// the exec-server protocol, and in the user agent of gRPC. Empty is execwire.
func WithName(name string) Option {
	return func(c *dialConfig) { c.name = name }
}

// nameOptions are those of gRPC for the name.
func (c *dialConfig) nameOptions() []grpc.DialOption {
	if c.name == "" {
		return nil
	}
	return []grpc.DialOption{grpc.WithUserAgent(c.name)}
}
