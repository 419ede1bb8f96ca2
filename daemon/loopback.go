package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/listen"
	"github.com/execwire/execwire/internal/process"
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

// confinedPeers returns a function that checks whether a peer on this host is a
// confined process of the supervisor; see [listen.Options].
func confinedPeers(supervisor *process.Supervisor) func(auth.Peer, func() bool) error {
	return func(p auth.Peer, ended func() bool) error {
		err := supervisor.CheckPeer(process.Peer{PID: int(p.PID), Ended: ended, Socket: p.Socket, Cgroup: p.Cgroup, Unknown: p.Unknown})
		switch {
		case err == nil:
			return nil
		case errors.Is(err, process.ErrPeerConfined):
			return refusedPeerError("a confined process is not accepted without a token: it could start processes that are not confined")
		}
		return refusedPeerError(fmt.Sprintf("this process is not accepted without a token: the server has started confined processes "+
			"with the network, and cannot find out whether this is one of them (%v); show a token, or use a unix socket", err))
	}
}

func refusedPeerError(text string) error {
	return &auth.Error{Kind: auth.KindPeerRefused, Subject: "peer on this host", Err: errors.New(text), ForCaller: text}
}
