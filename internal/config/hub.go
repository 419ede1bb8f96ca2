package config

import (
	"fmt"
	"net/url"
	"path/filepath"
	"time"
)

// Hub is a complete configuration of a hub of the relay. The zero value is not
// usable: begin with [DefaultHub]. A field's tags are its documentation;
// docs/hub.md is made from them. The struct is plain data and safe to copy.
type Hub struct {
	// Listen is where executors and harnesses come.
	Listen []string `name:"listen" default:"http://127.0.0.1:7430" unit:"URLs" help:"Where executors and harnesses come: https://HOST:PORT with TLS, or http://HOST:PORT on loopback. HOST is an address of this machine."`
	// PublicURL is where the hub is reached.
	PublicURL string `name:"public_url" default:"" unit:"text" help:"Where the hub is reached from elsewhere, as https://HOST. Executors and harnesses are sent there. Empty is where each of them came, which is wrong behind a proxy that ends TLS."`
	// AllowHTTP is whether http is for other hosts, too.
	AllowHTTP string `name:"allow_http" default:"off" unit:"choice" help:"Whether http:// may be listened on beyond loopback, where tokens and everything else travel in plain text: on or off. For networks all of which is trusted, and for proxies that end TLS."`

	// TLSCertificate is the hub's certificate chain.
	TLSCertificate string `name:"tls_certificate_file" default:"" unit:"path" help:"The certificate chain of https:// listeners, as PEM. Read again when it changes."`
	// TLSKey is the key to it.
	TLSKey string `name:"tls_key_file" default:"" unit:"path" help:"The private key to it, as PEM. Nobody but the hub's user may be able to read it. Read again when it changes."`
	// TLSClientCA is who signs clients' certificates.
	TLSClientCA string `name:"tls_client_ca_file" default:"" unit:"path" help:"The authorities whose client certificates are accepted, as PEM. Empty accepts none. Read again when it changes."`
	// Principals is the table of who may be and use which executors.
	Principals string `name:"principals_file" default:"" unit:"path" help:"The table of principals: who is let in by what, and which executors each may be (act_as_executors) and use (connect_to_executors); see docs/security.md. Empty lets those of loopback_users do everything on loopback. Read again when it changes."`
	// LoopbackUsers are who is accepted on loopback without a credential.
	LoopbackUsers []string `name:"loopback_users" default:"same" unit:"names" help:"Users whose processes are accepted on loopback without a token or a certificate, beside the hub's user and root, who always are: names or numbers. same adds none; any accepts the processes of all users, who then may be and use every executor where there is no table of principals."`
	// FailedAttempts bounds failed authentication per address.
	FailedAttempts Count `name:"failed_attempts" default:"10" unit:"attempts" min:"1" max:"10000" help:"Failed attempts to authenticate that one address may make before more are refused."`
	// FailedAttemptInterval is how fast an address is forgiven.
	FailedAttemptInterval Duration `name:"failed_attempt_interval" default:"2s" unit:"duration" min:"10ms" max:"1h" help:"How long it takes until a failed attempt of an address is forgiven."`
	// Origins are the browsers' that are let in.
	Origins []string `name:"allowed_origins" default:"" unit:"origins" help:"Values of the Origin header with which requests are let in, for example https://app.example.org. Any other is refused, so that web pages cannot connect."`

	// Node names the hub among those that share a presence.
	Node string `name:"node" default:"" unit:"text" help:"What this hub is called among those that share their presence. Empty is the name of the host."`
	// Presence is where it is kept which executors there are.
	Presence string `name:"presence" default:"memory" unit:"choice" help:"Where it is kept which executors there are: memory, or nats, which is an embedded NATS server with JetStream."`
	// PresenceDirectory is where NATS keeps its files.
	PresenceDirectory string `name:"presence_directory" default:"" unit:"path" help:"The directory in which nats keeps its files, so that executors are known after a restart. Empty keeps them in memory. Nobody else may use it."`
	// ClusterListen is where the NATS servers of other nodes come.
	ClusterListen string `name:"cluster_listen" default:"" unit:"text" help:"HOST:PORT where the nats of other nodes connect to this one. Empty is a hub of one node. Who reaches it is one of the hub: it belongs in a private network."`
	// ClusterRoutes are the other nodes.
	ClusterRoutes []string `name:"cluster_routes" default:"" unit:"names" help:"The cluster_listen of the other nodes, as HOST:PORT. What is kept is kept at three nodes, or at one if there are fewer."`
	// URLKey signs URLs.
	URLKey string `name:"url_key_file" default:"" unit:"path" help:"The secret that URLs are signed with, of 32 bytes or more, and the same at all nodes. Nobody but the hub's user may be able to read it. Empty is a random one, with which those URLs end when the hub does."`

	// Frame bounds one frame.
	Frame Bytes `name:"frame_bytes" default:"16MiB" unit:"bytes" min:"64KiB" max:"64MiB" help:"The largest frame that is routed. The websocket that sends a larger one is closed with code 1009. Peers that do not segment send whole messages in one."`
	// Queue bounds one direction of a stream that is retransmitted.
	Queue Bytes `name:"stream_queue_bytes" default:"2112KiB" unit:"bytes" min:"128KiB" max:"1GiB" help:"What may wait for one end of a stream whose ends retransmit: one window of theirs. More is dropped, to be sent again, and the stream is reset once nothing has left for stream_grace."`
	// PlainQueue bounds one of another stream.
	PlainQueue Bytes `name:"plain_stream_queue_bytes" default:"16MiB" unit:"bytes" min:"128KiB" max:"1GiB" help:"The same of a stream with an end that does not retransmit, and has no window either. It is reset when more comes."`
	// ConnectionQueue bounds all of one websocket.
	ConnectionQueue Bytes `name:"connection_queue_bytes" default:"64MiB" unit:"bytes" min:"1MiB" max:"16GiB" help:"What may wait for one websocket, over all its streams."`
	// TotalQueue bounds all of them.
	TotalQueue Bytes `name:"queue_bytes_total" default:"1GiB" unit:"bytes" min:"1MiB" max:"1024GiB" help:"What may wait for all websockets together; and as much again for large frames that are being received, for which the slowest of the heaviest principal gives way (code 1013)."`
	// IncomingRate is the rate below which a frame counts as stalled.
	IncomingRate Bytes `name:"min_incoming_bytes_per_second" default:"16KiB" unit:"bytes" min:"1" max:"1GiB" help:"The rate in bytes per second below which a large frame that is being received gives way to others once such frames take queue_bytes_total. Those of a principal or a connection within its equal share are taken in any case."`
	// Connections bounds the connections of one listener.
	Connections Count `name:"connections_per_listener" default:"10000" unit:"connections" min:"1" max:"1000000" help:"Connections that principals have of one listener at once. When there are as many, the principal with the most gives one up to another principal: the one that is idle for longest or, if all are in use, the one that was used least recently. A further one of the same principal takes the place of one that is idle, or is refused. An eighth more connections may be there on which no principal is authenticated yet: the oldest gives way."`
	// PrincipalConnections bounds the websockets of one principal.
	PrincipalConnections Count `name:"connections_per_principal" default:"1024" unit:"connections" min:"1" max:"1000000" help:"Websockets that one principal has at once, executors' and harnesses' together. Further ones are refused."`
	// ConnectionStreams bounds the streams of one websocket.
	ConnectionStreams Count `name:"streams_per_connection" default:"1024" unit:"streams" min:"1" max:"1000000" help:"Streams that one websocket of a harness has at once. Further ones are reset."`
	// PrincipalStreams bounds those of one principal.
	PrincipalStreams Count `name:"streams_per_principal" default:"4096" unit:"streams" min:"1" max:"1000000" help:"Streams that all websockets of one principal have at once. Further ones are reset."`
	// ExecutorStreams bounds those of one executor.
	ExecutorStreams Count `name:"streams_per_executor" default:"4096" unit:"streams" min:"1" max:"1000000" help:"Streams that one executor has at once. Further ones are reset."`
	// Executors bounds those that are known.
	Executors Count `name:"executors" default:"10000" unit:"executors" min:"1" max:"1000000" help:"Executors that are known, connected or not. For a further one the hub forgets one that is away: of the principal with the most, the one that is away longest. If none is away for url_lifetime and four times presence_interval, the registration is refused."`
	// PrincipalExecutors bounds those of one principal.
	PrincipalExecutors Count `name:"executors_per_principal" default:"2048" unit:"executors" min:"1" max:"1000000" help:"Of these, executors that one principal has registered. For a further one the hub forgets the principal's executor that is away longest, or refuses the registration likewise."`

	// StreamGrace is how long an end may be away.
	StreamGrace Duration `name:"stream_grace" default:"30s" unit:"duration" min:"1s" max:"1h" help:"How long an end that retransmits may be away before its streams are reset."`
	// StreamIdle is when a stream is forgotten.
	StreamIdle Duration `name:"stream_idle" default:"2m" unit:"duration" min:"30s" max:"24h" help:"After how long without a frame a stream is forgotten whose ends retransmit: they say something every few seconds."`
	// URLLifetime is how long URLs are good.
	URLLifetime Duration `name:"url_lifetime" default:"5m" unit:"duration" min:"1s" max:"24h" help:"How long the URL that an executor or a harness is given lets it connect."`
	// ExecutorRetention is how long executors are known.
	ExecutorRetention Duration `name:"executor_retention" default:"168h" unit:"duration" min:"1m" max:"8760h" help:"How long an executor that is away is known at least, once there are as many as executors allows, if its principal has no more of them than the one whose executor needs the place. One that never connected gives way sooner."`
	// PresenceInterval is how often executors are seen.
	PresenceInterval Duration `name:"presence_interval" default:"15s" unit:"duration" min:"1s" max:"10m" help:"How often it is kept that a connected executor is there. One whose node has not said so for four times as long is not."`

	// PingInterval is how often websockets are pinged.
	PingInterval Duration `name:"websocket_ping_interval" default:"30s" unit:"duration" min:"0s" max:"1h" help:"Time between pings to websockets. 0s sends none."`
	// KeepaliveInterval is how often a silent connection is asked.
	KeepaliveInterval Duration `name:"keepalive_interval" default:"30s" unit:"duration" min:"1s" max:"1h" help:"How long a connection may be silent before the kernel asks whether the peer is there."`
	// KeepaliveTimeout is how long the answer may take.
	KeepaliveTimeout Duration `name:"keepalive_timeout" default:"10s" unit:"duration" min:"1s" max:"10m" help:"How long the answer to that may take before the connection counts as lost."`
}

