package daemon

import "github.com/execwire/execwire/internal/listen"

const (
	// DefaultListenURL is the default listener for gRPC.
	DefaultListenURL = "grpc://127.0.0.1:7420"
	// DefaultWebsocketListenURL is the default listener for JSON-RPC.
	DefaultWebsocketListenURL = "ws://127.0.0.1:7421"
)

// ListenURL is the URL of a listener. It is comparable; [ParseListenURL] returns
// valid ones.
type ListenURL = listen.URL

// ListenURLError says by its Kind what is wrong with the URL of a listener and how to
// fix it, or why listening failed.
type ListenURLError = listen.Error

// The kinds of [ListenURLError].
const (
	// ListenURLMalformed: the URL cannot be parsed.
	ListenURLMalformed = listen.KindMalformed
	// ListenURLNotLoopback: other hosts could connect without TLS.
	ListenURLNotLoopback = listen.KindNotLoopback
	// ListenURLTooLong: the path does not fit into the address of a socket.
	ListenURLTooLong = listen.KindTooLong
)

// ParseListenURL parses a value of the setting listen: grpc://HOST:PORT on loopback,
// grpcs://HOST:PORT, unix:///PATH, ws://HOST:PORT, wss://HOST:PORT, stdio or off. The
// error is a [*ListenURLError].
func ParseListenURL(raw string) (ListenURL, error) { return listen.Parse(raw) }
