package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/client/execserver"
	"github.com/execwire/execwire/daemon"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
)

// Variables that stand in for flags that are not given. The last four hold
// paths; what is in the files is in no flag and no variable.
const (
	serverVariable    = "EXECWIRE_SERVER"
	tokenFileVariable = "EXECWIRE_TOKEN_FILE"
	tlsCAVariable     = "EXECWIRE_TLS_CA"
	tlsCertVariable   = "EXECWIRE_TLS_CERT"
	tlsKeyVariable    = "EXECWIRE_TLS_KEY"
)

// connectFlags say which server a command talks to, and how.
type connectFlags struct {
	server string
	hubFlags
	tokenFile string
	tls       client.TLSFiles
}

// otherServers are those whose processes end with the command that starts them, in
// the help of --server.
const otherServers = ", ws://HOST:PORT, wss://HOST:PORT, stdio:COMMAND to start one, or local: for one inside this program"

// addConnectFlags adds the flags that every command has that talks to a
// server.
func addConnectFlags(command *cobra.Command, flags *connectFlags) {
	addFlagWithVariable(command, &flags.server, "server", serverVariable, "the `URL` of the server, grpc://HOST:PORT, grpcs://HOST:PORT, unix:///PATH"+otherServers)
	addHubFlags(command, &flags.hubFlags)
	addCredentialFlags(command, flags)
	command.PreRunE = func(command *cobra.Command, _ []string) error { return flags.throughHub(command) }
}

// addCredentialFlags adds those of them that say what to show a server.
func addCredentialFlags(command *cobra.Command, flags *connectFlags) {
	add := func(value *string, name, variable, usage string) {
		addFlagWithVariable(command, value, name, variable, usage)
	}
	add(&flags.tokenFile, "token-file", tokenFileVariable, "the `file` with the token to show, to the hub if there is one")
	add(&flags.tls.CA, "tls-ca", tlsCAVariable, "the `file` with the authorities to trust with TLS, as PEM, in place of this machine's")
	add(&flags.tls.Certificate, "tls-cert", tlsCertVariable, "the `file` with the certificate to show with grpcs://, as PEM")
	add(&flags.tls.Key, "tls-key", tlsKeyVariable, "the `file` with the key to it, as PEM")
}

// addFlagWithVariable adds a flag that a variable stands in for.
func addFlagWithVariable(command *cobra.Command, value *string, name, variable, usage string) {
	command.Flags().StringVar(value, name, os.Getenv(variable), usage+" (default $"+variable+", else none)")
	command.Flags().Lookup(name).DefValue = ""
}

// options are those of package client.
func (f connectFlags) options() []client.Option {
	options := []client.Option{client.WithTLS(f.tls)}
	if f.tokenFile != "" {
		options = append(options, client.WithTokenFile(f.tokenFile))
	}
	return options
}

// connect reaches the server that flags name, or makes one inside this program
// if they name none. The returned function ends the connection, and the server
// with its processes if it is ours. Give the error to [explainDial].
func connect(ctx context.Context, flags connectFlags) (*client.Client, func(), error) {
	options := daemon.OpenOptions{Dial: flags.options()}
	if flags.server == "" || flags.server == daemon.LocalURL {
		cfg, err := daemon.LoadConfig("", os.Environ())
		if err != nil {
			return nil, nil, err
		}
		options.Config = &cfg
		options.Daemon = daemon.Options{
			Version:      buildVersion(),
			AdoptOrphans: true, // nothing else here starts processes
		}
	}
	c, err := daemon.Open(ctx, flags.server, options)
	if err != nil {
		return nil, nil, err
	}
	return c, func() { _ = c.Close() }, nil
}

// needsLasting has a command refuse servers whose processes do not last.
func needsLasting(command *cobra.Command, flags *connectFlags) {
	server := command.Flags().Lookup("server")
	server.Usage = strings.Replace(server.Usage, otherServers, "", 1)
	find := command.PreRunE
	command.PreRunE = func(command *cobra.Command, arguments []string) error {
		if err := find(command, arguments); err != nil {
			return err
		}
		return checkLasting(command, flags.server)
	}
}

