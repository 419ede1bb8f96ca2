package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/cmd/execwire/internal/complete"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

func newSessionsCommand(std streams) *cobra.Command {
	command := &cobra.Command{
		Use:   "sessions [--json]",
		Short: "List, close or share the leased sessions of a server",
		Long: `sessions lists your leased sessions, attached or not, and those of others that were
granted to you. Your default session, which has no lease, is not listed.

With --json each session is an object on its own line: id, attached, processes,
principal, create_time, expire_time (when it ends if no client attaches),
grace_seconds, when_detached, and grants for your own sessions.`,
		Example: `  execwire sessions
  execwire sessions close 0b9fcd12
  execwire sessions grant 0b9fcd12 uid:1000 view`,
		Args: noArguments,
	}
	asJSON := command.Flags().Bool("json", false, "print JSON objects, one per line")
	onServer(command, serverUse{persistent: true}, func(ctx context.Context, c *client.Client, _ []string) error {
		return sessions(ctx, c, *asJSON, std)
	})
	command.AddCommand(newSessionsCloseCommand(), newSessionsGrantCommand())
	return command
}

func newSessionsCloseCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "close ID",
		Short: "Close a session and terminate its processes",
		Long: `close terminates the processes of a session with all their descendants, and removes
the session. It returns when that is done. The id "default" is your default session;
it is created again, empty, when it is next used.`,
		Example: `  execwire sessions close 0b9fcd12`,
		Args:    ids("session", 1),
	}
	onServer(command, serverUse{persistent: true, completes: complete.Session}, func(ctx context.Context, c *client.Client, arguments []string) error {
		return c.CloseSession(ctx, arguments[0])
	})
	return command
}

// accessLevels are the access levels of sessions.
var accessLevels = map[string]execwirev1.SessionAccess{
	"none":  execwirev1.SessionAccess_SESSION_ACCESS_UNSPECIFIED,
	"view":  execwirev1.SessionAccess_SESSION_ACCESS_VIEW,
	"write": execwirev1.SessionAccess_SESSION_ACCESS_WRITE,
}

func newSessionsGrantCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "grant ID PRINCIPAL view|write|none",
		Short: "Grant or revoke access to a session",
		Long: `grant gives another principal access to one of your leased sessions. view allows it
to list, read and wait. write allows it also to write, resize, signal and terminate.
none revokes the access.`,
		Example: `  execwire sessions grant 0b9fcd12 uid:1000 view
  execwire sessions grant 0b9fcd12 uid:1000 none`,
		Args: valid(func(_ *cobra.Command, arguments []string) error {
			if len(arguments) != 3 {
				return errors.New("give a session's id, a principal, and view, write or none")
			}
			if _, known := accessLevels[arguments[2]]; !known {
				return fmt.Errorf("%q is not an access level: use view, write or none", arguments[2])
			}
			return nil
		}),
	}
	onServer(command, serverUse{persistent: true, completes: complete.Session}, func(ctx context.Context, c *client.Client, arguments []string) error {
		return c.GrantSession(ctx, arguments[0], arguments[1], accessLevels[arguments[2]])
	})
	return command
}

// sessionObject is the JSON output for a session.
type sessionObject struct {
	ID           string            `json:"id"`
	Attached     bool              `json:"attached"`
	Processes    uint32            `json:"processes"`
	Principal    string            `json:"principal"`
	CreateTime   time.Time         `json:"create_time"`
	ExpireTime   time.Time         `json:"expire_time,omitzero"`
	GraceSeconds float64           `json:"grace_seconds"`
	WhenDetached string            `json:"when_detached"`
	Grants       map[string]string `json:"grants,omitempty"`
}

func describeSession(s *execwirev1.Session) sessionObject {
	object := sessionObject{
		ID:           s.GetSessionId(),
		Attached:     s.GetAttached(),
		Processes:    s.GetProcessCount(),
		Principal:    s.GetPrincipal(),
		CreateTime:   s.GetCreateTime().AsTime(),
		ExpireTime:   timeOf(s.GetExpireTime()),
		GraceSeconds: s.GetGrace().AsDuration().Seconds(),
		WhenDetached: enumWord(s.GetWhenDetached(), "WHEN_DETACHED_"),
	}
	if len(s.GetGrants()) > 0 {
		object.Grants = map[string]string{}
		for principal, access := range s.GetGrants() {
			object.Grants[principal] = enumWord(access, "SESSION_ACCESS_")
		}
	}
	return object
}

func sessions(ctx context.Context, c *client.Client, asJSON bool, std streams) error {
	list := newListing(std, asJSON, "ID", "STATE", "PROCESSES", "AGE", "ENDS IN", "PRINCIPAL")
	for s, err := range c.ListSessions(ctx) {
		if err != nil {
			return err
		}
		object := describeSession(s)
		if err := list.add(object, object.row()...); err != nil {
			return err
		}
	}
	return list.end()
}

func (o sessionObject) row() []string {
	state, ends := "attached", "-"
	if !o.Attached {
		state = "detached"
	}
	if !o.ExpireTime.IsZero() {
		ends = age(time.Until(o.ExpireTime))
	}
	return []string{printable(o.ID), state, strconv.Itoa(int(o.Processes)), age(time.Since(o.CreateTime)), ends,
		strings.TrimSpace(printable(o.Principal))}
}
