package tracing

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/execwire/execwire/internal/secretfile"
)

// Options configure a tracer.
type Options struct {
	// Endpoint is the collector: http://HOST:PORT, or https://HOST:PORT with TLS. Without a
	// port it is 4317. Empty is that of the environment, if there is one.
	Endpoint string
	// CA is a file with the certificate authorities of the collector. Empty is those of the
	// system.
	CA string
	// Headers is a secret file with headers of each export, one NAME: VALUE in each line.
	// Empty is none.
	Headers string
	// Ratio is the part of the traces without a parent that is recorded, from 0 to 1.
	Ratio float64
	// Service and Version describe the program.
	Service, Version string
	// Environ has the standard variables OTEL_*, in the form of os.Environ.
	Environ []string
	// Logger gets a line when spans are lost. Nil discards.
	Logger *slog.Logger
}

// Open returns a tracer, or nil if there is no endpoint. It does not wait for the
// collector. The tracer must be closed.
func Open(o Options) (*Tracer, error) {
	endpoint := cmp.Or(o.Endpoint, endpointOf(o.Environ))
	if endpoint == "" {
		return nil, nil
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("the endpoint %.200q of traces is not http://HOST:PORT or https://HOST:PORT", endpoint)
	}
	transport := insecure.NewCredentials()
	if u.Scheme == "https" {
		if transport, err = tlsCredentials(o.CA); err != nil {
			return nil, err
		}
	}
	headers, err := readHeaders(o.Headers)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient("dns:///"+net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "4317")), grpc.WithTransportCredentials(transport))
	if err != nil {
		return nil, fmt.Errorf("the endpoint %.200q of traces: %w", endpoint, err)
	}
	t := &Tracer{
		ratio: o.Ratio, resource: encodeResource(o.resource()), headers: headers, conn: conn, log: o.Logger,
		queue: make(chan []byte, queueSpans), closing: make(chan struct{}),
	}
	t.log = cmp.Or(t.log, slog.New(slog.DiscardHandler))
	t.running, t.cancel = context.WithCancelCause(context.Background())
	t.worker.Go(t.export)
	return t, nil
}

// endpointOf returns the endpoint of the environment, unless that is not for gRPC: the
// standard's default is another protocol, with another port.
func endpointOf(environ []string) string {
	if cmp.Or(variable(environ, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), variable(environ, "OTEL_EXPORTER_OTLP_PROTOCOL")) != "grpc" ||
		strings.EqualFold(variable(environ, "OTEL_SDK_DISABLED"), "true") {
		return ""
	}
	return cmp.Or(variable(environ, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), variable(environ, "OTEL_EXPORTER_OTLP_ENDPOINT"))
}

// variable returns the value of an environment variable, or "". The last entry counts.
func variable(environ []string, name string) string {
	for _, entry := range slices.Backward(environ) {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}

// resource returns the attributes of the program.
func (o Options) resource() [][2]string {
	host, _ := os.Hostname() // unknown is empty
	attributes := [][2]string{
		{"service.name", cmp.Or(variable(o.Environ, "OTEL_SERVICE_NAME"), o.Service)}, {"service.version", o.Version}, {"host.name", host},
	}
	for entry := range strings.SplitSeq(variable(o.Environ, "OTEL_RESOURCE_ATTRIBUTES"), ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(entry), "=")
		if decoded, err := url.PathUnescape(value); ok && err == nil && !slices.ContainsFunc(attributes, func(a [2]string) bool { return a[0] == name }) {
			attributes = append(attributes, [2]string{name, decoded})
		}
	}
	return attributes
}

func tlsCredentials(file string) (credentials.TransportCredentials, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if file != "" {
		text, err := secretfile.Public(file)
		if err != nil {
			return nil, err
		}
		if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, &secretfile.Error{File: file, Problem: "has no certificate", Fix: "write certificate authorities as PEM"}
		}
	}
	return credentials.NewTLS(config), nil
}

// readHeaders reads a file of headers. Errors do not have its content.
func readHeaders(file string) (metadata.MD, error) {
	headers := metadata.MD{}
	if file == "" {
		return headers, nil
	}
	text, err := secretfile.Secret(file)
	if err != nil {
		return nil, err
	}
	number := 0
	for line := range bytes.Lines(text) {
		number++
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		name, value, ok := strings.Cut(string(line), ":")
		name, value = strings.ToLower(strings.TrimSpace(name)), strings.TrimSpace(value)
		if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, &secretfile.Error{File: file, Problem: fmt.Sprintf("has no header in line %d", number), Fix: "write NAME: VALUE"}
		}
		headers.Append(name, value)
	}
	return headers, nil
}
