package daemon

import (
	"log/slog"
	"slices"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/listen"
)

// loopbackUsers parses the setting loopback_users. The error is a [*config.Error].
func loopbackUsers(cfg config.Config) (auth.LoopbackUsers, error) {
	users, err := auth.ParseLoopbackUsers(cfg.LoopbackUsers)
	if err != nil {
		return auth.LoopbackUsers{}, &config.Error{Setting: "loopback_users", Problem: err.Error(),
			Fix: "write same, any, or names of users of this machine"}
	}
	return users, nil
}

// warnOfAnyUser logs a warning if a listener accepts every user of this host.
func warnOfAnyUser(logger *slog.Logger, users auth.LoopbackUsers, listeners []listen.Listener) {
	onLoopback := func(l listen.Listener) bool {
		addr := l.URL().Addr.Addr()
		return addr.IsLoopback() || addr.IsUnspecified()
	}
	if users.AcceptsAny() && slices.ContainsFunc(listeners, onLoopback) {
		logger.Warn("loopback_users is any: every user of this host is accepted on loopback without a token")
	}
}
