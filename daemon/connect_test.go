package daemon_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/execwire/execwire/gateway/connectrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/errorinfo"
	"github.com/execwire/execwire/internal/inproc"
	"github.com/execwire/execwire/internal/testproc"
	"github.com/execwire/execwire/internal/testrace"
)

// onOnePort makes the configuration listen for every protocol on one port.
func onOnePort(cfg *config.Config) { cfg.Listen = []string{"tcp://127.0.0.1:0"} }

// address returns the address of the first listener.
func (o *opened) address() string {
	o.t.Helper()
	u, err := url.Parse(o.urls[0])
	if err != nil {
		o.t.Fatal(err)
	}
	return u.Host
}

// byGRPC returns a gRPC connection to the first listener.
func (o *opened) byGRPC() *grpc.ClientConn {
	o.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+o.address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// byHTTP returns a connection to the first listener by a protocol over HTTP.
func (o *opened) byHTTP(dialect string) httpConn {
	return dialHTTP(o.t, "http://"+o.address(), dialect)
}

// contractMethods returns the methods of all services that HTTP clients may call.
func contractMethods() (methods []protoreflect.MethodDescriptor) {
	for _, name := range []protoreflect.FullName{"execwire.v1", "grpc.health.v1"} {
		protoregistry.GlobalFiles.RangeFilesByPackage(name, func(file protoreflect.FileDescriptor) bool {
			for i := range file.Services().Len() {
				service := file.Services().Get(i)
				for i := range service.Methods().Len() {
					methods = append(methods, service.Methods().Get(i))
				}
			}
			return true
		})
	}
	return methods
}

// isBidi reports whether a method streams in both directions.
func isBidi(method protoreflect.MethodDescriptor) bool {
	return method.IsStreamingClient() && method.IsStreamingServer()
}

// pathOf returns the full name of a method, which is its path.
func pathOf(method protoreflect.MethodDescriptor) string {
	return "/" + string(method.Parent().FullName()) + "/" + string(method.Name())
}

// askEmpty calls a method with an empty request, and returns the status of the call or of
// its first response.
func askEmpty(t *testing.T, ctx context.Context, conn grpc.ClientConnInterface, method protoreflect.MethodDescriptor) *status.Status {
	t.Helper()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errOver)
	message := func(of protoreflect.MessageDescriptor) proto.Message {
		found, err := protoregistry.GlobalTypes.FindMessageByName(of.FullName())
		if err != nil {
			t.Fatal(err)
		}
		return found.New().Interface()
	}
	request, response := message(method.Input()), message(method.Output())
	if !method.IsStreamingClient() && !method.IsStreamingServer() {
		return status.Convert(conn.Invoke(ctx, pathOf(method), request, response))
	}
	// Clients of HTTP/1.1 themselves refuse to stream in both directions.
	desc := &grpc.StreamDesc{ServerStreams: method.IsStreamingServer(), ClientStreams: method.IsStreamingClient() && !method.IsStreamingServer()}
	stream, err := conn.NewStream(ctx, desc, pathOf(method))
	if err != nil {
		return status.Convert(err)
	}
	_ = stream.SendMsg(request) // RecvMsg returns the status
	_ = stream.CloseSend()
	return status.Convert(stream.RecvMsg(response))
}

