package daemon

import "github.com/execwire/execwire/internal/listen"

const (
	// DefaultListenURL is where a daemon accepts clients of gRPC if it is not told
	// where.
	DefaultListenURL = "grpc://127.0.0.1:7420"
	// DefaultWebsocketListenURL is where it then accepts those of JSON-RPC.
	DefaultWebsocketListenURL = "ws://127.0.0.1:7421"
)

// ListenURL says where clients are accepted. It is comparable; [ParseListenURL]
// makes valid ones.
type ListenURL = listen.URL

// ListenURLError says what is wrong with a URL to listen at, by its Kind, and what
// to do; or what is in the way of listening there.
type ListenURLError = listen.Error

// What can be wrong with a URL, in [ListenURLError].
const (
	// ListenURLMalformed is a URL that cannot be read.
	ListenURLMalformed = listen.KindMalformed
	// ListenURLNotLoopback is one without TLS that other hosts could reach.
	ListenURLNotLoopback = listen.KindNotLoopback
	// ListenURLTooLong is a path that does not fit into the address of a socket.
	ListenURLTooLong = listen.KindTooLong
)

// ParseListenURL reads what the setting listen has: grpc://HOST:PORT on loopback,
// grpcs://HOST:PORT, unix:///PATH, ws://HOST:PORT, wss://HOST:PORT, stdio or off. The
// error is a [*ListenURLError].
func ParseListenURL(raw string) (ListenURL, error) { return listen.Parse(raw) }
