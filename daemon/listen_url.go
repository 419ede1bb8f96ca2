package daemon

import "github.com/execwire/execwire/internal/listen"

// DefaultListenURL is the default listener of a server, for all protocols.
const DefaultListenURL = "tcp://127.0.0.1:7420"

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

// ParseListenURL parses a value of the setting listen: tcp://HOST:PORT on loopback,
// tls://HOST:PORT or unix:///PATH for all protocols; grpc://HOST:PORT on loopback,
// grpcs://HOST:PORT, ws://HOST:PORT or wss://HOST:PORT for one; stdio or off. The error
// is a [*ListenURLError].
func ParseListenURL(raw string) (ListenURL, error) { return listen.Parse(raw) }
