package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/cmd/execwire/internal/complete"
	"github.com/execwire/execwire/cmd/execwire/internal/contexts"
	"github.com/execwire/execwire/cmd/execwire/internal/terminal"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/secretfile"
)

// Environment variables that replace flags. Of secrets, only the token of tokenVariable can
// be in one itself.
const (
	serverVariable    = "EXECWIRE_SERVER"
	tokenVariable     = secretfile.TokenVariable
	tokenFileVariable = "EXECWIRE_TOKEN_FILE"
	hubVariable       = "EXECWIRE_HUB"
	executorVariable  = "EXECWIRE_EXECUTOR"
)

// connectFlags select the server of a command, and how to connect.
type connectFlags struct {
	server        string
	hub, executor string // an executor of a relay instead
	context       string // the name of a context that has them instead
	tokenFile     string
	token         string      // of tokenVariable
	tokenFlag     *pflag.Flag // --token-file, which overrides it
	tls           client.TLSFiles
	// onlyHub is set for requests at the hub itself.
	onlyHub bool
	// origin is the flag, variable or place in a file that names the server; empty for none.
	origin string
}

// The help of --server: every server, and those whose processes end with the command.
const (
	serverHelp       = "the `URL` of the server, tcp://HOST:PORT, tls://HOST:PORT, unix:///PATH"
	ephemeralServers = ", ws://HOST:PORT, wss://HOST:PORT, stdio:COMMAND to start one, or local: for one inside this program"
)

// addConnectFlags adds the flags of every command that connects to a server. Without
// them, the server is in variables, else otherwise.
func addConnectFlags(command *cobra.Command, flags *connectFlags, help, otherwise string) {
	f := command.Flags()
	f.SortFlags = false // those of the command first
	addFlagWithVariable(f, &flags.server, "server", serverVariable, help)
	f.Lookup("server").Usage = fmt.Sprintf("%s (default $%s, else the context, else %s)", help, serverVariable, otherwise)
	addFlagWithVariable(f, &flags.hub, "hub", hubVariable, "or the `URL` of a hub, https://HOST, to reach the executor of --executor")
	addFlagWithVariable(f, &flags.executor, "executor", executorVariable, "the `ID` of that executor")
	addContextFlag(command, flags)
	addCredentialFlags(f, flags)
	command.PreRunE = flags.prepare(otherwise)
	if f.Lookup("session") != nil {
		completeFlag(command, "session", complete.Sessions(completed(flags)))
	}
	completeFlag(command, "server", cobra.NoFileCompletions)
	completeFlag(command, "hub", cobra.NoFileCompletions)
	completeFlag(command, "executor", flags.executors)
}

// completeFlag sets the completion of a flag that the command has.
func completeFlag(command *cobra.Command, name string, completion cobra.CompletionFunc) {
	if err := command.RegisterFlagCompletionFunc(name, completion); err != nil {
		panic("completion of --" + name + ": " + err.Error())
	}
}

// addContextFlag adds --context.
func addContextFlag(command *cobra.Command, flags *connectFlags) {
	command.Flags().StringVar(&flags.context, "context", "", "or the `name` of a context, which execwire context lists (default $"+config.ContextVariable+", else the current context)")
	completeFlag(command, "context", contexts.Complete)
}

// executors completes --executor.
func (f *connectFlags) executors(command *cobra.Command, arguments []string, typed string) ([]string, cobra.ShellCompDirective) {
	selected := *f
	selected.onlyHub = true
	if err := selected.resolve(command); err != nil || selected.hub == "" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list := func(ctx context.Context) ([]client.Executor, error) {
		return client.Executors(ctx, selected.hub, selected.options()...)
	}
	return complete.Executors(list)(command, arguments, typed)
}

var errNoCompletion = errors.New("a completion starts no server")

// completed is the server that flags select, for completions.
func completed(flags *connectFlags) complete.Server {
	connectTo := func(ctx context.Context, command *cobra.Command) (*client.Client, error) {
		selected := *flags
		if err := selected.resolve(command); err != nil {
			return nil, err
		}
		selected.server = cmp.Or(selected.server, defaultServer)
		switch scheme, _, _ := strings.Cut(strings.ToLower(selected.server), ":"); scheme {
		case launchScheme, "local":
			return nil, errNoCompletion
		}
		return connect(ctx, selected)
	}
	return complete.Server{Connect: connectTo, Directory: remoteDirectory}
}

