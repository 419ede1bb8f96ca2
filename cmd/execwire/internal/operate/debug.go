package operate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/execwire/execwire/client"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/tty"
)

func (p Program) newDebug() *cobra.Command {
	var output, duration string
	command := &cobra.Command{
		Use:   "debug [-o FILE] [-d TIME] cpu|heap|goroutine|mutex|trace|goroutines|state",
		Short: "Look into a running server",
		Long: `debug gets a profile of the server itself, and writes it to FILE or stdout: cpu, heap,
goroutine and mutex for go tool pprof, trace for go tool trace, and goroutines, the stack
of each one, as text. cpu, mutex and trace take time. state is the state of all sessions
and of the logs of their processes, as JSON.

One profile of a kind is taken at a time. A profile has at most 64 MiB. It needs the
permission admin. Arguments, environments and output of processes are in none of them.`,
		Example: `  execwire debug -d 30s -o cpu.pb.gz cpu
  execwire debug goroutines | less`,
		Args: p.OneArgument,
	}
	f := command.Flags()
	f.StringVarP(&output, "output", "o", "", "the `file` to write; it is replaced (default stdout)")
	f.StringVarP(&duration, "duration", "d", "10s", "how long cpu, mutex and trace take, 100ms to 5m")
	p.OnServer(command, func(ctx context.Context, c *client.Client, arguments []string) error {
		if len(arguments) == 0 {
			return errors.New("name a profile: " + profileNames)
		}
		kind := execwirev1.ProfileKind(execwirev1.ProfileKind_value["PROFILE_KIND_"+strings.ToUpper(arguments[0])])
		took, err := config.ParseDuration(duration)
		switch {
		case err != nil:
			return fmt.Errorf("--duration cannot be %q: write a time, for example 30s", duration)
		case kind == 0 && arguments[0] != "state":
			return fmt.Errorf("there is no profile %q: write %s", arguments[0], profileNames)
		case kind != 0 && kind != execwirev1.ProfileKind_PROFILE_KIND_GOROUTINES && output == "" && tty.Is(p.Out):
			return fmt.Errorf("a profile %s is not for a terminal: write it to a file by -o", arguments[0])
		}
		var content []byte
		if kind == 0 {
			content, err = state(ctx, c)
		} else {
			content, err = profile(ctx, c, &execwirev1.TakeProfileRequest{Kind: kind, Duration: durationpb.New(took)})
		}
		switch {
		case err != nil: // a file keeps what it had
			return err
		case output != "":
			return os.WriteFile(output, content, 0o600)
		}
		_, err = p.Out.Write(content)
		return err
	})
	return command
}

const profileNames = "cpu, heap, goroutine, mutex, trace, goroutines or state"

func state(ctx context.Context, c *client.Client) ([]byte, error) {
	status, err := c.Admin().GetStatus(ctx, &execwirev1.GetStatusRequest{MaxProcesses: 10000})
	if err != nil {
		return nil, err
	}
	return []byte(protojson.MarshalOptions{Multiline: true, UseProtoNames: true}.Format(status) + "\n"), nil
}

// profile returns a profile, which the server bounds.
func profile(ctx context.Context, c *client.Client, request *execwirev1.TakeProfileRequest) (content []byte, err error) {
	stream, err := c.Admin().TakeProfile(ctx, request)
	if err != nil {
		return nil, err
	}
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return content, nil
		}
		if err != nil {
			return nil, err
		}
		content = append(content, part.GetData()...)
	}
}
