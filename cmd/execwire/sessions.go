package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

func newSessionsCommand(std streams) *cobra.Command {
	var flags connectFlags
	var asJSON bool
	command := &cobra.Command{
		Use:   "sessions [--json]",
		Short: "List the leased sessions of a server, end or share them",
		Long: `sessions lists your leased sessions, attached or not, and those of others that were
granted to you. Your default session, which needs no lease, is not listed.

With --json every session is an object on a line of its own: id, attached,
processes, principal, create_time, expire_time (when it ends unless somebody
attaches), grace_seconds, when_detached, and of your own ones grants.` + remoteHelp,
		Example: `  execwire sessions
  execwire sessions close 0b9fcd12
  execwire sessions grant 0b9fcd12 uid:1000 view`,
		Args: noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			return withServer(command.Context(), flags, func(c *client.Client) error {
				return sessions(command.Context(), c, asJSON, std)
			})
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON objects, one per line")
	addConnectFlags(command, &flags)
	needsLasting(command, &flags)
	command.AddCommand(newSessionsCloseCommand(), newSessionsGrantCommand())
	return command
}

func newSessionsCloseCommand() *cobra.Command {
	var flags connectFlags
	command := &cobra.Command{
		Use:   "close ID",
		Short: "End a session and everything in it",
		Long: `close ends every process of a session, with all that they started, and removes the
session. It returns when nothing of it is left. The id "default" is your default
session, which comes back empty.` + remoteHelp,
		Example: `  execwire sessions close 0b9fcd12`,
		Args:    idArguments("session", 1),
		RunE: func(command *cobra.Command, arguments []string) error {
			return withServer(command.Context(), flags, func(c *client.Client) error {
				return c.CloseSession(command.Context(), arguments[0])
			})
		},
	}
	addConnectFlags(command, &flags)
	needsLasting(command, &flags)
	return command
}

// accesses are what a session can be granted for.
var accesses = map[string]execwirev1.SessionAccess{
	"none":  execwirev1.SessionAccess_SESSION_ACCESS_UNSPECIFIED,
	"view":  execwirev1.SessionAccess_SESSION_ACCESS_VIEW,
	"write": execwirev1.SessionAccess_SESSION_ACCESS_WRITE,
}

func newSessionsGrantCommand() *cobra.Command {
	var flags connectFlags
	command := &cobra.Command{
		Use:   "grant ID PRINCIPAL view|write|none",
		Short: "Let another principal use a session, or no longer",
		Long: `grant lets another principal use one of your leased sessions: view lets it list,
look and wait; write also lets it write, resize, signal and terminate; none takes
back what it could.` + remoteHelp,
		Example: `  execwire sessions grant 0b9fcd12 uid:1000 view
  execwire sessions grant 0b9fcd12 uid:1000 none`,
		Args: func(command *cobra.Command, arguments []string) error {
			if len(arguments) != 3 {
				return usageError(command, fmt.Errorf("give a session's id, a principal, and view, write or none"))
			}
			if _, known := accesses[arguments[2]]; !known {
				return usageError(command, fmt.Errorf("%q is no access: use view, write or none", arguments[2]))
			}
			return nil
		},
		RunE: func(command *cobra.Command, arguments []string) error {
			return withServer(command.Context(), flags, func(c *client.Client) error {
				return c.GrantSession(command.Context(), arguments[0], arguments[1], accesses[arguments[2]])
			})
		},
	}
	addConnectFlags(command, &flags)
	needsLasting(command, &flags)
	return command
}

// sessionObject is a session as --json prints it.
type sessionObject struct {
	ID           string            `json:"id"`
	Attached     bool              `json:"attached"`
	Processes    uint32            `json:"processes"`
	Principal    string            `json:"principal"`
	CreateTime   time.Time         `json:"create_time"`
	ExpireTime   *time.Time        `json:"expire_time,omitempty"`
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
		GraceSeconds: s.GetGrace().AsDuration().Seconds(),
		WhenDetached: enumWord(s.GetWhenDetached(), "WHEN_DETACHED_"),
	}
	if s.GetExpireTime() != nil {
		object.ExpireTime = new(s.GetExpireTime().AsTime())
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
	var rows [][]string
	for s, err := range c.ListSessions(ctx) {
		if err != nil {
			return err
		}
		object := describeSession(s)
		if asJSON {
			if err := printJSON(std.out, object); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, object.row())
	}
	if asJSON {
		return nil
	}
	return printTable(std.out, []string{"ID", "STATE", "PROCESSES", "AGE", "ENDS IN", "PRINCIPAL"}, rows)
}

func (o sessionObject) row() []string {
	state, ends := "attached", "-"
	if !o.Attached {
		state = "detached"
	}
	if o.ExpireTime != nil {
		ends = age(time.Until(*o.ExpireTime))
	}
	return []string{shown(o.ID), state, strconv.Itoa(int(o.Processes)), age(time.Since(o.CreateTime)), ends,
		strings.TrimSpace(shown(o.Principal))}
}