// HubSettings lists every setting of a hub in the order of the documentation.
func HubSettings() []Setting { return hubSettings(new(Hub)) }

func hubSettings(h *Hub) []Setting { return settingsOf(h, HubEnvironmentPrefix) }

// DefaultHub returns the configuration of a hub that was told nothing.
func DefaultHub() Hub {
	var cfg Hub
	for _, s := range hubSettings(&cfg) {
		if err := s.set(s.Default); err != nil {
			panic("config: default of " + s.Name + ": " + err.Error())
		}
	}
	return cfg
}

// LoadHub is [Load] for a hub.
func LoadHub(path string, environ []string, over ...func(*Hub)) (Hub, error) {
	cfg := DefaultHub()
	if path != "" {
		if err := loadFile(hubSettings(&cfg), path, "docs/hub.md lists them"); err != nil {
			return Hub{}, err
		}
	}
	if err := loadEnvironment(hubSettings(&cfg), environ); err != nil {
		return Hub{}, err
	}
	if err := refuseMisspelled(UnknownHubVariables(environ), "docs/hub.md lists them"); err != nil {
		return Hub{}, err
	}
	for _, change := range over {
		change(&cfg)
	}
	return cfg, cfg.Validate()
}

// What Hub.Presence may be.
const (
	PresenceMemory = "memory"
	PresenceNATS   = "nats"
)

