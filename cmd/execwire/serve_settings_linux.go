package main

import (
	"errors"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/execwire/execwire/daemon"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/commands"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/flags"
	"github.com/execwire/execwire/internal/listen"
	"github.com/execwire/execwire/relay/executor"
)

// Flags for settings: of the authentication of JSON-RPC clients, of other restrictions of
// these, and of the relay.
var (
	websocketOverrides = flags.Overrides{
		"ws-auth": "ws_auth", "ws-token-file": "ws_token_file", "ws-token-sha256": "ws_token_sha256",
		"ws-shared-secret-file": "ws_shared_secret_file", "ws-issuer": "ws_issuer", "ws-audience": "ws_audience",
		"ws-max-clock-skew-seconds": "ws_max_clock_skew",
	}
	clientOverrides = flags.Overrides{"allowed-origin": "allowed_origins", "allowed-host": "allowed_hosts", "disable": "disable"}
	remoteOverrides = flags.Overrides{
		"remote": "remote_url", "executor-id": "executor_id", "name": "executor_name", "label": "executor_labels",
		"remote-token-file": "remote_token_file", "remote-ca": "remote_ca_file", "use-agent-identity-auth": "agent_identity",
	}
)

// addClientFlags adds the flags of commands with JSON-RPC listeners.
func addClientFlags(f *pflag.FlagSet) {
	f.SortFlags = false
	f.String("ws-auth", "", "how websocket clients authenticate: `METHOD` is capability-token, signed-bearer-token or off")
	f.String("ws-token-file", "", "the `file` with the token of websocket clients")
	f.String("ws-token-sha256", "", "or the SHA-256 of that token, in `hexadecimal`")
	f.String("ws-shared-secret-file", "", "the `file` with the HS256 secret of signed tokens")
	f.String("ws-issuer", "", "the `name` that iss of signed tokens must be")
	f.String("ws-audience", "", "the `name` that aud of signed tokens must contain")
	f.Uint32("ws-max-clock-skew-seconds", 30, "the accepted difference to the clock of the issuer, in `seconds`")
	f.StringSlice("disable", nil, "a `feature` to disable: http, HTTP requests for clients (default none)")
	f.StringArray("allowed-origin", nil, "an `origin` whose web pages may connect, for example https://app.example.org; may be repeated (default none)")
	f.StringArray("allowed-host", nil, "a `name` of this server in URLs of HTTP and websockets, beside IP addresses, localhost and those of its certificate; may be repeated (default none)")
}

// addExecutorFlags adds the flags of a server that is an executor.
func addExecutorFlags(f *pflag.FlagSet) {
	f.String("remote", "", "register as an executor with the hub at `URL`, https://HOST; needs --executor-id")
	f.String("executor-id", "", "the `ID` of this executor")
	f.String("name", "", "the `name` of this executor, for people (default the host name)")
	f.StringArray("label", nil, "a label of this executor, `KEY=VALUE`; may be repeated")
	f.String("remote-token-file", "", "the `file` with the token for the hub (default from the environment, or the sign-in of codex)")
	f.String("remote-ca", "", "the `file` with the certificate authorities of the hub, as PEM (default those of the system)")
	f.Bool("use-agent-identity-auth", false, "authenticate with the agent identity in CODEX_ACCESS_TOKEN")
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "allow-agent-identity-auth" {
			name = "use-agent-identity-auth"
		}
		return pflag.NormalizedName(name)
	})
}

// addServeFlags adds --config and all flags for settings.
func addServeFlags(f *pflag.FlagSet) {
	f.StringArray("listen", nil,
		"the `URL` to listen on: tcp://HOST:PORT (loopback; port 0 takes a free one), tls://HOST:PORT (with TLS), unix:///PATH; for one protocol grpc://HOST:PORT, grpcs://HOST:PORT, ws://HOST:PORT, wss://HOST:PORT; stdio or off; may be repeated (default "+daemon.DefaultListenURL+")")
	f.String("config", "", "a TOML `file` with settings")
	addExecutorFlags(f)
	addClientFlags(f)
}