// Every method of the contract is served over HTTP, and answers an empty request as it does by gRPC: with
// the same code, message and details. Methods that stream in both directions say that
// they need gRPC.
func TestConnect_EveryMethod_AnswersAsByGRPC(t *testing.T) {
	o := open(t, onOnePort)
	byGRPC := o.byGRPC()
	methods := contractMethods()
	if len(methods) < 40 {
		t.Fatalf("the contract has %d methods", len(methods))
	}
	for dialect := range dialects {
		byHTTP := o.byHTTP(dialect)
		for _, method := range methods {
			got := askEmpty(t, o.ctx, byHTTP, method)
			if isBidi(method) {
				if err := got.Err(); got.Code() != codes.Unimplemented || errorinfo.Of(err).GetReason() != "NOT_IMPLEMENTED" || !strings.Contains(got.Message(), "call it by gRPC") {
					t.Errorf("%s: %s answers %v", dialect, method.FullName(), err)
				}
				continue
			}
			if want := askEmpty(t, o.ctx, byGRPC, method); !proto.Equal(got.Proto(), want.Proto()) {
				t.Errorf("%s: %s answers\n%s\nand by gRPC\n%s", dialect, method.FullName(), prototext.Format(got.Proto()), prototext.Format(want.Proto()))
			}
		}
	}
}

// Streams of both directions carry every byte, in order, and end truthfully.
func TestConnect_Streams_CarryEveryByte(t *testing.T) {
	o := open(t, onOnePort)
	const size = 1<<19 + 1
	content, err := io.ReadAll(testproc.StdoutPattern.Reader(size))
	if err != nil {
		t.Fatal(err)
	}
	for dialect := range dialects {
		byHTTP := o.byHTTP(dialect)
		path := filepath.Join(t.TempDir(), "file")
		if err := upload(o.ctx, byHTTP, path, content); err != nil {
			t.Fatalf("%s: the upload: %v", dialect, err)
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: %d bytes were uploaded, %v", dialect, len(got), err)
		}
		if got, err := watch(o.ctx, byHTTP, dialect, "cat", path); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: %d bytes of output, %v", dialect, len(got), err)
		}
	}
}

// upload writes a file by a stream of messages.
func upload(ctx context.Context, conn grpc.ClientConnInterface, path string, content []byte) error {
	stream, err := execwirev1.NewFileSystemServiceClient(conn).UploadFile(ctx)
	if err != nil {
		return err
	}
	messages := []*execwirev1.UploadFileRequest{{Message: &execwirev1.UploadFileRequest_Head{Head: &execwirev1.UploadHead{
		Path: path, Mode: execwirev1.UploadMode_UPLOAD_MODE_REPLACE}}}}
	for piece := range slices.Chunk(content, 100_000) {
		messages = append(messages, &execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Data{Data: piece}})
	}
	messages = append(messages, &execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_End{End: &execwirev1.UploadEnd{}}})
	for _, message := range messages {
		if err := stream.Send(message); err != nil {
			break // CloseAndRecv returns the status
		}
	}
	_, err = stream.CloseAndRecv()
	return err
}

// watch starts a process and returns its output. It fails unless the last event is the
// close of a process that exited with 0.
func watch(ctx context.Context, conn grpc.ClientConnInterface, id string, argv ...string) (output []byte, err error) {
	processes := execwirev1.NewProcessServiceClient(conn)
	request := command(argv...)
	request.ProcessId = id
	if _, err := processes.StartProcess(ctx, request); err != nil {
		return nil, err
	}
	stream, err := processes.WatchProcess(ctx, &execwirev1.WatchProcessRequest{ProcessId: id})
	if err != nil {
		return nil, err
	}
	return drain(stream)
}

// drain receives the events of a watch until it ends.
func drain(stream grpc.ServerStreamingClient[execwirev1.WatchProcessResponse]) (output []byte, err error) {
	seq, exited, closed := uint64(0), false, false
	for {
		response, err := stream.Recv()
		switch {
		case err == io.EOF && !closed:
			return output, errors.New("the stream ended before the process closed")
		case err == io.EOF:
			return output, nil
		case err != nil:
			return output, err
		}
		for _, event := range response.GetEvents() {
			if seq++; event.GetSeq() != seq {
				return output, fmt.Errorf("event %d follows event %d", event.GetSeq(), seq-1)
			}
			output = append(output, event.GetOutput().GetData()...)
			exited = exited || event.GetExited() != nil
			closed = exited && event.GetClosed() != nil
		}
	}
}