// warn warns of variables that have no effect because they are misspelled, and of a token
// in a variable if the command starts programs on this machine. They do not get it, but can
// read the environment of this program in /proc. otherwise is the server if none is named.
func (f *connectFlags) warn(w io.Writer, otherwise string) {
	for _, misspelled := range config.MisspelledVariables(config.ClientVariables(), os.Environ()) {
		fmt.Fprintf(w, "execwire: warning: %s\n", misspelled)
	}
	scheme, _, _ := strings.Cut(strings.ToLower(cmp.Or(f.server, otherwise)), ":")
	if f.token != "" && (scheme == "local" || scheme == launchScheme) {
		fmt.Fprintf(w, "execwire: warning: %s is not passed to processes, but those of your user on this machine can read it in /proc: unset it, or use %s\n",
			tokenVariable, tokenFileVariable)
	}
}

// addCredentialFlags adds the flags for credentials.
func addCredentialFlags(f *pflag.FlagSet, flags *connectFlags) {
	addTokenFlag(f, flags)
	addTLSFlags(f, flags, "tls-", "EXECWIRE_TLS_")
}

func addTokenFlag(f *pflag.FlagSet, flags *connectFlags) {
	addFlagWithVariable(f, &flags.tokenFile, "token-file", tokenFileVariable, "the `file` with the token, for the hub if there is one")
	flags.tokenFlag = f.Lookup("token-file")
	flags.tokenFlag.Usage = "the `file` with the token, for the hub if there is one (default the token in $" + tokenVariable + ", else the file $" + tokenFileVariable + ", else none)"
	flags.token = strings.TrimSpace(os.Getenv(tokenVariable))
}

// addTLSFlags adds the flags for TLS, whose names and variables begin with prefixes.
func addTLSFlags(f *pflag.FlagSet, flags *connectFlags, prefix, variables string) {
	addFlagWithVariable(f, &flags.tls.CA, prefix+"ca", variables+"CA", "the `file` with the certificate authorities to trust, as PEM, instead of the system's")
	addFlagWithVariable(f, &flags.tls.Certificate, prefix+"cert", variables+"CERT", "the `file` with the client certificate for tls://, as PEM")
	addFlagWithVariable(f, &flags.tls.Key, prefix+"key", variables+"KEY", "the `file` with its private key, as PEM")
}

// addFlagWithVariable adds a flag whose default is in an environment variable.
func addFlagWithVariable(f *pflag.FlagSet, value *string, name, variable, usage string) {
	f.StringVar(value, name, os.Getenv(variable), usage+" (default $"+variable+", else none)")
	f.Lookup(name).DefValue = ""
}

// options returns the options for package client.
func (f connectFlags) options() []client.Option {
	options := []client.Option{client.WithTLS(f.tls)}
	switch {
	case f.token != "" && !f.tokenFlag.Changed:
		options = append(options, client.WithToken(f.token))
	case f.tokenFile != "":
		options = append(options, client.WithTokenFile(f.tokenFile))
	}
	return options
}

// localURL is the URL of a server inside this program, which needs Linux; the default of commands that
// start one if no server is named.
const localURL = "local:"

// connect connects to the selected server, or starts one inside this program if none is
// selected, which ends with its processes when the client is closed. Its errors are
// explained.
func connect(ctx context.Context, flags connectFlags) (*client.Client, error) {
	dial := func() (*client.Client, error) { return client.Dial(ctx, flags.server, flags.options()...) }
	if flags.server == "" || flags.server == localURL {
		dial = func() (*client.Client, error) { return openEmbedded(ctx) }
	}
	c, err := dial()
	if err != nil {
		return nil, flags.explain(err)
	}
	return c, nil
}

// explain explains why the server was not reached, and who named it.
func (f connectFlags) explain(err error) error {
	explained := explainDial(err)
	var exit *exitError
	isAddress := errors.As(err, new(*client.DialError)) || errors.As(err, new(*client.URLError))
	if isAddress && errors.As(explained, &exit) {
		exit.err = fmt.Errorf("%w (%s)", exit.err, cmp.Or(f.origin, "the default, because nothing names a server"))
	}
	return explained
}

// checkPersistent rejects servers on which a command can neither find nor leave processes:
// those of a server inside this program end with it, and those of the exec-server
// protocol with their connection.
func checkPersistent(command *cobra.Command, server string) error {
	if server == "" || isPersistent(server) {
		return nil
	}
	scheme, _, _ := strings.Cut(server, ":")
	return usageError(command, fmt.Errorf(
		"a server reached by %s ends processes with the command that started them: name one with tcp://, tls:// or unix://, or with --hub and --executor", strings.ToLower(scheme)))
}

