package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net"

	"github.com/execwire/execwire/internal/audit"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/inproc"
	"github.com/execwire/execwire/internal/listen"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/session"
	"github.com/execwire/execwire/server"
	"github.com/execwire/execwire/server/auditcall"
)

// Kinds of credentials in the audit log; schema.json lists them.
const (
	shownInProcess = "in-process"
	shownRelay     = "relay"
	shownSignedURL = "signed-url"
	shownStdio     = "stdio"
)

// openAudit opens the configured audit log; nil if there is none.
func openAudit(cfg config.Config, logger *slog.Logger) (*auditcall.Auditor, error) {
	if cfg.AuditFile == "" {
		return nil, nil
	}
	log, err := audit.Open(audit.Options{
		File: cfg.AuditFile, Argv: cfg.AuditArgv, Reads: cfg.HasAuditReads(),
		MaxBytes: int64(cfg.AuditFileBytes), Keep: int(cfg.AuditFiles), Sync: cfg.AuditSync, Failure: cfg.AuditFailure, Logger: logger,
	})
	if err != nil {
		return nil, fmt.Errorf("audit_file: %w", err)
	}
	return &auditcall.Auditor{Log: log, Peer: func(ctx context.Context) audit.Caller {
		by := auditedPeer(peerOf(ctx))
		by.API = string(apiOf(ctx))
		return by
	}}, nil
}

// closeAudit closes the audit log, if there is one.
func closeAudit(auditor *auditcall.Auditor) {
	if auditor != nil {
		auditor.Log.Close()
	}
}

// reopenAudit opens the audit log again, if there is one and it was renamed.
func reopenAudit(auditor *auditcall.Auditor) error {
	if auditor == nil {
		return nil
	}
	return auditor.Log.Reopen()
}

// AuditStats returns the numbers of records of the audit log. Without one they are zero.
func (d *Daemon) AuditStats() audit.Stats {
	if d.audit == nil {
		return audit.Stats{}
	}
	return d.audit.Log.Stats()
}

// auditedPeer describes the client that makes a call, and what it has shown.
func auditedPeer(v peerInfo) audit.Caller {
	by := audit.Caller{API: string(apiHTTP)} // of those that are refused before they make a call
	if v.websocket {
		by.API = string(apiJSONRPC)
	}
	if v.addr != nil {
		by.Peer = v.addr.String()
	}
	switch info := v.info.(type) {
	case clientAuthInfo:
		return info.by
	case relayAuthInfo:
		by.Credential = shownRelay
	case inproc.AuthInfo:
		by.Credential = shownInProcess
	case listen.AuthInfo:
		by.Credential = shownTo(info, len(v.authorization) > 0)
		if peer := info.Peer; peer != nil && !info.Loopback {
			by.Peer = fmt.Sprintf("unix:uid=%d,pid=%d", peer.UID, peer.PID)
		}
	}
	return by
}

// shownTo returns the kind of credential that a client has shown to a listener.
func shownTo(info listen.AuthInfo, token bool) string {
	switch {
	case token:
		return "token"
	case len(info.State.VerifiedChains) > 0:
		return "certificate"
	case info.Loopback:
		return "loopback"
	case info.Peer != nil:
		return "unix-peer"
	}
	return "none"
}

// auditRefusal records that a client of HTTP or of a websocket was refused before it made
// a call.
func (c *clients) auditRefusal(by audit.Caller, caller auth.Caller, method string, err error) {
	who := auditcall.Who{Principal: caller.Principal.Name, Via: caller.Via.Name}
	refused := err
	if who.Principal == "" {
		refused = server.MayCall(auth.Caller{}, err, method, nil)
	}
	c.audit.DeniedPeer(by, who, method, nil, refused, server.DenialRule(err, method))
}

// auditHandshake records a failed TLS handshake.
func auditHandshake(auditor *auditcall.Auditor, remote net.Addr, err error) {
	refusal := &auth.Error{Kind: auth.KindCredentialMissing, Subject: "peer", Err: err}
	auditor.DeniedPeer(audit.Caller{Peer: remote.String(), Credential: "certificate"}, auditcall.Who{}, "",
		nil, server.MayCall(auth.Caller{}, refusal, "", nil), "tls handshake")
}

// noteClosed returns what logs and records the ends of processes.
func noteClosed(auditor *auditcall.Auditor, logger *slog.Logger) func(*session.Process) {
	return func(p *session.Process) {
		exit, _ := p.Exit()
		attributes := []any{"principal", p.Principal(), "session", p.SessionID(), "process", p.ID(), "pid", p.PID(), "cause", exit.Cause.String()}
		if exit.Signal != 0 {
			attributes = append(attributes, "signal", int(exit.Signal))
		} else {
			attributes = append(attributes, "code", exit.Code)
		}
		logger.Info("a process has ended", append(attributes, "seconds", exit.WallTime.Seconds())...)
		if auditor == nil {
			return
		}
		record := &audit.Record{Type: audit.Notice, Action: "process.end", Session: p.SessionID(), Process: p.ID(), PID: p.PID(),
			Exit: auditedExit(exit), BytesIn: uint64(p.StdinBytes()), DurationMicros: exit.WallTime.Microseconds()}
		record.Principal = p.Principal()
		totals := p.Log().Stats().Totals
		record.BytesOut = totals[eventlog.Stdout] + totals[eventlog.Stderr] + totals[eventlog.Terminal]
		auditor.Log.Write(record)
	}
}

func auditedExit(exit process.ExitRecord) *audit.Exit {
	e := &audit.Exit{Cause: exit.Cause.String(), Signal: int(exit.Signal), SandboxDenied: exit.SandboxDenied}
	if exit.Signal == 0 && exit.Cause.HasStatus() {
		e.Code = &exit.Code
	}
	return e
}
