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

// otherFlags are other names of flags for settings, which launchers of other exec servers
// use.
var otherFlags = map[string]string{
	"name": "executor-name", "use-agent-identity-auth": "agent-identity", "allow-agent-identity-auth": "agent-identity",
	"ws-max-clock-skew-seconds": "ws-max-clock-skew",
}

// Settings that are in help texts, with the usage of their flags: of all listeners, those
// of JSON-RPC clients, and of an executor.
var (
	tlsUsages = map[string]string{
		"tls-cert":        "the `file` with the certificate chain of listeners with TLS, as PEM",
		"tls-key":         "the `file` with its private key, as PEM",
		"tls-ca":          "the `file` with the authorities whose client certificates are accepted, as PEM (default none)",
		"principals-file": "the `file` with the table of principals",
	}
	clientUsages = map[string]string{
		"ws-auth":               "how websocket clients authenticate: `METHOD` is capability-token, signed-bearer-token or off",
		"ws-token-file":         "the `file` with the token of websocket clients",
		"ws-token-sha256":       "or the SHA-256 of that token, in `hexadecimal`",
		"ws-shared-secret-file": "the `file` with the HS256 secret of signed tokens",
		"ws-issuer":             "the `name` that iss of signed tokens must be",
		"ws-audience":           "the `name` that aud of signed tokens must contain",
		"ws-max-clock-skew":     "the accepted difference to the clock of the issuer, in `seconds` or as in 1m (default 30s)",
		"disable":               "a `feature` to disable: http, HTTP requests for clients (default none)",
		"allowed-origins":       "an `origin` whose web pages may connect, for example https://app.example.org; may be repeated (default none)",
		"allowed-hosts":         "a `name` of this server in URLs of HTTP and websockets, beside IP addresses, localhost and those of its certificate; may be repeated (default none)",
	}
	executorUsages = map[string]string{
		"remote":            "register as an executor with the hub at `URL`, https://HOST; needs --executor-id",
		"executor-id":       "the `ID` of this executor",
		"executor-name":     "the `name` of this executor, for people (default the host name)",
		"executor-labels":   "a label of this executor, `KEY=VALUE`; may be repeated",
		"remote-token-file": "the `file` with the token for the hub (default from the environment, or the sign-in of codex)",
		"remote-tls-ca":     "the `file` with the certificate authorities of the hub, as PEM (default those of the system)",
		"agent-identity":    "authenticate with the agent identity in CODEX_ACCESS_TOKEN",
	}
)

// addSettingFlags adds --config and the flags for settings, with the usages of some.
func addSettingFlags(f *pflag.FlagSet, listen string, usages ...map[string]string) {
	f.SortFlags = false
	shown := map[string]string{"listen": listen}
	for _, group := range usages {
		maps.Copy(shown, group)
	}
	f.String("config", "", "a TOML `file` with settings")
	flags.AddSettings(f, config.Settings(), shown)
	addSynonyms(f, otherFlags)
}

// settingsHelp ends the help of commands with flags of addSettingFlags.
const settingsHelp = "\n\nEvery setting is a flag, too, with - for _: --default-grace 2m, --tls-cert FILE. Lists are\nseparated by commas, or flags are repeated. execwire config example lists the settings."

// addServeFlags adds --config and the flags for settings.
func addServeFlags(f *pflag.FlagSet) {
	addSettingFlags(f,
		"the `URL` to listen on: tcp://HOST:PORT (loopback; port 0 takes a free one), tls://HOST:PORT (with TLS), unix:///PATH; for one protocol grpc://HOST:PORT, grpcs://HOST:PORT, ws://HOST:PORT, wss://HOST:PORT; stdio or off; may be repeated (default "+daemon.DefaultListenURL+")",
		tlsUsages, executorUsages, clientUsages)
}

// loadServe returns the configuration of a server whose command has flags of
// addServeFlags, and the sources of settings that flags do not change.
func loadServe(command *cobra.Command) (config.Config, config.Sources, error) {
	return loadSettings(command, nil)
}

// loadSettings returns the configuration of a command with flags of addSettingFlags. listen
// is its default; nil is that of the file and the environment.
func loadSettings(command *cobra.Command, listen []string) (config.Config, config.Sources, error) {
	cfg, sources, err := readSettings(command, os.Environ(), listen)
	return cfg, sources, explainSettings(command, err)
}

// readSettings is loadSettings for an environment, without explanations of errors.
func readSettings(command *cobra.Command, environ []string, listen []string) (config.Config, config.Sources, error) {
	f := command.Flags()
	file := ""
	if flag := f.Lookup("config"); flag != nil {
		file = flag.Value.String()
	}
	return config.LoadWithSources(file, environ, func(cfg *config.Config) {
		if listen != nil {
			cfg.Listen = listen
		}
		selected := cfg.Listen
		flags.Apply(f, cfg)
		if len(cfg.Listen) == 0 { // an empty --listen selects the default
			cfg.Listen = selected
		}
	})
}

// newConfigCommand returns the command for settings.
func newConfigCommand() *cobra.Command {
	return commands.NewConfig(commands.Program{
		Name: "execwire", Command: "execwire serve", Settings: config.Settings(),
		AddFlags: addServeFlags,
		Load: func(command *cobra.Command) (any, config.Sources, error) {
			cfg, sources, err := loadServe(command)
			return &cfg, sources, err
		},
		Check: config.CheckFile, Usage: usageError, Invalid: &exitError{code: codeSomeFailed},
	})
}

// explainSettings makes an error in settings a usage error that names flags, if flags were
// used. Others are those of explainWebsocket.
func explainSettings(command *cobra.Command, err error) error {
	err = explainWebsocket(command, err)
	if !errors.As(err, new(*config.Error)) || errors.As(err, new(*exitError)) {
		return err
	}
	if text, used := flags.Explain(command.Flags(), err); used {
		return usageError(command, errors.New(text))
	}
	return err
}

// explainWebsocket gives errors in the credentials for websockets the exit code that
// launchers of such servers expect, and names flags instead of settings if those were
// used. Other errors are unchanged.
func explainWebsocket(command *cobra.Command, err error) error {
	var setting *config.Error
	about := errors.As(err, &setting) && strings.HasPrefix(setting.Setting, "ws_")
	if !about && !errors.As(err, new(*auth.WebsocketError)) {
		return err
	}
	if text, used := flags.Explain(command.Flags(), err); used {
		err = errors.New(text)
	}
	return &exitError{code: codeWebsocketAuth, err: err}
}

// findRemoteCredentials returns the credentials for the hub, or nil.
func findRemoteCredentials(cfg config.Config, logger *slog.Logger) (executor.Credentials, error) {
	if !cfg.HasRemote() {
		if cfg.ExecutorID != "" {
			logger.Warn("executor_id has no effect without remote")
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
