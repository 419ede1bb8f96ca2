//go:build !linux

package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
)

// Servers, and what identifies the programs of this host that connect, need Linux. Of the
// packages of the server only files for Linux import any.

// serverMain does nothing: no server starts programs of this binary.
func serverMain() {}

// needsLinux refuses what only Linux can do.
func needsLinux(what string) error {
	return &exitError{code: codeFailed, err: fmt.Errorf("%s needs Linux, and this is %s", what, runtime.GOOS), hint: otherServerHint}
}

// linuxCommand is a command that only works on Linux.
func linuxCommand(name, short string) *cobra.Command {
	return &cobra.Command{
		Use:                name,
		Short:              short + " (needs Linux)",
		Long:               name + " needs Linux. Here, use WSL or a container, or a server elsewhere with --server, or with\n--hub and --executor.",
		DisableFlagParsing: true,
		RunE: func(command *cobra.Command, arguments []string) error {
			if slices.Contains(arguments, "--help") || slices.Contains(arguments, "-h") {
				return command.Help()
			}
			return needsLinux("execwire " + name)
		},
	}
}

func newServeCommand(streams) *cobra.Command { return linuxCommand("serve", "Run a server") }

func newGatewayCommand(streams) *cobra.Command {
	return linuxCommand("gateway", "Serve JSON-RPC clients with another server")
}

func newForwardCommand(streams) *cobra.Command {
	return linuxCommand("forward", "Forward gRPC connections of this host to another server")
}

func newConfigCommand() *cobra.Command {
	return linuxCommand("config", "Print settings and check files with them")
}

const embeddedServer = "a server inside this program"

func openEmbedded(context.Context) (*client.Client, error) { return nil, needsLinux(embeddedServer) }

func runLocalChecks(context.Context, string) ([]check, error) { return nil, needsLinux(embeddedServer) }

// guardianWatch is the watch of a guardian, which this program never has.
type guardianWatch struct{}

// Signals implements the watch of Linux.
func (*guardianWatch) Signals() <-chan syscall.Signal { return nil }

func guarded() (*guardianWatch, error) { return nil, nil }

// guardEmbedded refuses to run a process without a server.
func guardEmbedded() (done bool, err error) { return true, needsLinux(embeddedServer) }

func endUnguarded(*guardianWatch, context.CancelCauseFunc, *client.Client) {}
