package hub

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"

	"google.golang.org/grpc"

	"github.com/execwire/execwire/internal/audit"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/console"
	"github.com/execwire/execwire/relay/channels"
	"github.com/execwire/execwire/relay/rendezvous"
)

// hubConsole is the console of a hub. A nil one serves nothing.
type hubConsole struct {
	router   *rendezvous.Hub
	page     *console.Hub
	channels *channels.Pool
}

// newConsole returns the console, or nil if the hub has none.
func (h *Hub) newConsole(router *rendezvous.Hub) *hubConsole {
	if !h.cfg.HasConsole() {
		return nil
	}
	c := &hubConsole{router: router, channels: channels.New(func(ctx context.Context, principal, executor string) (net.Conn, error) {
		return h.openAudited(ctx, router, "console.connect", principal, executor)
	})}
	c.page = console.NewHub(console.HubConfig{
		Lifetime: duration(h.cfg.ConsoleSession), Sessions: int(h.cfg.ConsoleSessions), NeedsToken: h.authenticator.principals.HasTable(),
		Secure: func(r *http.Request) bool { return r.TLS != nil || strings.HasPrefix(h.cfg.PublicURL, "https://") },
		Login:  h.loginConsole, Provider: h.openProvider(router.BaseURL),
		Executors: func(r *http.Request, principal string) (any, error) {
			member, err := h.authenticator.recall(r, auth.Principal{Name: principal})
			if err != nil {
				return nil, err
			}
			return router.Executors(member.MayConnectTo), nil
		},
		MayConnect: func(r *http.Request, principal, executor string) error {
			member, err := h.authenticator.recall(r, auth.Principal{Name: principal})
			if err != nil {
				return err
			}
			return rendezvous.MayConnect(member, executor)
		},
		Connect: c.connect, Use: trackUse, Reject: c.reject,
	})
	return c
}

// loginConsole authenticates a request with a token, which may be empty.
func (h *Hub) loginConsole(r *http.Request, token string) (principal string, err error) {
	shown := r.Clone(r.Context())
	shown.Header.Del("Authorization")
	if token != "" {
		shown.Header.Set("Authorization", "Bearer "+token)
	}
	member, err := h.authenticator.authenticate(shown)
	if err != nil {
		return "", err
	}
	return h.signIn(shown, member)
}

// signIn records that a browser signs in, and returns its principal.
func (h *Hub) signIn(r *http.Request, member auth.Member) (principal string, err error) {
	principal = member.Principal.Name
	end, err := h.audit.Begin(r, principal, &audit.Record{Action: "console.login"})
	if err != nil {
		return "", err
	}
	end(nil)
	h.logger.Info("a browser signed in at the console", "principal", principal, "peer", r.RemoteAddr)
	return principal, nil
}

// connect returns the connection of a principal to an executor. It does not wait for one that
// is not connected.
func (c *hubConsole) connect(ctx context.Context, principal, executor string) (grpc.ClientConnInterface, func(), error) {
	if err := c.router.Reachable(ctx, executor); err != nil {
		return nil, nil, err
	}
	ch, err := c.channels.Acquire(ctx, principal, executor)
	if err != nil {
		return nil, nil, err
	}
	return ch.Client().Conn(), ch.Release, nil
}

// reject responds with an error.
func (c *hubConsole) reject(w http.ResponseWriter, r *http.Request, executor string, err error) {
	if refused, ok := errors.AsType[*console.HubError](err); ok {
		err = &rendezvous.Refusal{Status: refused.Status, Code: refused.Code, Message: refused.Message}
	}
	c.router.Reject(w, r, executor, err)
}

// serves reports whether a request is for the console.
func (c *hubConsole) serves(r *http.Request) bool {
	return c != nil && (strings.HasPrefix(r.URL.Path, console.HubPrefix) || r.URL.Path+"/" == console.HubPrefix)
}

// ServeHTTP implements http.Handler.
func (c *hubConsole) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := c.router.CheckHost(r); err != nil {
		c.router.Reject(w, r, "", err)
		return
	}
	c.page.ServeHTTP(w, r)
}

// close ends all sessions and requests.
func (c *hubConsole) close() {
	if c != nil {
		c.page.Close()
		c.channels.Close()
	}
}
