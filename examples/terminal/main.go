//go:build unix

// Command terminal runs a program of another machine at this terminal, as ssh -t does.
//
//	terminal tcp://127.0.0.1:7420 vim notes.txt
//
// Keys, Ctrl-C among them, are for the program, and so are changes of the window's size. While
// the connection is lost the program continues; what was typed and printed meanwhile follows.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: terminal URL PROGRAM [ARGUMENT]...")
		os.Exit(2)
	}
	exit, err := interact(context.Background(), os.Args[1], os.Args[2:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "terminal:", err)
		os.Exit(255)
	}
	os.Exit(exit.ShellCode())
}

func interact(ctx context.Context, url string, argv []string) (client.Exit, error) {
	machine, err := client.Dial(ctx, url)
	if err != nil {
		return client.Exit{}, err
	}
	defer machine.Close()
	keyboard := int(os.Stdin.Fd())
	before, err := term.MakeRaw(keyboard)
	if err != nil {
		return client.Exit{}, fmt.Errorf("stdin is not a terminal: %w", err)
	}
	defer term.Restore(keyboard, before)

	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	defer signal.Stop(changed)
	sizes := make(chan *execwirev1.TerminalSize)
	go func() {
		for range changed {
			sizes <- size(keyboard)
		}
	}()
	command := client.Command{Argv: argv, Env: map[string]string{"TERM": os.Getenv("TERM")}, Terminal: size(keyboard)}
	return machine.Run(ctx, client.RunOptions{
		Process:   command.Request(),
		Stdin:     os.Stdin,
		Stdout:    os.Stdout,
		Resize:    sizes,
		OnLost:    func(error) { notice("connection lost") },
		OnResumed: func() { notice("connection restored") },
	})
}

func size(terminal int) *execwirev1.TerminalSize {
	columns, rows, _ := term.GetSize(terminal) // without a size it is 0, for the default
	return &execwirev1.TerminalSize{Rows: uint32(rows), Columns: uint32(columns)}
}

// notice prints a line on a terminal in raw mode, in which a newline is no carriage return.
func notice(text string) { fmt.Fprintf(os.Stderr, "\r\n[%s]\r\n", text) }
