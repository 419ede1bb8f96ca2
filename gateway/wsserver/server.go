package wsserver

import (
	"log/slog"
	"net/http"
	"time"
)

// Limits of HTTP before a connection becomes a websocket.
const (
	// requestIdleTimeout bounds the time between requests.
	requestIdleTimeout = 60 * time.Second
	// maxRequestHeader is the largest header of a request, in bytes.
	maxRequestHeader = 64 << 10
)

// NewHTTPServer returns an HTTP/1 server for handler with limits of the size of headers
// and of time: timeout bounds the time to receive a request, and to send its response.
// The limits do not apply to a connection that has become a websocket, and those of
// mounts are others.
func NewHTTPServer(handler http.Handler, timeout time.Duration, logger *slog.Logger) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler:           handler,
		Protocols:         &protocols,
		ReadHeaderTimeout: timeout,
		ReadTimeout:       timeout,
		WriteTimeout:      timeout,
		IdleTimeout:       requestIdleTimeout,
		MaxHeaderBytes:    maxRequestHeader,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
}
