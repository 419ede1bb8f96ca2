package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/daemon"
	"github.com/execwire/execwire/relay/executor"
)

// A URL selects the server that runs the commands. Without a URL they run in this process.
func ExampleOpen() {
	ctx := context.Background()
	environment, err := daemon.Open(ctx, os.Getenv("MY_PROGRAM_EXECUTOR"), daemon.OpenOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer environment.Close()
	out, err := environment.Output(ctx, client.Command{Argv: []string{"echo", "hello"}})
	fmt.Printf("%s%v\n", out, err)
	// Output:
	// hello
	// <nil>
}

// A program can use a server that it embeds without a network connection.
func ExampleNew() {
	d, err := daemon.New(daemon.DefaultConfig(), daemon.Options{Version: "1.0"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer d.Close()
	c := client.New(d.Conn())
	exit, err := c.Run(context.Background(), client.RunOptions{
		Process: client.Command{Argv: []string{"sh", "-c", "echo working; exit 3"}}.Request(),
		Stdout:  os.Stdout,
	})
	fmt.Println(exit.Code, err)
	// Output:
	// working
	// 3 <nil>
}

// Run serves until its context ends.
func ExampleRun() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	cfg := daemon.DefaultConfig()
	cfg.Listen = []string{"unix://" + filepath.Join(dir, "socket")}
	listening, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- daemon.Run(ctx, cfg, daemon.Options{OnListen: func(url string) { listening <- url }})
	}()

	c, err := client.Dial(ctx, <-listening)
	if err != nil {
		fmt.Println(err)
		return
	}
	out, err := c.Output(ctx, client.Command{Argv: []string{"echo", "over a socket"}})
	fmt.Printf("%s%v\n", out, err)
	c.Close()
	stop()
	fmt.Println(<-ended)
	// Output:
	// over a socket
	// <nil>
	// <nil>
}

// An executor reconnects to its hub until the hub rejects it.
func ExampleRunExecutor() {
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "unknown executor", http.StatusForbidden)
	}))
	defer hub.Close()
	remote := daemon.RemoteExecutor{URL: hub.URL, ID: "build-1"}
	err := daemon.RunExecutor(context.Background(), remote, daemon.DefaultConfig(), daemon.Options{})
	var refused *executor.StatusError
	if errors.As(err, new(*daemon.RemoteError)) && errors.As(err, &refused) {
		fmt.Println("refused with", refused.Status)
	}
	// Output:
	// refused with 403
}

// The error for a bad URL has a kind and a message.
func ExampleParseListenURL() {
	_, err := daemon.ParseListenURL("grpc://192.0.2.1:7420")
	if wrong, ok := errors.AsType[*daemon.ListenURLError](err); ok {
		fmt.Println(wrong.Kind, "-", wrong.Problem)
	}
	// Output:
	// not loopback - host 192.0.2.1 is not a loopback address, and anyone who can connect could run commands
}