// isPersistent reports whether a server keeps processes when the command ends.
func isPersistent(server string) bool {
	scheme, _, _ := strings.Cut(strings.ToLower(server), ":")
	return !slices.Contains([]string{"", "ws", "wss", launchScheme, "local"}, scheme)
}

// launchScheme is the URL scheme of servers that the client launches.
const launchScheme = "stdio"

// prepare is what a command does before it runs. otherwise is the server if none is named.
func (f *connectFlags) prepare(otherwise string) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, _ []string) error {
		if err := f.resolve(command); err != nil {
			return err
		}
		f.warn(command.ErrOrStderr(), otherwise)
		return nil
	}
}

// resolve selects the server: that of flags, else of variables, else of a context. It
// stays empty if none of them names one.
func (f *connectFlags) resolve(command *cobra.Command) error {
	given := command.Flags().Changed
	for _, pair := range [][]string{{"server", "hub"}, {"server", "executor"}, {"server", "context"}, {"hub", "context"}} {
		if err := exclusive(pair...)(command, nil); err != nil {
			return err
		}
	}
	isSelected, err := f.useContext(command)
	if err != nil || f.onlyHub {
		return err
	}
	switch {
	case isSelected && f.server != "":
		return nil
	case given("server"):
		f.origin = "--server"
		return nil
	case f.executor == "" && !given("hub") && !isSelected:
		if f.server != "" {
			f.origin = "$" + serverVariable
		}
		return nil
	case f.executor == "":
		return usageError(command, errors.New("name a server of the hub with --executor: execwire executors lists them"))
	case f.hub == "":
		return usageError(command, errors.New("name the hub of the executor with --hub, "+hubVariable+" or a context"))
	case f.server != "" && !given("hub") && !given("executor"):
		return usageError(command, errors.New(serverVariable+" and "+executorVariable+" name two servers: unset one of them"))
	}
	url, err := client.RelayURL(f.hub, f.executor)
	if err != nil {
		return usageError(command, err)
	}
	f.server = url
	switch {
	case given("hub"):
		f.origin = "--hub"
	case given("executor") && !isSelected:
		f.origin = "--executor"
	case !isSelected:
		f.origin = "$" + executorVariable
	}
	return nil
}

// useContext replaces what flags do not set by the context of --context; without it and
// without a server in flags and variables by that of the variable, or the current one.
// Values of a context override variables, and no other server gets its token.
func (f *connectFlags) useContext(command *cobra.Command) (isSelected bool, err error) {
	given := command.Flags().Changed
	name, variable := f.context, os.Getenv(config.ContextVariable)
	if !given("context") {
		named := ""
		switch {
		case given("server") || given("hub"):
			return false, nil
		case f.server != "" && !f.onlyHub && !given("executor"):
			named = serverVariable
		case f.hub != "" && (f.onlyHub || f.executor != ""):
			named = hubVariable
		}
		if named != "" && variable != "" {
			return false, usageError(command, fmt.Errorf("%s and %s name two servers: unset one of them", named, config.ContextVariable))
		}
		if name = variable; named != "" {
			return false, nil
		}
	}
	list, err := contexts.Load()
	if err != nil {
		return false, err
	}
	if name == "" && !given("context") {
		name = list.Current
	}
	if name == "" && !given("context") {
		return false, nil
	}
	selected, sources, err := list.Get(name)
	if err != nil {
		return false, &exitError{code: codeUsage, err: err, hint: "list contexts with: execwire context ls"}
	}
	switch {
	case selected.Server != "" && given("executor"):
		return false, usageError(command, fmt.Errorf("--executor is for a hub, and the context %s names a server: name the hub with --hub", name))
	case f.executor != "" && !given("executor") && !given("context") && selected.Executor != f.executor && (selected.Server != "" || selected.Executor != ""):
		return false, usageError(command, fmt.Errorf("%s and the context %s name two servers: unset the variable, or name the hub with %s", executorVariable, name, hubVariable))
	}
	f.server, f.hub = selected.Server, selected.Hub
	if !given("executor") && selected.Executor != "" || selected.Server != "" {
		f.executor = selected.Executor
	}
	f.origin = "context " + name + ", " + sources["hub"].String()
	if selected.Server != "" {
		f.origin = "context " + name + ", " + sources["server"].String()
	}
	for _, credential := range []struct {
		flag, of string
		to       *string
	}{
		{"token-file", selected.TokenFile, &f.tokenFile}, {"tls-ca", selected.TLSCA, &f.tls.CA},
		{"tls-cert", selected.TLSCert, &f.tls.Certificate}, {"tls-key", selected.TLSKey, &f.tls.Key},
	} {
		if credential.of != "" && !given(credential.flag) {
			*credential.to = credential.of
		}
	}
	if selected.TokenFile != "" {
		f.token = ""
	}
	return true, nil
}