// annotated is a health service whose responses have a header and a trailer, also that of
// a failed call.
type annotated struct {
	healthpb.UnimplementedHealthServer
	headerSeen chan struct{} // closed when the client of Watch has the header
}

func (a *annotated) Check(ctx context.Context, request *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	err := errors.Join(grpc.SetHeader(ctx, metadata.Pairs("x-head", "1", "x-head", "2", "x-raw-bin", "\x00\xff")), grpc.SetTrailer(ctx, metadata.Pairs("x-tail", "3")))
	if err == nil && request.GetService() != "" {
		err = status.Error(codes.NotFound, "no such service")
	}
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, err
}

func (a *annotated) Watch(_ *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	if err := stream.SendHeader(metadata.Pairs("x-head", "1")); err != nil {
		return err
	}
	<-a.headerSeen
	stream.SetTrailer(metadata.Pairs("x-tail", "3", "x-raw-bin", "\x00\xff"))
	if err := stream.Send(&healthpb.HealthCheckResponse{}); err != nil {
		return err
	}
	return status.Error(codes.Aborted, "enough")
}

// The metadata of responses pass in every protocol, those of errors too, and the header of
// a stream before its first message.
func TestConnect_ResponseMetadata_Pass(t *testing.T) {
	service := &annotated{headerSeen: make(chan struct{})}
	channel := inproc.New()
	t.Cleanup(channel.Close)
	healthpb.RegisterHealthServer(channel, service)
	server := httptest.NewServer(connectrpc.New(connectrpc.Config{Begin: func(r *http.Request, _ string) (connectrpc.Call, error) {
		return connectrpc.Call{Context: r.Context(), Conn: channel}, nil
	}}))
	t.Cleanup(server.Close)
	call := func(method, contentType, body string) (*http.Response, io.ReadCloser) {
		response, err := server.Client().Post(server.URL+"/grpc.health.v1.Health/"+method, contentType, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		return response, response.Body
	}
	rest := func(body io.ReadCloser) string {
		content, err := io.ReadAll(body)
		if err != nil {
			t.Error(err)
		}
		_ = body.Close()
		return string(content)
	}
	for body, code := range map[string]int{"{}": http.StatusOK, `{"service":"x"}`: http.StatusNotFound} {
		response, content := call("Check", "application/json", body)
		rest(content)
		got := response.Header
		if response.StatusCode != code || !slices.Equal(got.Values("X-Head"), []string{"1", "2"}) || got.Get("X-Raw-Bin") != "AP8" || got.Get("Trailer-X-Tail") != "3" {
			t.Errorf("Connect, %s: %d %v", body, response.StatusCode, got)
		}
	}
	response, content := call("Check", "application/grpc-web+json", "\x00\x00\x00\x00\x02{}")
	if text := rest(content); response.Header.Get("X-Raw-Bin") != "AP8" || !strings.Contains(strings.ToLower(text), "x-tail: 3\r\n") {
		t.Errorf("gRPC-Web: %v %q", response.Header, text)
	}
	response, content = call("Check", "application/grpc+json", "\x00\x00\x00\x00\x02{}")
	rest(content)
	if response.Header.Get("X-Raw-Bin") != "AP8" || response.Trailer.Get("X-Tail") != "3" || response.Trailer.Get("Grpc-Status") != "0" {
		t.Errorf("gRPC: %v %v", response.Header, response.Trailer)
	}
	response, content = call("Watch", "application/connect+json", "\x00\x00\x00\x00\x02{}")
	close(service.headerSeen)
	if text := rest(content); response.Header.Get("X-Head") != "1" || !strings.Contains(text, `"message":"enough"},"metadata":{"X-Raw-Bin":["AP8"],"X-Tail":["3"]}`) {
		t.Errorf("a stream: %v %q", response.Header, text)
	}
}

// post sends a request and returns the response with its body.
func (o *opened) post(path string, header http.Header, body string) (*http.Response, string) {
	o.t.Helper()
	return o.exchange(http.MethodPost, path, header, body)
}

func (o *opened) exchange(method, path string, header http.Header, body string) (*http.Response, string) {
	o.t.Helper()
	request, err := http.NewRequestWithContext(o.ctx, method, "http://"+o.address()+path, strings.NewReader(body))
	if err != nil {
		o.t.Fatal(err)
	}
	maps.Copy(request.Header, header)
	transport := &http.Transport{DisableCompression: true, DisableKeepAlives: true}
	response, err := transport.RoundTrip(request)
	if err != nil {
		o.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		o.t.Fatalf("%s %s: %v", method, path, err)
	}
	return response, string(text)
}

const (
	listPath  = "/execwire.v1.ProcessService/ListProcesses"
	watchPath = "/execwire.v1.ProcessService/WatchProcess"
)

func ofType(contentType string, more ...string) http.Header {
	header := http.Header{"Content-Type": {contentType}}
	for i := 0; i < len(more); i += 2 {
		header.Add(more[i], more[i+1])
	}
	return header
}

func TestConnect_BadRequest_IsRefusedWithReason(t *testing.T) {
	o := open(t, onOnePort)
	bomb := new(bytes.Buffer)
	zip, err := gzip.NewWriterLevel(bomb, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = zip.Write(append([]byte(`{"sessionId":"`), bytes.Repeat([]byte("a"), 9<<20)...))
	_ = zip.Close()
	for _, test := range []struct {
		name, method, path string
		header             http.Header
		body               string
		status             int
		want               string // in the body, or in a header
	}{
		{"no content type", "POST", listPath, nil, "{}", 415, `the content type "" is not supported here: use one of`},
		{"a form", "POST", listPath, ofType("application/x-www-form-urlencoded"), "{}", 415, "application/json"},
		{"plain text", "POST", listPath, ofType("text/plain"), "{}", 415, "application/json"},
		{"multipart", "POST", listPath, ofType("multipart/form-data; boundary=b"), "{}", 415, "application/json"},
		{"a stream without envelopes", "POST", watchPath, ofType("application/json"), "{}", 415, "application/connect+json"},
		{"both directions, a form", "POST", "/execwire.v1.ProcessService/RunProcess", ofType("text/plain"), "{}", 415, "text/plain"},
		{"both directions", "POST", "/execwire.v1.ProcessService/RunProcess", ofType("application/json"), "{}", 501, "call it by gRPC"},
		{"GET", "GET", listPath + "?encoding=json&message={}", nil, "", 405, "called by POST"},
		{"PUT", "PUT", listPath, ofType("application/json"), "{}", 405, "called by POST"},
		{"OPTIONS without an origin", "OPTIONS", listPath, nil, "", 405, "called by POST"},
		{"an unknown method", "POST", "/execwire.v1.ProcessService/None", ofType("application/json"), "{}", 501, "NOT_IMPLEMENTED"},
		{"an unknown service", "POST", "/execwire.v1.NoService/None", ofType("application/json"), "{}", 404, "no such service"},
		{"not JSON", "POST", listPath, ofType("application/json"), "{", 400, "invalid_argument"},
		{"a misspelled field", "POST", listPath, ofType("application/json"), `{"sesionId":"x"}`, 400, `unknown field \"sesionId\"`},
		{"an invalid field", "POST", listPath, ofType("application/json"), `{"pageSize":-1}`, 400, "page_size is negative"},
		{"two messages", "POST", listPath, ofType("application/json"), `{}{}`, 400, "invalid_argument"},
		{"a bad timeout", "POST", listPath, ofType("application/json", "Connect-Timeout-Ms", "soon"), "{}", 400, "timeout"},
		{"a bad binary header", "POST", listPath, ofType("application/json", "X-Test-Bin", "!"), "{}", 200, "{}"},
		{"a decompression bomb", "POST", listPath, ofType("application/json", "Content-Encoding", "gzip"), bomb.String(), 429, "larger than"},
		{"an unknown compression", "POST", listPath, ofType("application/json", "Content-Encoding", "br"), "{}", 501, "gzip"},
		{"a truncated envelope", "POST", watchPath, ofType("application/connect+json"), "\x00\x00\x00\x00\x02{", 200, "promised 2 bytes"},
		{"an empty stream", "POST", watchPath, ofType("application/connect+json"), "", 200, "zero messages"},
		{"two messages in a stream", "POST", watchPath, ofType("application/connect+json"), strings.Repeat("\x00\x00\x00\x00\x02{}", 2), 200, "multiple messages"},
		{"a late response", "POST", "/execwire.v1.ProcessService/WaitProcess", ofType("application/json", "Connect-Timeout-Ms", "1"),
			`{"processId":"sleeper","wait":"60s"}`, 504, "deadline_exceeded"},
	} {
		if test.name == "a late response" {
			request := command("sleep", "1000")
			request.ProcessId = "sleeper"
			if _, err := execwirev1.NewProcessServiceClient(o.byGRPC()).StartProcess(o.ctx, request); err != nil {
				t.Fatal(err)
			}
		}
		response, body := o.exchange(test.method, test.path, test.header, test.body)
		if response.StatusCode != test.status || !strings.Contains(body, test.want) {
			t.Errorf("%s: status %d, body %q, want status %d and %q", test.name, response.StatusCode, body, test.status, test.want)
		}
	}
}

// A message beyond message_bytes is refused with the same error as by gRPC; one beyond
// what the server receives at all is refused too.
func TestConnect_LargeMessage_IsRefused(t *testing.T) {
	o := open(t, onOnePort)
	write := func(conn grpc.ClientConnInterface, size int) *status.Status {
		_, err := execwirev1.NewFileSystemServiceClient(conn).WriteFile(o.ctx, &execwirev1.WriteFileRequest{
			Path: filepath.Join(t.TempDir(), "file"), Data: make([]byte, size)})
		return status.Convert(err)
	}
	for _, dialect := range []string{"connect, JSON", "gRPC-Web"} {
		got, want := write(o.byHTTP(dialect), 4<<20), write(o.byGRPC(), 4<<20)
		if want.Code() != codes.ResourceExhausted || !proto.Equal(got.Proto(), want.Proto()) {
			t.Errorf("%s: %v, and by gRPC %v", dialect, got, want)
		}
		if got := write(o.byHTTP(dialect), 9<<20); got.Code() != codes.ResourceExhausted {
			t.Errorf("%s: %v", dialect, got)
		}
	}
}

// A response is compressed only if the request was.
func TestConnect_Response_IsCompressedLikeRequest(t *testing.T) {
	o := open(t, onOnePort)
	response, _ := o.post(listPath, ofType("application/json", "Accept-Encoding", "gzip"), "{}")
	if got := response.Header.Get("Content-Encoding"); got != "" {
		t.Errorf("an uncompressed request is answered with %q", got)
	}
	zipped := new(bytes.Buffer)
	zip := gzip.NewWriter(zipped)
	_, _ = zip.Write([]byte("{}"))
	_ = zip.Close()
	response, _ = o.post(listPath, ofType("application/json", "Content-Encoding", "gzip"), zipped.String())
	if got := response.Header.Get("Content-Encoding"); response.StatusCode != 200 || got != "gzip" {
		t.Errorf("a compressed request is answered with status %d and %q", response.StatusCode, got)
	}
}

// headOf sends the header of a request with a body that does not come, and returns the
// response.
func headOf(t *testing.T, address, path string, header http.Header) (*http.Response, string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(testTimeout)) // the server waits for the body no longer
	head := new(bytes.Buffer)
	fmt.Fprintf(head, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 1000\r\n", path, address)
	_ = header.Write(head)
	head.WriteString("\r\n")
	if _, err := conn.Write(head.Bytes()); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return response, string(body)
}

// A caller is authenticated and authorized before its request is read, with the errors
// of gRPC, by every protocol.
func TestConnect_CallerRefused_BeforeBody(t *testing.T) {
	l := lock(t, func(cfg *config.Config) {
		onOnePort(cfg)
		cfg.FailedAttempts = 1000
	}, func(l *locked) string { return l.principal("files", `"read_files"`) })
	address := strings.TrimPrefix(l.urls[0], "tcp://")
	for _, contentType := range []string{"application/json", "application/proto", "application/grpc-web+proto"} {
		for _, test := range []struct {
			name, authorization string
			code                codes.Code
			reason              string
		}{
			{"nobody", "", codes.Unauthenticated, "UNAUTHENTICATED"},
			{"a wrong token", "Bearer " + tokenOf("wrong"), codes.Unauthenticated, "UNAUTHENTICATED"},
			{"another permission", "Bearer " + tokenOf("files"), codes.PermissionDenied, "CALL_NOT_ALLOWED"},
		} {
			header := ofType(contentType)
			if test.authorization != "" {
				header.Set("Authorization", test.authorization)
			}
			response, body := headOf(t, address, listPath, header)
			said := body + response.Header.Get("Grpc-Status") + response.Header.Get("Grpc-Status-Details-Bin")
			var answer struct {
				Details []struct{ Debug struct{ Reason string } }
			}
			switch contentType {
			case "application/grpc-web+proto":
				if response.Header.Get("Grpc-Status") != fmt.Sprint(int(test.code)) {
					t.Errorf("%s, %s: %s", contentType, test.name, said)
				}
			default:
				if err := json.Unmarshal([]byte(body), &answer); err != nil || len(answer.Details) == 0 || answer.Details[0].Debug.Reason != test.reason {
					t.Errorf("%s, %s: status %d, %s (%v)", contentType, test.name, response.StatusCode, said, err)
				}
			}
		}
	}
	byHTTP := dialHTTP(t, "http://"+address, "connect, binary")
	if err := list(l.as("files"), byHTTP); errorinfo.Of(err).GetReason() != "CALL_NOT_ALLOWED" {
		t.Errorf("a call without the permission returns %v", err)
	}
	l.expectUnknown(list(l.showing("Bearer "+tokenOf("wrong")), byHTTP))
	if _, err := execwirev1.NewFileSystemServiceClient(byHTTP).ReadFile(l.as("files"), &execwirev1.ReadFileRequest{Path: "/etc/passwd"}); err != nil {
		t.Errorf("a permitted call returns %v", err)
	}
	if _, err := healthpb.NewHealthClient(byHTTP).Check(l.ctx, &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("health needs authentication: %v", err)
	}
}

// The reader of a client that has gone is free for another.
func TestConnect_ClientGone_FreesReader(t *testing.T) {
	o := open(t, func(cfg *config.Config) {
		onOnePort(cfg)
		cfg.Readers = 1
	})
	byGRPC := execwirev1.NewProcessServiceClient(o.byGRPC())
	request := command("/bin/sh", "-c", "echo started; exec sleep 1000")
	request.ProcessId = "p"
	if _, err := byGRPC.StartProcess(o.ctx, request); err != nil {
		t.Fatal(err)
	}
	for dialect := range dialects {
		processes := execwirev1.NewProcessServiceClient(o.byHTTP(dialect))
		for { // until the server has noticed that the one before has gone
			ctx, cancel := context.WithCancelCause(o.ctx)
			stream, err := processes.WatchProcess(ctx, &execwirev1.WatchProcessRequest{ProcessId: "p"})
			if err == nil {
				_, err = stream.Recv()
			}
			if err == nil {
				if other, otherErr := byGRPC.WatchProcess(o.ctx, &execwirev1.WatchProcessRequest{ProcessId: "p"}); otherErr != nil {
					t.Fatal(otherErr)
				} else if _, otherErr := other.Recv(); errorinfo.Of(otherErr).GetReason() != "TOO_MANY_READERS" {
					t.Errorf("%s: a second reader gets %v", dialect, otherErr)
				}
			}
			cancel(errOver)
			if err == nil {
				break
			}
			if errorinfo.Of(err).GetReason() != "TOO_MANY_READERS" {
				t.Fatalf("%s: %v", dialect, err)
			}
		}
	}
}

// Calls of clients that are not authenticated end with their connections, of which the
// listener closes the oldest, also if net/http does not notice that: it does not after
// the first byte of a next request.
func TestConnect_PublicCalls_AreBounded(t *testing.T) {
	const most = 2
	o := open(t, func(cfg *config.Config) {
		onOnePort(cfg)
		cfg.Connections = most
	})
	for range 10 * most {
		conn, err := net.Dial("tcp", o.address())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/connect+proto\r\nContent-Length: 5\r\n\r\n\x00\x00\x00\x00\x00",
			healthpb.Health_Watch_FullMethodName, o.address())
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte("P")); err != nil {
			t.Fatal(err)
		}
	}
	byGRPC := o.byGRPC()
	for {
		if err := list(o.ctx, byGRPC); err != nil {
			t.Fatalf("a call beside %d others: %v", o.daemon.Requests(), err)
		}
		if o.daemon.Requests() <= most { // the other one is that of byGRPC
			break
		}
	}
}

