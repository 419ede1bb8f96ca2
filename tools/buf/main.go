// Command buf is github.com/bufbuild/buf/cmd/buf with only the commands that the Makefile,
// scripts and tests call: those for its registry, containers and editors take a quarter of
// the time to compile. Its module lies, by name, below cmd/buf, whose packages are internal
// to that.
package main

import (
	"context"
	"fmt"

	"buf.build/go/app/appcmd"
	"buf.build/go/app/appext"
	"github.com/bufbuild/buf/cmd/buf/internal/command/breaking"
	"github.com/bufbuild/buf/cmd/buf/internal/command/build"
	"github.com/bufbuild/buf/cmd/buf/internal/command/curl"
	"github.com/bufbuild/buf/cmd/buf/internal/command/format"
	"github.com/bufbuild/buf/cmd/buf/internal/command/generate"
	"github.com/bufbuild/buf/cmd/buf/internal/command/lint"
	"github.com/bufbuild/buf/private/buf/bufcli"
	"github.com/bufbuild/buf/private/pkg/slogapp"
)

func main() {
	builder := appext.NewBuilder(
		"buf",
		appext.BuilderWithInterceptor(describeError),
		appext.BuilderWithLoggerProvider(slogapp.LoggerProvider),
	)
	appcmd.Main(context.Background(), &appcmd.Command{
		Use:                 "buf",
		Short:               "Check, format and compile .proto files",
		Version:             bufcli.Version,
		BindPersistentFlags: builder.BindRoot,
		SubCommands: []*appcmd.Command{
			breaking.NewCommand("breaking", builder),
			build.NewCommand("build", builder),
			curl.NewCommand("curl", builder),
			format.NewCommand("format", builder),
			generate.NewCommand("generate", builder),
			lint.NewCommand("lint", builder),
		},
	})
}

// describeError marks the message of an error; what commands find in files is in none.
func describeError(next func(context.Context, appext.Container) error) func(context.Context, appext.Container) error {
	return func(ctx context.Context, container appext.Container) error {
		err := next(ctx, container)
		if err == nil || err.Error() == "" {
			return err
		}
		return fmt.Errorf("Failure: %w", err)
	}
}