// defaultServer is the default of execwire serve --listen and of --server.
const defaultServer = "tcp://127.0.0.1:7420"

// remoteHelp ends the help of every command with --server.
const remoteHelp = "\n\nThe server is that of --server, of --hub and --executor, or of --context. The default is\n$" + serverVariable + ", else the current context, else " + defaultServer + "."

func addSessionFlag(command *cobra.Command, session *string) {
	command.Flags().StringVar(session, "session", "", "the `ID` of the session (default your default session)")
}

// serverCall is what a command does with a client of a server.
type serverCall func(ctx context.Context, c *client.Client, arguments []string) error

// serverUse is how a command uses a server.
type serverUse struct {
	// persistent rejects servers whose processes end with the command.
	persistent bool
	// untilSignal ends the context of the command with a terminating signal, so that it
	// can clean up. A second signal terminates the program.
	untilSignal bool
	// completes completes the arguments in a shell; nil completes nothing.
	completes complete.Argument
	// paths are the arguments that are paths of the server; nil for none. Without arguments
	// there is one, of the directory at which relative paths begin.
	paths pathArguments
	// expands replaces arguments by the files that they match: see expandPaths. Commands that
	// do it themselves get the base in base.
	expands bool
	base    *string
}

// onServer makes a command call do with a client of the server that its flags select.
func onServer(command *cobra.Command, use serverUse, do serverCall) {
	var flags connectFlags
	help := serverHelp
	if !use.persistent {
		help += ephemeralServers
	}
	addConnectFlags(command, &flags, help, defaultServer)
	command.Long += remoteHelp
	if use.completes == nil {
		use.completes = complete.Nothing
	}
	command.ValidArgsFunction = use.completes(completed(&flags))
	command.RunE = func(command *cobra.Command, arguments []string) error {
		if use.persistent {
			if err := checkPersistent(command, flags.server); err != nil {
				return err
			}
		}
		call := func(ctx context.Context) error {
			return withServer(ctx, flags, func(c *client.Client) (err error) {
				if use.paths != nil {
					if len(arguments) == 0 {
						arguments = []string{"."}
					}
					var base string
					if arguments, base, err = absolutePaths(ctx, c, flags.server, arguments, use.paths); err != nil {
						return err
					}
					if use.base != nil {
						*use.base = base
					}
					if use.expands {
						arguments = expandPaths(ctx, c, base, arguments)
					}
				}
				return do(ctx, c, arguments)
			})
		}
		if use.untilSignal {
			return untilSignal(command.Context(), call)
		}
		return call(command.Context())
	}
}

// withServer calls do with a client of the server, and explains errors.
func withServer(ctx context.Context, flags connectFlags, do func(*client.Client) error) error {
	flags.server = cmp.Or(flags.server, defaultServer)
	c, err := connect(ctx, flags)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if err := do(c); err != nil {
		return explain(err, nil)
	}
	return nil
}

// untilSignal calls do with a context that ends with a terminating signal. A second signal
// terminates the program.
func untilSignal(ctx context.Context, do func(context.Context) error) error {
	ctx, stop := signal.NotifyContext(ctx, terminal.Unignored(syscall.SIGTERM)...)
	defer stop()
	context.AfterFunc(ctx, stop)
	err := do(ctx)
	if err == nil || ctx.Err() == nil {
		return err
	}
	ended := &exitError{code: codeInterrupted, err: errors.New("interrupted")}
	if exit, ok := errors.AsType[*exitError](err); ok {
		ended.hint = exit.hint
	}
	return ended
}

// newContextCommand returns the command for contexts.
func newContextCommand(std streams) *cobra.Command {
	return contexts.NewCommand(contexts.Program{
		Usage: usageError,
		Check: func(c config.Context) error {
			if c.Hub != "" {
				_, err := client.RelayURL(c.Hub, cmp.Or(c.Executor, "executor"))
				return err
			}
			switch scheme, _, _ := strings.Cut(strings.ToLower(c.Server), ":"); scheme {
			case "ws", "wss", launchScheme, "local":
				return nil
			}
			_, err := client.NewTransport(c.Server)
			return err
		},
		Print: func(rows [][]string) error {
			table := newListing(std, false, rows[0]...)
			for _, row := range rows[1:] {
				if err := table.add(nil, row...); err != nil {
					return err
				}
			}
			return table.end()
		},
	})
}