// checkLasting refuses a server at which a command finds no processes of others and
// leaves none behind: those of a server inside this program end with it, and those of
// the exec-server protocol with the connection that started them.
func checkLasting(command *cobra.Command, server string) error {
	scheme, _, _ := strings.Cut(server, ":")
	switch scheme = strings.ToLower(scheme); scheme {
	case "ws", "wss", launchScheme, "local":
		return usageError(command, fmt.Errorf(
			"a server reached by %s ends processes with the command that started them: name one by grpc://, grpcs:// or unix://, or by --hub and --executor", scheme))
	}
	return nil
}

// launchScheme is that of a server that is started by its client.
const launchScheme = "stdio"

// explainDial says why there is no server, and what to do.
func explainDial(err error) error {
	var dial *client.DialError
	if !errors.As(err, &dial) {
		return &exitError{code: codeFailed, err: err}
	}
	if hint, ok := relayHint(err); ok {
		return &exitError{code: codeFailed, err: dial.Err, hint: hint}
	}
	if explained, ok := explainTLS(dial); ok {
		return explained
	}
	failed := func(why, hint string) error {
		return &exitError{code: codeFailed, err: fmt.Errorf("cannot reach %s: %s", dial.URL, why), hint: hint}
	}
	const commandHint = "name a command that serves it there: --server 'stdio:execwire serve --listen stdio'"
	if _, ok := errors.AsType[*execserver.NoServerError](dial.Err); ok {
		return failed(dial.Err.Error(), commandHint)
	}
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return failed(dial.Err.Error(), "") // something is there
	}
	if strings.HasPrefix(dial.URL, "relay+") {
		return failed(errno.Error(), startHub)
	}
	if strings.HasPrefix(dial.URL, launchScheme+":") {
		return failed(errno.Error(), "name a command that is in PATH, or give its path: --server 'stdio:execwire serve --listen stdio'")
	}
	hint := "start a server with: execwire serve"
	if dial.URL != daemon.DefaultListenURL {
		hint += " --listen " + dial.URL
	}
	return failed(errno.Error(), hint)
}

// explainTLS says what to do where the two ends could not agree on TLS; false if
// that is not why the other one was not reached.
func explainTLS(dial *client.DialError) (explained error, ok bool) {
	locked, ok := errors.AsType[*client.TLSError](dial.Err)
	if !ok {
		return nil, false
	}
	hint := locked.Fix
	if errors.As(locked, new(x509.UnknownAuthorityError)) {
		hint += ": --tls-ca FILE"
	}
	return &exitError{code: codeFailed, err: fmt.Errorf("cannot reach %s: %w", dial.URL, locked.Err), hint: hint}, true
}

// doorHint says what to do about a server that does not let this program in, or
// not do what it asks; empty if that is not what err is about.
func doorHint(err error) string {
	var typed *client.Error
	if !errors.As(client.FromRPC(err), &typed) {
		return ""
	}
	switch typed.Reason {
	case execwirev1.ErrorReason_ERROR_REASON_UNAUTHENTICATED:
		return "show a token with --token-file, or a certificate with --tls-cert and --tls-key"
	case execwirev1.ErrorReason_ERROR_REASON_PEER_REFUSED:
		return "show a token with --token-file if the server knows one, or run this as the server's user"
	case execwirev1.ErrorReason_ERROR_REASON_CALL_NOT_ALLOWED:
		return fmt.Sprintf("add %q to what the server's principals_file allows", typed.Metadata["permission"])
	case execwirev1.ErrorReason_ERROR_REASON_COMMAND_FORM_DISABLED:
		return fmt.Sprintf("start the server with %s%s=on, or name another one with --server",
			config.EnvironmentPrefix, strings.ToUpper(typed.Metadata["setting"]))
	case execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_FAILED_ATTEMPTS:
		return fmt.Sprintf("try again in %v, with a token or certificate that is right", typed.RetryAfter.Round(time.Millisecond))
	}
	return ""
}
