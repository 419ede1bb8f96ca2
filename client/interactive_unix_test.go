//go:build unix

package client_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/term"

	"github.com/execwire/execwire/client"
)

// Interactive passes keys, Ctrl-C and sizes, and restores the terminal.
func TestInteractive(t *testing.T) {
	master, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	defer func(in, out *os.File) { os.Stdin, os.Stdout = in, out }(os.Stdin, os.Stdout)
	os.Stdin, os.Stdout = terminal, terminal
	resize := func(rows uint16) {
		if err := pty.Setsize(master, &pty.Winsize{Rows: rows, Cols: 100}); err != nil {
			t.Fatal(err)
		}
	}
	resize(30)
	before, err := term.GetState(int(master.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TERM", "vt52")
	c := open(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	type result struct {
		exit  client.Exit
		err   error
		after *term.State
	}
	results := make(chan result, 1)
	go func() {
		defer terminal.Close() // ends the reads below
		exit, err := c.Interactive(ctx, client.Command{Argv: client.Shell(`trap 'exit 3' INT; stty size; echo $TERM
read line; echo "got $line"; while [ "$(stty size)" = "30 100" ]; do sleep 0.05; done; stty size; while :; do sleep 0.05; done`)})
		after, _ := term.GetState(int(master.Fd()))
		results <- result{exit, err, after}
	}()
	output := bufio.NewReader(master)
	expect := func(want string) {
		t.Helper()
		for {
			line, err := output.ReadString('\n')
			if strings.TrimSpace(line) == want {
				return
			}
			if err != nil {
				t.Fatalf("instead of %q: %v, %+v", want, err, <-results)
			}
		}
	}
	press := func(keys string) {
		if _, err := master.WriteString(keys); err != nil {
			t.Fatal(err)
		}
	}
	expect("30 100")
	expect("vt52")
	press("hello\r")
	expect("got hello")
	resize(40)
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = errors.Join(self.Signal(syscall.SIGWINCH), self.Release())
	}
	if err != nil {
		t.Fatal(err)
	}
	expect("40 100")
	press("\x03")
	if got := <-results; got.err != nil || got.exit.Code != 3 || !reflect.DeepEqual(before, got.after) {
		t.Errorf("ended with %+v, %v; the terminal is restored: %v", got.exit, got.err, reflect.DeepEqual(before, got.after))
	}
	os.Stdin = master
	if _, err := c.Interactive(ctx, client.Command{Argv: []string{"true"}}); err == nil || !strings.Contains(err.Error(), "not a terminal") {
		t.Errorf("without a terminal: %v", err)
	}
}
