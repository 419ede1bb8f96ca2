package connectrpc

import (
	"context"
	"net/http"
	"strings"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// contract are the packages whose services are served by default.
var contract = []protoreflect.FullName{
	execwirev1.File_execwire_v1_process_service_proto.Package(),
	healthpb.File_grpc_health_v1_health_proto.Package(),
}

// Prefixes returns the beginnings of all paths that a [Handler] serves by default.
func Prefixes() (prefixes []string) {
	for _, name := range contract {
		prefixes = append(prefixes, "/"+string(name)+".")
	}
	return prefixes
}

// Config configures a [Handler].
type Config struct {
	// Begin authenticates and authorizes a call of a method, by its full name. The
	// error is the status for the client. The context of r is that of the call, with
	// its deadline. Begin is called concurrently, and before the body is read.
	Begin func(r *http.Request, method string) (Call, error)
	// MessageBytes is the largest message of a client, in bytes, decompressed and in
	// the encoding of the client. 0 is no limit.
	MessageBytes int
	// Packages are those whose services are served. Their files and messages must be
	// registered with package protoregistry. Nil are execwire.v1 and grpc.health.v1.
	Packages []protoreflect.FullName
}

// Call is a call of an authenticated client.
type Call struct {
	// Context is derived from that of the request. The call ends with it.
	Context context.Context
	// Conn forwards the call.
	Conn grpc.ClientConnInterface
	// Fail returns the error for the client of a call that has failed with another; nil
	// returns it unchanged.
	Fail func(error) error
	// End is called once, when the response was written.
	End func()
}

// Handler serves every method of its packages at the path /SERVICE/METHOD. It may be
// used concurrently.
type Handler struct {
	config Config
	routes routes
	errors *connecthttp.ErrorWriter
}

// route serves a path, or the paths below one that ends in "/".
type route struct {
	http.Handler
	upload bool // the client sends a stream
}

// routes are the routes by path. It implements connecthttp.ServeMux.
type routes map[string]route

// Handle implements connecthttp.ServeMux.
func (r routes) Handle(path string, handler http.Handler) {
	r[path] = route{handler, r[path].upload}
}

// find returns the route of a path.
func (r routes) find(path string) (found route, ok bool) {
	if found, ok = r[path]; ok {
		return found, true
	}
	found, ok = r[path[:strings.LastIndexByte(path, '/')+1]]
	return found, ok
}

// New returns a handler. Begin must be set.
func New(config Config) *Handler {
	h := &Handler{config: config, routes: make(routes)}
	options := []connecthttp.Option{
		connecthttp.WithReadMaxBytes(config.MessageBytes),
		connecthttp.WithCodecs(connectproto.NewBinaryCodec(), &connectproto.JSONCodec{
			// People write JSON. A misspelled field must not be ignored: it may be
			// what confines a process.
			UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: false},
		}),
	}
	h.errors = connecthttp.NewErrorWriter(options...)
	server := connect.NewServer()
	if config.Packages == nil {
		config.Packages = contract
	}
	for _, service := range services(config.Packages) {
		for i := range service.Methods().Len() {
			m := newMethod(service.Methods().Get(i))
			if m.isBidi() {
				h.routes.Handle(m.name, http.HandlerFunc(h.refuseBidi))
				continue
			}
			h.routes[m.name] = route{upload: m.desc.ClientStreams}
			server.Register(connect.Method{Spec: m.spec(), Handler: m.serve})
		}
	}
	server.SetUnknownHandler(serveUnknown)
	connecthttp.Mount(h.routes, server, options...)
	return h
}

// services returns the services of the packages.
func services(packages []protoreflect.FullName) (list []protoreflect.ServiceDescriptor) {
	for _, name := range packages {
		protoregistry.GlobalFiles.RangeFilesByPackage(name, func(file protoreflect.FileDescriptor) bool {
			for i := range file.Services().Len() {
				list = append(list, file.Services().Get(i))
			}
			return true
		})
	}
	return list
}

// ServeHTTP implements http.Handler. It returns when the call has ended.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	found, ok := h.routes.find(r.URL.Path)
	if !ok {
		http.Error(w, "this server has no such service", http.StatusNotFound)
		return
	}
	limit := 0
	if !found.upload {
		limit = h.config.MessageBytes
	}
	in := newRequest(w, r, h.config.Begin, limit)
	defer in.end()
	found.ServeHTTP(in.response, in.http)
}

// refuseBidi answers a call that streams in both directions at once. Package connect
// would not say why.
func (h *Handler) refuseBidi(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		w.WriteHeader(http.StatusMethodNotAllowed)
	case !h.errors.IsSupported(r):
		w.WriteHeader(http.StatusUnsupportedMediaType)
	default:
		_ = h.errors.Write(w, r, errBidi(r.URL.Path)) // the client is gone
	}
}
