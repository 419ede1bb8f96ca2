package main

import (
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/listen"
)

// clientFlags say which clients of JSON-RPC are let in, and what they cannot do.
type clientFlags struct {
	auth, tokenFile, tokenHash, secretFile, issuer, audience string
	skewSeconds                                              uint32
	origins, disable                                         []string
}

// addClientFlags adds the flags of commands that have doors for JSON-RPC.
func addClientFlags(command *cobra.Command, flags *clientFlags) {
	f := command.Flags()
	f.StringVar(&flags.auth, "ws-auth", "", "what clients of websockets have to show: `capability-token`, signed-bearer-token or off")
	f.StringVar(&flags.tokenFile, "ws-token-file", "", "the `file` with their token")
	f.StringVar(&flags.tokenHash, "ws-token-sha256", "", "or the token's SHA-256, in `hexadecimal`")
	f.StringVar(&flags.secretFile, "ws-shared-secret-file", "", "the `file` with the secret that their tokens are signed with, by HS256")
	f.StringVar(&flags.issuer, "ws-issuer", "", "what iss of signed tokens has to be")
	f.StringVar(&flags.audience, "ws-audience", "", "what aud of signed tokens has to contain")
	f.Uint32Var(&flags.skewSeconds, "ws-max-clock-skew-seconds", 30, "by how much the clock of whoever signs tokens may differ")
	f.StringSliceVar(&flags.disable, "disable", nil, "what is switched off: `http`, requests over HTTP made for clients (default nothing)")
	f.StringArrayVar(&flags.origins, "allowed-origin", nil, "an `origin` whose web pages may connect, as https://app.example.org; may be repeated (default none)")
}

// lay lays the flags that were given over the configuration.
func (f *clientFlags) lay(command *cobra.Command, cfg *config.Config) {
	for name, set := range map[string]func(){
		"ws-auth":                   func() { cfg.WebsocketAuth = f.auth },
		"ws-token-file":             func() { cfg.WebsocketToken = absolute(f.tokenFile) },
		"ws-token-sha256":           func() { cfg.WebsocketTokenHash = f.tokenHash },
		"ws-shared-secret-file":     func() { cfg.WebsocketSecret = absolute(f.secretFile) },
		"ws-issuer":                 func() { cfg.WebsocketIssuer = f.issuer },
		"ws-audience":               func() { cfg.WebsocketAudience = f.audience },
		"ws-max-clock-skew-seconds": func() { cfg.WebsocketClockSkew = config.Duration(time.Duration(f.skewSeconds) * time.Second) },
		"allowed-origin":            func() { cfg.Origins = f.origins },
		"disable":                   func() { cfg.Disable = f.disable },
	} {
		if command.Flags().Changed(name) {
			set()
		}
	}
}

// absolute is a path from the root, where that can be told.
func absolute(path string) string {
	if whole, err := filepath.Abs(path); err == nil && path != "" {
		return whole
	}
	return path
}

var websocketSetting = regexp.MustCompile(`\bws_[a-z0-9_]+`)

// explainWebsocket gives an error about what clients of websockets have to show
// the code that programs know which start such servers, and names the flags if
// they were used. Other errors stay as they are.
func explainWebsocket(command *cobra.Command, err error) error {
	var setting *config.Error
	about := errors.As(err, &setting) && strings.HasPrefix(setting.Setting, "ws_")
	if !about && !errors.As(err, new(*auth.WebsocketError)) {
		return err
	}
	if slices.ContainsFunc([]string{"ws-auth", "ws-token-file", "ws-token-sha256", "ws-shared-secret-file", "ws-issuer", "ws-audience",
		"ws-max-clock-skew-seconds"}, command.Flags().Changed) {
		err = errors.New(websocketSetting.ReplaceAllStringFunc(err.Error(), flagOf))
	}
	return &exitError{code: codeWebsocketAuth, err: err}
}

// flagOf is the flag of a setting.
func flagOf(setting string) string {
	if setting == "ws_max_clock_skew" {
		setting += "_seconds"
	}
	return "--" + strings.ReplaceAll(setting, "_", "-")
}

// has reports whether there is a door of this scheme among URLs; those that
// cannot be read are left to who opens them.
func has(urls []string, scheme listen.Scheme) bool {
	return slices.ContainsFunc(urls, func(raw string) bool {
		u, err := listen.Parse(raw)
		return err == nil && u.Scheme == scheme
	})
}
