package recording

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/execwire/execwire/client"
)

// cancelConn is a channel to a server with a quiet process, whose second call ends a context.
type cancelConn struct {
	grpc.ClientConnInterface
	calls  int
	cancel func()
}

func (c *cancelConn) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	if c.calls++; c.calls == 2 {
		c.cancel()
	}
	return nil
}

func (*cancelConn) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, context.Cause(ctx)
}

// A signal is the way to end a recording, and hides no error of its file.
func TestRecord_Interrupted_ReportsErrorsOfTheFile(t *testing.T) {
	for path, want := range map[string]error{os.DevNull: nil, "/dev/full": syscall.ENOSPC} {
		out, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		reported, stderr, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		p := Program{Out: out, Err: stderr, AddSession: func(*cobra.Command, *string) {}}
		p.OnServer = func(command *cobra.Command, do func(context.Context, *client.Client, []string) error) {
			command.RunE = func(command *cobra.Command, arguments []string) error {
				ctx, cancel := context.WithCancel(command.Context())
				return do(ctx, client.New(&cancelConn{cancel: cancel}), arguments)
			}
		}
		command := p.newRecord()
		command.SetArgs([]string{"-o", "-", "shell"})
		command.SilenceErrors, command.SilenceUsage = true, true
		if err := command.ExecuteContext(t.Context()); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
		_ = stderr.Close()
		if text, err := io.ReadAll(reported); err != nil || strings.Contains(string(text), "not complete") != (want != nil) {
			t.Errorf("%s: %q, %v", path, text, err)
		}
		_, _ = reported.Close(), out.Close()
	}
}

// A speed is a number that makes sense.
func TestPlay_Speed(t *testing.T) {
	for speed, valid := range map[string]bool{"1": true, "0.01": true, "1e9": true, "0": false, "-1": false, "NaN": false, "1e-300": false} {
		var refused error
		p := Program{
			UntilSignal: func(context.Context, func(context.Context) error) error { return nil },
			Usage:       func(_ *cobra.Command, err error) error { refused = err; return nil },
		}
		command := p.newPlay()
		command.SetArgs([]string{"--speed", speed, "file"})
		if err := command.Execute(); err != nil || (refused == nil) != valid {
			t.Errorf("--speed %s: %v, %v", speed, refused, err)
		}
	}
}
