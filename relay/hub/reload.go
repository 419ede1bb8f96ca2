package hub

import (
	"fmt"
	"net/url"

	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/listen"
)

// Reload changes the configuration to that of load, and reads the table of principals,
// tokens, keys and certificates again. What can change is applied; all settings that differ
// are logged. Nothing is disconnected. If anything is invalid nothing changes, and the
// error is logged. An audit log that was renamed is opened again. It may be called concurrently with Serve.
func (h *Hub) Reload(load func() (config.Hub, error)) {
	changes, err := h.reload(load)
	if err != nil {
		h.logger.Error("failed to reload the configuration; nothing has changed", "error", err)
		return
	}
	config.LogChanges(h.logger, changes)
}

func (h *Hub) reload(load func() (config.Hub, error)) ([]config.Change, error) {
	wanted, err := load()
	if err != nil {
		return nil, err
	}
	h.reloading.Lock()
	defer h.reloading.Unlock()
	changes := config.Changes(&h.effective, &wanted)
	next := h.effective
	config.Apply(&next, &wanted)
	if err := next.Validate(); err != nil {
		return nil, err
	}
	authenticate, err := h.authenticator.prepare(next)
	if err != nil {
		return nil, err
	}
	if h.tls != nil {
		keys, err := h.loadTLS(next)
		if err != nil {
			return nil, fmt.Errorf("tls_cert, tls_key or tls_ca: %w", err)
		}
		h.tls.Replace(keys)
	}
	if err := h.reopenAudit(); err != nil {
		return nil, err
	}
	authenticate()
	h.setHosts(next)
	for _, l := range h.listeners {
		l.SetConnections(int(next.Connections))
	}
	h.effective = next
	return changes, nil
}

// setHosts sets the accepted values of the Host header.
func (h *Hub) setHosts(cfg config.Hub) {
	hosts := listen.NewHosts(cfg.Hosts...)
	if public, err := url.Parse(cfg.PublicURL); err == nil && cfg.PublicURL != "" { // validated
		hosts[listen.HostName(public.Host)] = true
	}
	h.hosts.Store(&hosts)
}
