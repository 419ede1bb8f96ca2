package daemon

import (
	"context"
	"fmt"

	"github.com/execwire/execwire/client"
)

// LocalURL stands for a server inside this program, where URLs say which server.
const LocalURL = "local:"

// OpenOptions are how [Open] reaches a server, or makes one. The zero value is
// usable.
type OpenOptions struct {
	// Dial are options of [client.Dial], for servers elsewhere.
	Dial []client.Option
	// Config are the settings of a server inside this program; nil is
	// [DefaultConfig]. What it says of listeners, a relay and principals has no
	// effect: nobody else can reach that server.
	Config *Config
	// Daemon is what such a server needs beside.
	Daemon Options
}

// Open returns a client of the server that rawURL names, so that a URL in a
// configuration chooses where things are done. With [LocalURL], or none, that is a
// server inside this program, whose main function has to call [Main] first of all
// if anything is to be confined; closing the client ends that server and all its
// processes. Every other URL is one of [client.Dial], whose errors Open returns.
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