// loadServe returns the configuration of a server whose command has flags of
// addServeFlags, and the sources of settings that flags do not change.
func loadServe(command *cobra.Command) (config.Config, config.Sources, error) {
	f := command.Flags()
	file, err := f.GetString("config")
	if err != nil {
		return config.Config{}, nil, err
	}
	listen, err := f.GetStringArray("listen")
	if err != nil {
		return config.Config{}, nil, err
	}
	cfg, sources, err := config.LoadWithSources(file, os.Environ(), func(cfg *config.Config) {
		// An empty --listen selects the default.
		if listen := slices.DeleteFunc(listen, func(url string) bool { return url == "" }); len(listen) > 0 {
			cfg.Listen = listen
		}
		for _, group := range []flags.Overrides{websocketOverrides, clientOverrides, remoteOverrides} {
			group.Apply(f, cfg)
		}
	})
	return cfg, sources, explainRemoteFlags(command, explainWebsocket(command, err))
}

// newConfigCommand returns the command for settings.
func newConfigCommand() *cobra.Command {
	overrides := flags.Overrides{"listen": "listen"}
	for _, group := range []flags.Overrides{websocketOverrides, clientOverrides, remoteOverrides} {
		maps.Copy(overrides, group)
	}
	return commands.NewConfig(commands.Program{
		Name: "execwire", Command: "execwire serve", Settings: config.Settings(),
		AddFlags: addServeFlags, Overrides: overrides,
		Load: func(command *cobra.Command) (any, config.Sources, error) {
			cfg, sources, err := loadServe(command)
			return &cfg, sources, err
		},
		Check: config.CheckFile, Usage: usageError, Invalid: &exitError{code: codeSomeFailed},
	})
}

// explainWebsocket gives errors in the credentials for websockets the exit code that
// launchers of such servers expect, and replaces names of settings by flags if those
// were used. Other errors are unchanged.
func explainWebsocket(command *cobra.Command, err error) error {
	var setting *config.Error
	about := errors.As(err, &setting) && strings.HasPrefix(setting.Setting, "ws_")
	if !about && !errors.As(err, new(*auth.WebsocketError)) {
		return err
	}
	if text, used := websocketOverrides.Rename(command.Flags(), err.Error()); used {
		err = errors.New(text)
	}
	return &exitError{code: codeWebsocketAuth, err: err}
}

// explainRemoteFlags makes an error in the settings of the relay a usage error if flags
// were used. Others are unchanged.
func explainRemoteFlags(command *cobra.Command, err error) error {
	var wrong *config.Error
	if !errors.As(err, &wrong) || !slices.Contains(slices.Collect(maps.Values(remoteOverrides)), wrong.Setting) {
		return err
	}
	text, used := remoteOverrides.Rename(command.Flags(), err.Error())
	if !used {
		return err
	}
	return usageError(command, errors.New(strings.TrimPrefix(text, "configuration: ")))
}

// findRemoteCredentials returns the credentials for the hub, or nil.
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

// unsetRemoteSecrets removes the credentials for the hub from the environment of
// processes.
func unsetRemoteSecrets(cfg config.Config) {
	if !cfg.HasRemote() {
		return
	}
	for _, name := range executor.SecretVariables() {
		_ = os.Unsetenv(name) // fails for invalid names
	}
}

// explainRemote gives errors of the relay the exit code that launchers of such servers
// expect. Others are unchanged.
func explainRemote(err error) error {
	if !errors.As(err, new(*daemon.RemoteError)) {
		return err
	}
	return &exitError{code: codeRemote, err: err}
}

// hasListener reports whether urls have a listener of this scheme; opening them reports
// invalid ones.
func hasListener(urls []string, scheme listen.Scheme) bool {
	return slices.ContainsFunc(urls, func(raw string) bool {
		u, err := listen.Parse(raw)
		return err == nil && u.Scheme == scheme
	})
}
