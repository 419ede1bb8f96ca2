package main

import (
	"errors"
	"log/slog"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/execwire/execwire/daemon"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/relay/executor"
)

// executorFlags say which relay a server is reached through, and as what.
type executorFlags struct {
	url, id, name, tokenFile, caFile string
	labels                           []string
	agentIdentity                    bool
}

func addExecutorFlags(command *cobra.Command, flags *executorFlags) {
	f := command.Flags()
	f.StringVar(&flags.url, "remote", "", "be reached through the relay whose hub is at `URL`, https://HOST; needs --executor-id")
	f.StringVar(&flags.id, "executor-id", "", "the `ID` by which clients find this server there")
	f.StringVar(&flags.name, "name", "", "the `name` that is shown to people there (default that of this host)")
	f.StringArrayVar(&flags.labels, "label", nil, "what describes it there, as `KEY=VALUE`; may be repeated")
	f.StringVar(&flags.tokenFile, "remote-token-file", "", "the `file` with the token to show the hub (default what the environment has, or the sign-in of codex)")
	f.StringVar(&flags.caFile, "remote-ca", "", "the `file` with the authorities to trust there, as PEM, in place of this machine's")
	f.BoolVar(&flags.agentIdentity, "use-agent-identity-auth", false, "show the hub assertions of the agent in CODEX_ACCESS_TOKEN")
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "allow-agent-identity-auth" {
			name = "use-agent-identity-auth"
		}
		return pflag.NormalizedName(name)
	})
}

// remoteSettings are the flags by the settings that they set.
var remoteSettings = map[string]string{
	"remote_url": "remote", "executor_id": "executor-id", "executor_name": "name", "executor_labels": "label",
	"remote_token_file": "remote-token-file", "remote_ca_file": "remote-ca", "agent_identity": "use-agent-identity-auth",
}

// explainRemoteFlags makes an error about these settings one of the command line
// if flags were used. Others stay as they are.
func explainRemoteFlags(command *cobra.Command, err error) error {
	var wrong *config.Error
	if !errors.As(err, &wrong) || remoteSettings[wrong.Setting] == "" {
		return err
	}
	text, used := wrong.Error(), false
	for setting, flag := range remoteSettings {
		text = regexp.MustCompile(`\b`+setting+`\b`).ReplaceAllString(text, "--"+flag)
		used = used || command.Flags().Changed(flag)
	}
	if !used {
		return err
	}
	return usageError(command, errors.New(strings.TrimPrefix(text, "configuration: ")))
}

// lay lays the flags that were given over the configuration.
func (f *executorFlags) lay(command *cobra.Command, cfg *config.Config) {
	for name, set := range map[string]func(){
		"remote":            func() { cfg.RemoteURL = f.url },
		"executor-id":       func() { cfg.ExecutorID = f.id },
		"name":              func() { cfg.ExecutorName = f.name },
		"label":             func() { cfg.ExecutorLabels = f.labels },
		"remote-token-file": func() { cfg.RemoteTokenFile = absolute(f.tokenFile) },
		"remote-ca":         func() { cfg.RemoteCA = absolute(f.caFile) },
		"use-agent-identity-auth": func() {
			if cfg.AgentIdentity = "off"; f.agentIdentity {
				cfg.AgentIdentity = "on"
			}
		},
	} {
		if command.Flags().Changed(name) {
			set()
		}
	}
}

// findRemoteCredentials returns what is shown to the hub, nil where there is none
// or nothing to show.
func findRemoteCredentials(cfg config.Config, logger *slog.Logger) (executor.Credentials, error) {
	if !cfg.HasRemote() {
		if cfg.ExecutorID != "" {
			logger.Warn("executor_id has no effect without remote_url")
		}
		return nil, nil
	}
	credentials, err := executor.FindCredentials(executor.Sources{
		Registry: cfg.RemoteURL, TokenFile: cfg.RemoteTokenFile, AgentIdentity: cfg.HasAgentIdentity(),
	})
	if err != nil {
		return nil, &exitError{code: codeRemote, err: err}
	}
	return credentials, nil
}

// forgetRemoteSecrets keeps what was shown to the hub from the processes of
// clients.
func forgetRemoteSecrets(cfg config.Config) {
	if !cfg.HasRemote() {
		return
	}
	for _, name := range executor.SecretVariables() {
		_ = os.Unsetenv(name) // fails for names that cannot be
	}
}

// explainRemote gives an error of a server that cannot be reached through its
// relay the code that programs know which start such servers. Others stay as they
// are.
func explainRemote(err error) error {
	if !errors.As(err, new(*daemon.RemoteError)) {
		return err
	}
	return &exitError{code: codeRemote, err: err}
}
