// Package config holds every setting of the daemon: its name, default, unit,
// range and meaning, in one place. Settings come, later ones winning, from
// their defaults, a TOML file and the environment (EXECWIRE_ and the name in
// upper case); command line flags are laid over the result by the caller.
package config

import "time"

// Config is a complete configuration. The zero value is not usable: begin with
// [Default]. A field's tags are its documentation; docs/configuration.md is
// made from them. The struct is plain data and safe to copy.
type Config struct {
	// Listen is where the daemon accepts clients.
	Listen []string `name:"listen" default:"grpc://127.0.0.1:7420" unit:"URLs" help:"Where clients are accepted: grpc://HOST:PORT on loopback, unix:///PATH, or off."`

	// RetainedOutput bounds the output kept per process.
	RetainedOutput Bytes `name:"retained_output_bytes" default:"1MiB" unit:"bytes" min:"64KiB" max:"1GiB" help:"Output kept per process, over all its streams."`
	// RetainedEvents bounds the events kept per process.
	RetainedEvents Count `name:"retained_events" default:"50000" unit:"events" min:"100" max:"10000000" help:"Events kept per process."`
	// Window bounds the output its owner has not acknowledged.
	Window Bytes `name:"window_bytes" default:"0" unit:"bytes" min:"0" max:"1GiB" help:"Output that the owner of a process may leave unacknowledged before the process blocks. 0 means retained_output_bytes, and it is never more."`
	// Snapshot bounds head and tail of each stream.
	Snapshot Bytes `name:"snapshot_bytes" default:"64KiB" unit:"bytes" min:"1KiB" max:"16MiB" help:"Head and tail kept per stream for SnapshotOutput, each."`
	// Readers bounds the readers of one process.
	Readers Count `name:"readers_per_process" default:"64" unit:"readers" min:"1" max:"10000" help:"Readers that may watch one process at once."`
	// StdinWrite bounds one write to stdin.
	StdinWrite Bytes `name:"stdin_write_bytes" default:"1MiB" unit:"bytes" min:"4KiB" max:"3MiB" help:"The largest single write to a process's stdin."`
	// StdinQueue bounds what waits for a process to read it.
	StdinQueue Bytes `name:"stdin_queue_bytes" default:"1MiB" unit:"bytes" min:"4KiB" max:"64MiB" help:"Bytes queued for a process's stdin before writers wait. At least stdin_write_bytes."`
	// Message bounds one incoming message.
	Message Bytes `name:"message_bytes" default:"4MiB" unit:"bytes" min:"4MiB" max:"64MiB" help:"The largest message the server takes."`
	// Streams bounds the calls of one connection.
	Streams Count `name:"streams_per_connection" default:"1000" unit:"streams" min:"10" max:"100000" help:"Calls that one connection may have open at once, those that run or watch a process among them. Clients hold further ones back until others end."`
	// HeaderList bounds the metadata of one call.
	HeaderList Bytes `name:"header_list_bytes" default:"64KiB" unit:"bytes" min:"8KiB" max:"1MiB" help:"The largest metadata of a call, all names and values together. A call with more fails."`

	// DefaultGrace is how long a process outlives the loss of its owner.
	DefaultGrace Duration `name:"default_grace" default:"30s" unit:"duration" min:"0s" max:"24h" help:"How long a process that lost its owner is kept before it is terminated, unless the owner asked for another time."`
	// MaxGrace bounds what an owner may ask for.
	MaxGrace Duration `name:"max_grace" default:"24h" unit:"duration" min:"0s" max:"720h" help:"The longest grace an owner may ask for. At least default_grace."`
	// ClosedRetention is how long records of closed processes stay.
	ClosedRetention Duration `name:"closed_process_retention" default:"30s" unit:"duration" min:"0s" max:"24h" help:"How long the record of a closed process is kept, its id taken and its output readable."`
	// MaxWait bounds one blocking call.
	MaxWait Duration `name:"max_wait" default:"10m" unit:"duration" min:"1s" max:"24h" help:"The longest wait of one ReadOutput or WaitProcess."`
	// ShutdownGrace is how long processes may go on after SIGTERM.
	ShutdownGrace Duration `name:"shutdown_grace_period" default:"10s" unit:"duration" min:"0s" max:"24h" help:"How long processes may go on after the server was told to stop."`

	// KeepaliveInterval is how often a silent connection is asked.
	KeepaliveInterval Duration `name:"keepalive_interval" default:"30s" unit:"duration" min:"1s" max:"1h" help:"How long a connection may be silent before the server asks whether the peer is there."`
	// KeepaliveTimeout is how long the answer may take.
	KeepaliveTimeout Duration `name:"keepalive_timeout" default:"10s" unit:"duration" min:"1s" max:"10m" help:"How long the answer to that may take before the connection counts as lost."`
}

// Bytes is a size. It is written as a number of bytes, or with a unit KiB, MiB
// or GiB.
type Bytes int64

// Count is a number of things.
type Count int64

// Duration is a time span in Go's notation, e.g. "30s" or "1h30m".
type Duration time.Duration

// Default returns the configuration of a daemon that was told nothing.
func Default() Config {
	var cfg Config
	for _, s := range settings(&cfg) {
		if err := s.set(s.Default); err != nil {
			panic("config: default of " + s.Name + ": " + err.Error())
		}
	}
	return cfg
}

// Validate reports the first setting that is out of its range or contradicts
// another, as an [*Error] that names it.
func (c *Config) Validate() error {
	for _, s := range settings(c) {
		if err := s.check(); err != nil {
			return err
		}
	}
	if c.MaxGrace < c.DefaultGrace {
		return &Error{Setting: "max_grace", Problem: "is below default_grace", Fix: "raise it to at least " + time.Duration(c.DefaultGrace).String()}
	}
	if c.StdinQueue < c.StdinWrite {
		return &Error{Setting: "stdin_queue_bytes", Problem: "is below stdin_write_bytes", Fix: "raise it to at least " + c.StdinWrite.String()}
	}
	return nil
}
