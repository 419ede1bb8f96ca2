package main

import (
	"errors"
	"fmt"
	"net/http"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/relay/harness"
)

// Variables that stand in for flags that are not given.
const (
	hubVariable      = "EXECWIRE_HUB"
	executorVariable = "EXECWIRE_EXECUTOR"
)

// hubFlags say which executor of a relay is the server.
type hubFlags struct {
	hub      string
	executor string
}

func addHubFlags(command *cobra.Command, flags *hubFlags) {
	addFlagWithVariable(command, &flags.hub, "hub", hubVariable, "or the `URL` of a hub, https://HOST, and with --executor a server that is connected to it")
	addFlagWithVariable(command, &flags.executor, "executor", executorVariable, "the `ID` of that server")
}

// throughHub makes the server that of the hub, if flags or variables name one
// there. Flags win over variables.
func (f *connectFlags) throughHub(command *cobra.Command) error {
	given := command.Flags().Changed
	for _, name := range []string{"hub", "executor"} {
		if err := exclusive(command, "server", name); err != nil {
			return err
		}
	}
	switch {
	case given("server"):
		return nil
	case f.executor == "" && !given("hub"):
		return nil
	case f.executor == "":
		return usageError(command, errors.New("name a server of the hub with --executor: execwire executors lists them"))
	case f.hub == "":
		return usageError(command, errors.New("name the hub of the executor with --hub or "+hubVariable))
	case f.server != "" && !given("hub") && !given("executor"):
		return usageError(command, errors.New(serverVariable+" and "+executorVariable+" name two servers: unset one of them"))
	}
	url, err := client.RelayURL(f.hub, f.executor)
	if err != nil {
		return usageError(command, err)
	}
	f.server = url
	return nil
}

// relayHint says what to do about a rendezvous, or an executor behind it, that
// does not let this program in; false if that is not what err is about.
func relayHint(err error) (hint string, ok bool) {
	if errors.Is(err, harness.ErrPlainExecutor) {
		return "start it with: execwire serve --remote", true
	}
	if errors.Is(err, harness.ErrStreamLimit) {
		return "", true
	}
	refused, ok := errors.AsType[*harness.RefusedError](err)
	if !ok {
		return "", false
	}
	switch refused.Status {
	case http.StatusUnauthorized:
		return "show a token that the hub knows with --token-file", true
	case http.StatusForbidden:
		return "have the hub's table of principals allow it, or show another token with --token-file", true
	case http.StatusNotFound:
		return "list what is connected with: execwire executors", true
	}
	return "", true
}

// startHub is what to do where no hub is.
const startHub = "start a hub with: execwire-hub"

// explainHub says why a hub did not answer as it was asked, and what to do.
func explainHub(err error) error {
	if hint, ok := relayHint(err); ok {
		return &exitError{code: codeFailed, err: err, hint: hint}
	}
	var dial *client.DialError
	if errors.As(err, &dial) {
		if explained, ok := explainTLS(dial); ok {
			return explained
		}
		hint := ""
		if errors.As(err, new(syscall.Errno)) {
			hint = startHub
		}
		return &exitError{code: codeFailed, err: fmt.Errorf("cannot reach %s: %w", dial.URL, dial.Err), hint: hint}
	}
	return &exitError{code: codeFailed, err: err}
}
