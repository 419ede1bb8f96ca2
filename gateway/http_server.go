package gateway

import (
	"log/slog"
	"net/http"
	"time"
)

// Limits of HTTP before a connection is a websocket.
const (
	// requestTimeout is how long a request may take to arrive, and its answer to
	// be sent.
	requestTimeout = 10 * time.Second
	// requestIdleTimeout is how long a connection may wait between two requests.
	requestIdleTimeout = 60 * time.Second
	// maxRequestHeader is the largest header of a request, in bytes.
	maxRequestHeader = 64 << 10
)

// NewHTTPServer returns a server for handler that nobody can hold up: headers
// are bounded in size and time. It speaks HTTP/1 only, as websockets do. The
// limits do not touch a connection that has become a websocket.
func NewHTTPServer(handler http.Handler, logger *slog.Logger) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler:           handler,
		Protocols:         &protocols,
		ReadHeaderTimeout: requestTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout,
		IdleTimeout:       requestIdleTimeout,
		MaxHeaderBytes:    maxRequestHeader,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
}
