package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/execwire/execwire/internal/auth"
)

// refusalLevel says how important it is that somebody was not let in. Who has
// failed too often has been told of by then, and must not fill the log.
func refusalLevel(err error) slog.Level {
	if refused, ok := errors.AsType[*auth.Error](err); ok && refused.Kind == auth.KindTooManyAttempts {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// originInterval is how often the log tells of a refused Origin.
const originInterval = time.Minute

// tellOrigins returns what has the log tell of requests that were refused for
// their Origin, of which the client is told nothing. Web pages can make many, so
// it does not tell of all.
func tellOrigins(logger *slog.Logger) func(*http.Request) {
	var mu sync.Mutex
	var told time.Time
	return func(r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if !told.IsZero() && time.Since(told) < originInterval {
			return
		}
		told = time.Now()
		logger.Info("a request with an Origin was refused, as those of web pages are; allowed_origins lets one in, and more of them are not logged for a while",
			"peer", r.RemoteAddr, "origin", fmt.Sprintf("%.100s", r.Header.Get("Origin")))
	}
}
