package hub

import (
	"fmt"
	"log/slog"
	"net/http"

	"github.com/execwire/execwire/internal/audit"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/console"
	"github.com/execwire/execwire/relay/rendezvous"
)

// openAudit opens the configured audit log; nil if there is none.
func openAudit(cfg config.Hub, logger *slog.Logger) (*rendezvous.Auditor, error) {
	if cfg.AuditFile == "" {
		return nil, nil
	}
	log, err := audit.Open(audit.Options{File: cfg.AuditFile, MaxBytes: int64(cfg.AuditFileBytes), Keep: int(cfg.AuditFiles),
		Sync: cfg.AuditSync, Failure: cfg.AuditFailure, Logger: logger})
	if err != nil {
		return nil, fmt.Errorf("audit_file: %w", err)
	}
	return &rendezvous.Auditor{Log: log, Caller: auditedCaller}, nil
}

// auditedCaller describes the client that sends a request, and what it has shown.
func auditedCaller(r *http.Request) audit.Caller {
	by := audit.Caller{Peer: r.RemoteAddr, Credential: "none"}
	_, info, err := peerOf(r)
	switch {
	case r.URL.Query().Has("sig"):
		by.Credential = "signed-url"
	case console.IsProviderPath(r.URL.Path):
		by.Credential = "oidc"
	case len(r.Header.Values("Authorization")) > 0:
		by.Credential = "token"
	case err != nil:
	case len(info.State.VerifiedChains) > 0:
		by.Credential = "certificate"
	case info.Loopback:
		by.Credential = "loopback"
	}
	return by
}

// reopenAudit opens the audit log again, if there is one and another program has renamed
// it. After an error the old file stays in use.
func (h *Hub) reopenAudit() error {
	if h.audit == nil {
		return nil
	}
	return h.audit.Log.Reopen()
}