// Validate reports the first setting that is out of its range or contradicts
// another, as an [*Error] that names it.
func (h *Hub) Validate() error {
	for _, s := range hubSettings(h) {
		if err := s.check(); err != nil {
			return err
		}
	}
	public, err := url.Parse(h.PublicURL)
	switch {
	case len(h.Listen) == 0:
		return &Error{Setting: "listen", Problem: "is empty", Fix: "write for example http://127.0.0.1:7430"}
	case h.AllowHTTP != switchedOn && h.AllowHTTP != switchedOff:
		return &Error{Setting: "allow_http", Problem: fmt.Sprintf("cannot be %q", h.AllowHTTP), Fix: "write on or off"}
	case h.Presence != PresenceMemory && h.Presence != PresenceNATS:
		return &Error{Setting: "presence", Problem: fmt.Sprintf("cannot be %q", h.Presence), Fix: "write memory or nats"}
	case h.PresenceDirectory != "" && !filepath.IsAbs(h.PresenceDirectory):
		return &Error{Setting: "presence_directory", Problem: fmt.Sprintf("cannot be %q", h.PresenceDirectory), Fix: "write it from the root"}
	case h.Presence != PresenceNATS && (h.PresenceDirectory != "" || h.ClusterListen != "" || len(h.ClusterRoutes) > 0):
		return &Error{Setting: "presence", Problem: "is memory, which has neither presence_directory nor a cluster", Fix: "write presence = \"nats\", or leave them out"}
	case len(h.ClusterRoutes) > 0 && h.ClusterListen == "":
		return &Error{Setting: "cluster_routes", Problem: "has nodes that could not reach this one", Fix: "set cluster_listen"}
	case h.ClusterListen != "" && (h.URLKey == "" || h.PublicURL == ""):
		return &Error{Setting: "cluster_listen", Problem: "needs url_key_file and public_url", Fix: "set them: one node hands out the URLs of another"}
	case h.PublicURL != "" && (err != nil || public.Scheme != "http" && public.Scheme != "https" || public.Host == "" || public.User != nil ||
		public.RawQuery != "" || public.Fragment != ""):
		return &Error{Setting: "public_url", Problem: fmt.Sprintf("cannot be %q", h.PublicURL), Fix: "write for example https://hub.example.org"}
	case h.TotalQueue < h.Frame:
		return &Error{Setting: "queue_bytes_total", Problem: "is below frame_bytes", Fix: "raise it to at least " + h.Frame.String()}
	case h.StreamIdle < h.StreamGrace:
		return &Error{Setting: "stream_idle", Problem: "is below stream_grace", Fix: "raise it to at least " + time.Duration(h.StreamGrace).String()}
	}
	return nil
}

// HasPlainHTTP reports whether http may be listened on beyond loopback.
func (h *Hub) HasPlainHTTP() bool { return h.AllowHTTP == switchedOn }
