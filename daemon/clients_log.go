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

// refusalLevel returns the log level of a rejected client. Too many attempts are
// logged at debug level: the failures before were logged, and they must not fill the
// log.
func refusalLevel(err error) slog.Level {
	if refused, ok := errors.AsType[*auth.Error](err); ok && refused.Kind == auth.KindTooManyAttempts {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// logInterval is how often lines are logged that clients can cause at any rate.
const logInterval = time.Minute

// rarely returns a function that calls its argument at most once in logInterval.
func rarely() func(log func()) {
	var mu sync.Mutex
	var last time.Time
	return func(log func()) {
		mu.Lock()
		defer mu.Unlock()
		if last.IsZero() || time.Since(last) >= logInterval {
			last = time.Now()
			log()
		}
	}
}

// logRefusedOrigins returns a function that logs requests refused for their Origin,
// whose clients are not told the reason. Web pages can send many, so it limits the
// rate.
func logRefusedOrigins(logger *slog.Logger) func(*http.Request) {
	limited := rarely()
	return func(r *http.Request) {
		limited(func() {
			logger.Info("refused a request with an Origin, as web pages send; allowed_origins accepts one; suppressing further lines for a while",
				"peer", r.RemoteAddr, "origin", fmt.Sprintf("%.100s", r.Header.Get("Origin")))
		})
	}
}
