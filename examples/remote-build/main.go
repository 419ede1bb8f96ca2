// Command remote-build builds a project on another machine: it copies it there, runs a
// command in it, prints the output, and fetches the result. The connection may be cut
// meanwhile.
//
//	remote-build -server tcp://127.0.0.1:7420 -result bin/program PROJECT make
//	remote-build -hub https://hub.example.org -executor build-1 -token-file token …
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/daemon"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// build has the options of the command line.
type build struct {
	server, hub, executor, tokenFile string
	env                              map[string]string
	result, to                       string
	project                          string
	command                          []string
}

func main() {
	daemon.Main() // the server may be inside this program
	b := build{env: map[string]string{}}
	flag.StringVar(&b.server, "server", daemon.LocalURL, "the `URL` of the server")
	flag.StringVar(&b.hub, "hub", "", "the `URL` of the hub of the server")
	flag.StringVar(&b.executor, "executor", "", "the executor `ID` of the server at the hub")
	flag.StringVar(&b.tokenFile, "token-file", "", "the `file` with the token")
	flag.Func("env", "a variable for the command, as `NAME=VALUE`; may be repeated", func(text string) error {
		name, value, ok := strings.Cut(text, "=")
		if b.env[name] = value; !ok {
			return errors.New("write it as NAME=VALUE")
		}
		return nil
	})
	flag.StringVar(&b.result, "result", "", "a `file` made by the command, to fetch")
	flag.StringVar(&b.to, "to", ".", "the `directory` to fetch it into")
	flag.Parse()
	if flag.NArg() < 2 {
		fmt.Fprintln(os.Stderr, "usage: remote-build [flags] PROJECT COMMAND [ARGUMENT]...")
		os.Exit(2)
	}
	b.project, b.command = flag.Arg(0), flag.Args()[1:]
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	code, err := b.run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "remote-build:", err)
		code = 125
	}
	os.Exit(code)
}

// run builds, and returns the exit code of the command.
func (b build) run(ctx context.Context) (code int, err error) {
	machine, err := b.open(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, machine.Close()) }()
	about, err := machine.Describe(ctx)
	if err != nil {
		return 0, err
	}
	directory := path.Join(about.GetTemporaryDirectory(), "remote-build-"+uuid.NewString())
	defer func() { err = errors.Join(err, b.clear(ctx, machine, directory)) }()

	copied, err := machine.Push(ctx, filepath.Clean(b.project)+"/.", directory, client.TransferOptions{Recursive: true, Preserve: true})
	if err != nil {
		return 0, fmt.Errorf("failed to copy the project: %w", err)
	}
	fmt.Fprintf(os.Stderr, "copied %d files to %s\n", copied.Files, directory)
	exit, err := b.make(ctx, machine, directory)
	if err != nil {
		return 0, err
	}
	fmt.Fprintf(os.Stderr, "exit code %d after %v; resumed %d times\n", exit.ShellCode(), exit.WallTime.Round(time.Millisecond), exit.Resumed)
	if code = exit.ShellCode(); code != 0 || b.result == "" {
		return code, nil
	}
	if _, err := machine.Pull(ctx, path.Join(directory, b.result), filepath.Join(b.to, path.Base(b.result)), client.TransferOptions{Preserve: true}); err != nil {
		return 0, fmt.Errorf("failed to fetch %s: %w", b.result, err)
	}
	return 0, nil
}

// open connects to the machine to build on.
func (b build) open(ctx context.Context) (client.Environment, error) {
	url := b.server
	if b.hub != "" {
		var err error
		if url, err = client.RelayURL(b.hub, b.executor); err != nil {
			return nil, err
		}
	}
	var options daemon.OpenOptions
	if b.tokenFile != "" {
		options.Dial = append(options.Dial, client.WithTokenFile(b.tokenFile))
	}
	return daemon.Open(ctx, url, options)
}

// make runs the command and forwards its output.
func (b build) make(ctx context.Context, machine client.Environment, directory string) (client.Exit, error) {
	process, err := machine.Start(ctx, client.StartOptions{
		Process:   client.Command{Argv: b.command, Dir: directory, Env: b.env}.Request(),
		OnLost:    func(error) { fmt.Fprintln(os.Stderr, "the connection was lost") },
		OnResumed: func() { fmt.Fprintln(os.Stderr, "the connection was restored") },
	})
	if err != nil {
		return client.Exit{}, err
	}
	defer func() { _ = process.Close() }() // it always succeeds
	for event, err := range process.Events(ctx) {
		if err != nil {
			return client.Exit{}, err
		}
		output, ok := event.(*client.OutputEvent)
		if !ok {
			continue
		}
		to := os.Stdout
		if output.Stream == execwirev1.OutputStream_OUTPUT_STREAM_STDERR {
			to = os.Stderr
		}
		if _, err := to.Write(output.Data); err != nil {
			return client.Exit{}, err
		}
	}
	return process.Wait(ctx)
}

// clear removes the copy, even if ctx has ended.
func (b build) clear(ctx context.Context, machine client.Environment, directory string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return machine.RemoveAll(ctx, directory)
}