// A stream of requests can be refused before its end: the client gets the error although
// it sends nothing more and waits.
func TestConnect_RefusedUpload_IsAnsweredAtOnce(t *testing.T) {
	o := open(t, onOnePort)
	body, toSend := io.Pipe()
	defer func() { _ = toSend.Close() }()
	go func() { // ends with the pipe
		message := `{"head":{"path":"relative","mode":"UPLOAD_MODE_REPLACE"}}`
		_, _ = toSend.Write(append([]byte{0, 0, 0, 0, byte(len(message))}, message...))
	}()
	request, err := http.NewRequestWithContext(o.ctx, http.MethodPost, "http://"+o.address()+"/execwire.v1.FileSystemService/UploadFile", body)
	if err != nil {
		t.Fatal(err)
	}
	request.Header = ofType("application/connect+json")
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil || !strings.Contains(string(text), "INVALID_FIELD") {
		t.Errorf("the answer is %q, %v", text, err)
	}
}

// A server that stops lets streams over HTTP end as those of gRPC: the client of a
// process receives its end, and health reports the stop.
func TestConnect_Stop_EndsStreams(t *testing.T) {
	o := open(t, onOnePort)
	byHTTP := o.byHTTP("connect, binary")
	processes := execwirev1.NewProcessServiceClient(byHTTP)
	request := command("cat")
	request.ProcessId = "p"
	request.Io = &execwirev1.ProcessIo{Io: &execwirev1.ProcessIo_Pipes{Pipes: &execwirev1.PipeIo{Stdin: execwirev1.StdinMode_STDIN_MODE_PIPE}}}
	if _, err := processes.StartProcess(o.ctx, request); err != nil {
		t.Fatal(err)
	}
	if _, err := processes.WriteStdin(o.ctx, &execwirev1.WriteStdinRequest{ProcessId: "p", Data: []byte("hello")}); err != nil {
		t.Fatal(err)
	}
	stream, err := processes.WatchProcess(o.ctx, &execwirev1.WatchProcessRequest{ProcessId: "p"})
	if err != nil {
		t.Fatal(err)
	}
	health, err := healthpb.NewHealthClient(byHTTP).Watch(o.ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	expectHealth := func(want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		if response, err := health.Recv(); err != nil || response.GetStatus() != want {
			t.Fatalf("health is %v, %v, want %v", response.GetStatus(), err, want)
		}
	}
	expectHealth(healthpb.HealthCheckResponse_SERVING)
	o.stop(errOver)
	expectHealth(healthpb.HealthCheckResponse_NOT_SERVING)
	if _, err := processes.CloseStdin(o.ctx, &execwirev1.CloseStdinRequest{ProcessId: "p"}); err != nil {
		t.Errorf("while the server drains, a call returns %v", err)
	}
	if output, err := drain(stream); err != nil || string(output) != "hello" {
		t.Errorf("the output is %q, %v", output, err)
	}
	if _, err := health.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the watch of health ends with %v", err)
	}
	<-o.served
}

