package daemon

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/inproc"
	"github.com/execwire/execwire/server/traffic"
)

// api is the API that a client uses, as a label of metrics.
type api string

const (
	apiGRPC    api = "grpc"
	apiJSONRPC api = "jsonrpc"
	apiConnect api = "connect" // Connect, gRPC-Web and JSON
	apiHTTP    api = "http"    // files
	apiLocal   api = "local"   // the program that embeds the server
)

var apis = []api{apiGRPC, apiJSONRPC, apiConnect, apiHTTP, apiLocal}

// apiOf returns the API of the client that makes a call.
func apiOf(ctx context.Context) api {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return apiGRPC
	}
	switch info := p.AuthInfo.(type) {
	case clientAuthInfo:
		if info.api == "" {
			return apiJSONRPC
		}
		return info.api
	case inproc.AuthInfo:
		return apiLocal
	}
	return apiGRPC
}

// trafficOf returns the counters for what the messages of a call carry.
func (m *serverMetrics) trafficOf(ctx context.Context) *traffic.Bytes {
	return &m.apis[apiOf(ctx)].bytes
}

// methodCounts are the counts of one method, by one API.
type methodCounts struct {
	label    string
	ok       prometheus.Counter
	duration prometheus.Observer // nil: it is a stream
}

// countUnary is an interceptor that counts calls.
func (m *serverMetrics) countUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	from := apiOf(ctx)
	method, counts, begun := m.countsOf(from, info.FullMethod, false), m.apis[from], time.Now()
	counts.inFlight.Add(1)
	defer counts.inFlight.Add(-1)
	resp, err := handler(ctx, req)
	method.duration.Observe(time.Since(begun).Seconds())
	m.callEnded(from, method, err)
	return resp, err
}

// countStream is countUnary for streams.
func (m *serverMetrics) countStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	from := apiOf(stream.Context())
	method, counts := m.countsOf(from, info.FullMethod, true), m.apis[from]
	counts.inFlight.Add(1)
	defer counts.inFlight.Add(-1)
	err := handler(srv, stream)
	m.callEnded(from, method, err)
	if direction := transfers[info.FullMethod]; direction != "" && (err != nil || !takesFile(stream.Context())) {
		m.transferred(from, direction, err)
	}
	return err
}

// transferred counts an upload or download that has ended.
func (m *serverMetrics) transferred(from api, direction string, err error) {
	result := "complete"
	if err != nil {
		result = "failed"
	}
	m.transfers.WithLabelValues(string(from), direction, result).Inc()
}

// takesFile reports whether a call only opens a file, which its caller then reads itself;
// see [serverMetrics.sentFile].
func takesFile(ctx context.Context) bool {
	stream, ok := grpc.ServerTransportStreamFromContext(ctx).(interface{ FileTaker() func(*os.File) })
	return ok && stream.FileTaker() != nil
}

// transfers are the methods that transfer files, with their directions.
var transfers = map[string]string{
	execwirev1.FileSystemService_UploadFile_FullMethodName:   "upload",
	execwirev1.FileSystemService_DownloadFile_FullMethodName: "download",
}

// callEnded counts a call with its error, which a client receives.
func (m *serverMetrics) callEnded(from api, method *methodCounts, err error) {
	if err == nil {
		method.ok.Inc()
		return
	}
	code := status.Code(err)
	m.calls.WithLabelValues(string(from), method.label, code.String()).Inc()
	info := errorinfo.Of(err)
	if refused, ok := strings.CutPrefix(info.GetReason(), "SANDBOX_"); ok {
		m.refusedSandbox.WithLabelValues(strings.ToLower(refused)).Inc()
	}
	if setting := info.GetMetadata()["setting"]; setting != "" && code == codes.ResourceExhausted {
		m.limitHit(setting)
	}
}

// unknownMethod is the label of calls of methods that do not exist.
const unknownMethod = "unknown"

// countsOf returns the counts of a method. A client chooses the name, so only those of
// methods that exist are labels, and are kept.
func (m *serverMetrics) countsOf(from api, fullMethod string, stream bool) *methodCounts {
	kept := &m.apis[from].methods
	if counts, ok := kept.Load(fullMethod); ok {
		return counts.(*methodCounts)
	}
	label := strings.TrimPrefix(fullMethod, "/")
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(strings.Replace(label, "/", ".", 1)))
	_, exists := found.(protoreflect.MethodDescriptor)
	if exists = exists && err == nil; !exists {
		label = unknownMethod
	}
	counts := &methodCounts{label: label, ok: m.calls.WithLabelValues(string(from), label, codes.OK.String())}
	if !stream {
		counts.duration = m.callDuration.WithLabelValues(string(from), label)
	}
	if exists {
		kept.Store(fullMethod, counts)
	}
	return counts
}
