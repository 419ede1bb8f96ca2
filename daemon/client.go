package daemon

import (
	"context"
	"fmt"

	"github.com/execwire/execwire/client"
)

// LocalURL is the URL of a server inside this program.
const LocalURL = "local:"

// OpenOptions are the options of [Open]. The zero value is usable.
type OpenOptions struct {
	// Dial are options of [client.Dial], for other servers.
	Dial []client.Option
	// Config is the configuration of a server inside this program; nil is
	// [DefaultConfig]. Its listeners, relay and principals have no effect: only this
	// client can reach the server.
	Config *Config
	// Daemon are options of a server inside this program.
	Daemon Options
}

// Open returns a client of the server that rawURL names, so that a configured URL
// decides where work is done. With [LocalURL] or an empty URL, Open starts a server
// inside this program; closing the client ends that server and all its processes. The
// main function must call [Main] first, or sandboxes do not work. Every other URL is
// passed to [client.Dial].
func Open(ctx context.Context, rawURL string, options OpenOptions) (*client.Client, error) {
	if rawURL != "" && rawURL != LocalURL {
		return client.Dial(ctx, rawURL, options.Dial...)
	}
	cfg := DefaultConfig()
	if options.Config != nil {
		cfg = *options.Config
	}
	cfg.Principals = ""
	d, err := New(cfg, options.Daemon)
	if err != nil {
		return nil, fmt.Errorf("failed to start a server in this program: %w", err)
	}
	return client.NewOwning(d.Conn(), d), nil
}
