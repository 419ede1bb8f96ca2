// Package console has the command that shows the console.
package console

import (
	"context"
	"fmt"
	"html"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/internal/console"
	"github.com/execwire/execwire/internal/tty"
)

// Program is what the command needs of its program.
type Program struct {
	// OnServer adds the flags that select a server to a command, and makes the command call
	// do with a client of that server, and a context that ends with SIGINT and SIGTERM. It
	// explains the errors of do.
	OnServer func(command *cobra.Command, do func(ctx context.Context, c *client.Client, arguments []string) error)
	// NoArguments refuses arguments.
	NoArguments cobra.PositionalArgs
	// Usage is the error for an invalid command line.
	Usage func(*cobra.Command, error) error
	// Out and Err are the standard output and error.
	Out, Err *os.File
}

// NewCommand returns the command.
func NewCommand(p Program) *cobra.Command {
	var options struct {
		listen string
		noOpen bool
	}
	command := &cobra.Command{
		Use:   "console [--listen HOST:PORT] [--no-open]",
		Short: "Show a server in the browser",
		Long: `console serves a web page for one server, and opens it in the browser: its processes
with their output and terminals, its files, and what it uses.

The page is served on loopback, by this command, until it ends with SIGINT or SIGTERM.
The link opens it once, in one browser; it may do all that this command may. The page
makes links for further browsers. A link is also printed on stdout.

Processes that the page starts have no owner: they go on when it is closed.`,
		Example: `  execwire console
  execwire console --server tls://build.example.org:7420 --no-open
  execwire console --hub https://hub.example.org --executor build-1`,
		Args: p.NoArguments,
	}
	f := command.Flags()
	f.StringVar(&options.listen, "listen", "127.0.0.1:0", "the loopback `address` of the page, HOST:PORT; port 0 takes a free one")
	f.BoolVar(&options.noOpen, "no-open", false, "only print the link")
	p.OnServer(command, func(ctx context.Context, c *client.Client, _ []string) error {
		listener, err := listenLoopback(options.listen)
		if err != nil {
			return p.Usage(command, err)
		}
		page := console.New(listener, c.Conn())
		link := page.Link()
		if _, err := fmt.Fprintln(p.Out, link); err != nil {
			_ = listener.Close()
			return err
		}
		if !options.noOpen && tty.Is(p.Out) {
			dir, err := openLink(link)
			defer func() { _ = os.RemoveAll(dir) }()
			if err != nil {
				fmt.Fprintf(p.Err, "execwire: open the link in a browser: %v\n", err)
			}
		}
		return page.Serve(ctx)
	})
	return command
}

// listenLoopback listens on an address that only this host can reach.
func listenLoopback(address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("--listen %s is not an address: write it as 127.0.0.1:PORT", address)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("--listen %s is not on loopback, and the page is not encrypted: write it as 127.0.0.1:PORT, and reach it from elsewhere by ssh -L", address)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("failed to listen: %w", err)
	}
	return listener, nil
}

// openLink opens a link in the user's browser by way of a file in a new directory, which the
// caller removes: other users see the arguments of programs, and the link is a secret.
func openLink(link string) (dir string, err error) {
	if dir, err = os.MkdirTemp("", "execwire-console-"); err != nil {
		return "", err
	}
	file := filepath.Join(dir, "open.html")
	page := fmt.Sprintf("<!doctype html><meta charset=utf-8><meta http-equiv=refresh content=\"0; url=%[1]s\"><title>Execwire console</title><a href=\"%[1]s\">Open the console</a>\n",
		html.EscapeString(link))
	if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
		return dir, err
	}
	return dir, open((&url.URL{Scheme: "file", Path: filepath.ToSlash(file)}).String())
}

// open opens a URL in the user's browser, and does not wait for it.
func open(location string) error {
	name, arguments := "xdg-open", []string{location}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, arguments = "rundll32", []string{"url.dll,FileProtocolHandler", location}
	}
	command := exec.Command(name, arguments...)
	if err := command.Start(); err != nil {
		return err
	}
	go func() { _ = command.Wait() }()
	return nil
}