// A client that does not read delays neither another nor, for long, the end of the server.
func TestConnect_ClientDoesNotRead_DelaysOnlyItself(t *testing.T) {
	testrace.Slow(t)
	o := open(t, onOnePort)
	byHTTP := o.byHTTP("connect, binary")
	processes := execwirev1.NewProcessServiceClient(byHTTP)
	request := command("cat", "/dev/zero")
	request.ProcessId = "p"
	if _, err := processes.StartProcess(o.ctx, request); err != nil {
		t.Fatal(err)
	}
	stalled, err := net.Dial("tcp", o.address())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stalled.Close() }()
	message := `{"processId":"p"}`
	fmt.Fprintf(stalled, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/connect+json\r\nContent-Length: %d\r\n\r\n\x00\x00\x00\x00%c%s",
		watchPath, o.address(), len(message)+5, len(message), message)
	if _, err := stalled.Read(make([]byte, 1)); err != nil { // the response has begun
		t.Fatal(err)
	}
	if err := list(o.ctx, byHTTP); err != nil {
		t.Error(err)
	}
	o.stopNow(errOver)
	o.stop(errOver)
	<-o.served
}

// Pages of an allowed origin may call and read; others get nothing.
func TestConnect_CORS(t *testing.T) {
	const allowed = "https://app.example.org"
	o := open(t, func(cfg *config.Config) {
		onOnePort(cfg)
		cfg.Origins = []string{allowed}
	})
	preflight := func(origin string) http.Header {
		return http.Header{"Origin": {origin}, "Access-Control-Request-Method": {"POST"}, "Access-Control-Request-Headers": {"authorization,content-type"}}
	}
	response, _ := o.exchange(http.MethodOptions, listPath, preflight(allowed), "")
	for name, want := range map[string]string{
		"Access-Control-Allow-Origin": allowed, "Access-Control-Allow-Methods": "POST", "Access-Control-Allow-Headers": "authorization,content-type",
		"Access-Control-Max-Age": "7200", "Vary": "Origin", "Access-Control-Allow-Credentials": "",
	} {
		if got := response.Header.Get(name); response.StatusCode != http.StatusNoContent || got != want {
			t.Errorf("a preflight request is answered with status %d and %s: %s, want %q", response.StatusCode, name, got, want)
		}
	}
	response, body := o.post(listPath, ofType("application/json", "Origin", allowed), "{}")
	if response.StatusCode != http.StatusOK || body != "{}" || response.Header.Get("Access-Control-Allow-Origin") != allowed || response.Header.Get("Access-Control-Expose-Headers") != "*" {
		t.Errorf("an allowed page gets status %d, %v, %s", response.StatusCode, response.Header, body)
	}
	for _, refused := range []http.Header{preflight("https://evil.example.org"), ofType("application/json", "Origin", "null")} {
		method := http.MethodPost
		if refused.Get("Access-Control-Request-Method") != "" {
			method = http.MethodOptions
		}
		response, _ := o.exchange(method, listPath, refused, "{}")
		if response.StatusCode != http.StatusForbidden || response.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%v is answered with status %d, %v", refused, response.StatusCode, response.Header)
		}
	}
}
