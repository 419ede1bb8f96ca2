package operate

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

const (
	// upgradeTimeout bounds the wait for the result of an upgrade that has begun: the server
	// takes ten seconds at most to go on, with either program.
	upgradeTimeout = time.Minute
	// upgradePoll is the time between two requests for the result.
	upgradePoll = 20 * time.Millisecond
)

func (p Program) newUpgrade() *cobra.Command {
	command := &cobra.Command{
		Use:   "upgrade [BINARY] [--json]",
		Short: "Replace the program of a server while it runs",
		Long: `upgrade replaces the program of a server by BINARY, on the host of the server, or by what
is now at the path from which the server was started, as after an upgrade of a package.
The process, its listeners, the processes that it started, their output and the sessions
stay. Connections end, and clients resume as after a lost connection; nothing is lost or
repeated. Open files, watches, connections to ports and uploads without an id end.

First BINARY is run to check whether it can go on with the state and the configuration.
If it cannot, or anything fails before it is executed, the old program goes on with all
that it had, and upgrade fails with the reason. If the new program fails after that, its
guardian ends all processes, as after a crash.

upgrade prints both versions and how long the server did not serve; with --json as one
object: previous_version, version and pause_seconds. It needs the permission admin. The
signal SIGUSR2 to the server does the same without BINARY; the result is in its log.`,
		Example: `  execwire upgrade
  execwire upgrade /opt/execwire/bin/execwire --json`,
		Args: p.OneArgument,
	}
	asJSON := command.Flags().Bool("json", false, "print one JSON object")
	p.OnServer(command, func(ctx context.Context, c *client.Client, arguments []string) error {
		binary := ""
		if len(arguments) > 0 {
			var err error
			if binary, err = filepath.Abs(arguments[0]); err != nil {
				return err
			}
		}
		done, err := upgrade(ctx, c, binary)
		if err != nil {
			return err
		}
		return printUpgrade(p.Out, done, *asJSON)
	})
	return command
}

// upgrade upgrades a server, and returns the result.
func upgrade(ctx context.Context, c *client.Client, binary string) (*execwirev1.Upgrade, error) {
	id := rand.Text()
	begun, err := c.Admin().Upgrade(ctx, &execwirev1.UpgradeRequest{UpgradeId: id, Binary: binary})
	if err != nil && status.Code(err) != codes.Unavailable {
		return nil, err
	}
	// If the answer was lost, the upgrade may have begun.
	ctx, cancel := context.WithTimeoutCause(ctx, upgradeTimeout, fmt.Errorf("the server does not say what became of the upgrade after %v: see its log", upgradeTimeout))
	defer cancel()
	for tick := time.NewTicker(upgradePoll); ; {
		response, err := c.Admin().GetUpgrade(ctx, &execwirev1.GetUpgradeRequest{UpgradeId: id})
		now := response.GetUpgrade()
		switch {
		case err != nil && begun != nil && client.Reason(err) == execwirev1.ErrorReason_ERROR_REASON_UPGRADE_NOT_FOUND:
			return nil, fmt.Errorf("the server was restarted during the upgrade to %s, which has ended its processes: see its log", begun.GetUpgrade().GetVersion())
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil && isGone(err):
			return nil, fmt.Errorf("the server has ended: the new program has not taken over, and its processes have ended, too; see its log: %w", err)
		case err != nil && status.Code(err) != codes.Unavailable:
			return nil, err
		case now.GetState() == execwirev1.UpgradeState_UPGRADE_STATE_FAILED:
			return nil, fmt.Errorf("the upgrade to %s has failed, and %s goes on with all that it had: %s", now.GetVersion(), now.GetPreviousVersion(), now.GetError())
		case now.GetState() == execwirev1.UpgradeState_UPGRADE_STATE_DONE:
			return now, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// isGone reports whether nobody listens any more: a server that is upgraded always does.
func isGone(err error) bool {
	text := err.Error()
	return strings.Contains(text, "connection refused") || strings.Contains(text, "no such file or directory")
}

func printUpgrade(w io.Writer, u *execwirev1.Upgrade, asJSON bool) error {
	pause := u.GetPause().AsDuration()
	if !asJSON {
		_, err := fmt.Fprintf(w, "upgraded from %s to %s in %v\n", u.GetPreviousVersion(), u.GetVersion(), pause.Round(time.Millisecond))
		return err
	}
	return json.NewEncoder(w).Encode(struct {
		Previous string  `json:"previous_version"`
		Version  string  `json:"version"`
		Pause    float64 `json:"pause_seconds"`
	}{u.GetPreviousVersion(), u.GetVersion(), pause.Seconds()})
}
