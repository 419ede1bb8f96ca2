package operations

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
	"github.com/execwire/execwire/internal/config"
)

// limitFixture is a server and a client that reaches its limits.
type limitFixture struct {
	*harness.Scenario
	files execwirev1.FileSystemServiceClient
	web   execwirev1.HttpServiceClient
	rpc   *harness.RPCClient
	dir   string // with two directories and a file of 65 KiB
	url   string // of a server that answers /head with a large head and nothing else
}

// limitCase reaches a limit. A nil function is for a protocol in which the limit cannot be
// reached, or where the same function of the server reports it.
type limitCase struct {
	set     func(*config.Config)
	grpc    func(*limitFixture) error             // returns the refusal
	rpc     func(*limitFixture) *harness.RPCError // the same through JSON-RPC
	lasting bool                                  // the same request is refused whenever it is repeated
}

// reachedLimits are settings that limit requests, each with a way to reach it.
var reachedLimits = map[string]limitCase{
	"readers_per_process": {set: func(c *config.Config) { c.Readers = 1 }, grpc: func(s *limitFixture) error {
		id := s.Start(harness.Program("sleep"))
		watch := func() error {
			stream, err := s.Processes.WatchProcess(s.Ctx, &execwirev1.WatchProcessRequest{ProcessId: id})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		}
		held := make(chan error, 2)
		go func() { held <- watch() }()
		go func() { held <- watch() }()
		return <-held // the other waits until the test ends
	}},
	"stdin_write_bytes": {set: func(c *config.Config) { c.StdinWrite = 4 << 10 }, lasting: true, grpc: func(s *limitFixture) error {
		id := s.Start(harness.Program("echo"), harness.WithStdin)
		_, err := s.Processes.WriteStdin(s.Ctx, &execwirev1.WriteStdinRequest{ProcessId: id, Data: make([]byte, 5<<10)})
		return err
	}},
	"message_bytes": {lasting: true, grpc: func(s *limitFixture) error {
		_, err := s.files.WriteFile(s.Ctx, &execwirev1.WriteFileRequest{Path: s.dir + "/new", Data: make([]byte, 5<<20)})
		return err
	}},
	"read_file_bytes": {set: func(c *config.Config) { c.ReadFile = 64 << 10 }, lasting: true, grpc: func(s *limitFixture) error {
		_, err := s.files.ReadFile(s.Ctx, &execwirev1.ReadFileRequest{Path: s.dir + "/file"})
		return err
	}},
	"uploads_per_principal": {set: func(c *config.Config) { c.Uploads = 1 }, grpc: func(s *limitFixture) error {
		upload := func(id string) error {
			stream, err := s.files.UploadFile(s.Ctx)
			if err != nil {
				return err
			}
			head := &execwirev1.UploadHead{Path: s.dir + "/" + id, UploadId: id, Mode: execwirev1.UploadMode_UPLOAD_MODE_REPLACE}
			if err := stream.Send(&execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Head{Head: head}}); err != nil {
				return err
			}
			return stream.RecvMsg(new(execwirev1.UploadFileResponse))
		}
		ended := make(chan error, 2)
		go func() { ended <- upload("a") }()
		go func() { ended <- upload("b") }()
		return <-ended // the other waits for the rest until the test ends
	}},
	"watches_per_principal": {set: func(c *config.Config) { c.Watches = 1 }, grpc: func(s *limitFixture) error {
		_ = s.watchDirectory(false)
		return s.watchDirectory(false)
	}, rpc: func(s *limitFixture) *harness.RPCError {
		s.rpc.Result("fs/watch", harness.RPCParams{"watchId": 1, "path": s.dir}, nil)
		return s.rpc.Refused("fs/watch", harness.RPCParams{"watchId": 2, "path": s.dir}, -32005)
	}},
	"watched_directories_per_watch": {set: func(c *config.Config) { c.WatchedDirectories = 1 }, lasting: true,
		grpc: func(s *limitFixture) error { return s.watchDirectory(true) },
		rpc: func(s *limitFixture) *harness.RPCError {
			return s.rpc.Refused("fs/watch", harness.RPCParams{"watchId": 2, "path": s.dir, "recursive": true}, -32005)
		}},
	"awaited_paths_per_principal": {set: func(c *config.Config) { c.AwaitedPaths = 1 }, grpc: func(s *limitFixture) error {
		stream, err := s.files.AwaitPaths(s.Ctx, &execwirev1.AwaitPathsRequest{
			Missing: []*execwirev1.AwaitedPath{{Path: s.dir + "/x"}, {Path: s.dir + "/y"}}})
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}, rpc: func(s *limitFixture) *harness.RPCError {
		return s.rpc.Refused("fs/watchMissing", harness.RPCParams{"watchId": 1, "missing": []string{s.dir + "/x", s.dir + "/y"}}, -32005)
	}},
	"processes_per_session": {set: func(c *config.Config) { c.Processes = 1 }, grpc: func(s *limitFixture) error {
		s.Start(harness.Program("sleep"))
		return s.tryStart()
	}, rpc: secondStart},
	"max_processes_per_connection": {set: func(c *config.Config) { c.ConnectionProcesses = 1 }, rpc: secondStart},
	"retained_output_bytes_total": {set: func(c *config.Config) { c.RetainedTotal = 1 << 20 },
		grpc: func(s *limitFixture) error { return s.tryStart() },
		rpc: func(s *limitFixture) *harness.RPCError {
			return s.rpc.Refused("process/start", harness.StartOf("one", harness.Program("sleep"), nil), -32005)
		}},
	"sessions_per_principal": {set: func(c *config.Config) { c.Sessions = 1 }, grpc: tooManySessions},
	"sessions_total":         {set: func(c *config.Config) { c.SessionsTotal = 1 }, grpc: tooManySessions},
	"file_handles_per_session": {set: func(c *config.Config) { c.FileHandles = 1 }, grpc: func(s *limitFixture) error {
		open := func(id string) error {
			_, err := s.files.OpenFile(s.Ctx, &execwirev1.OpenFileRequest{HandleId: id, Path: s.dir + "/file", Mode: execwirev1.OpenMode_OPEN_MODE_READ})
			return err
		}
		if err := open("a"); err != nil {
			s.Fatal(err)
		}
		return open("b")
	}, rpc: func(s *limitFixture) *harness.RPCError {
		s.rpc.Result("fs/open", harness.RPCParams{"handleId": "a", "path": s.dir + "/file"}, nil)
		return s.rpc.Refused("fs/open", harness.RPCParams{"handleId": "b", "path": s.dir + "/file"}, -32005)
	}},
	"http_requests_per_principal": {set: func(c *config.Config) { c.HTTPRequests = 1 }, grpc: func(s *limitFixture) error {
		ended := make(chan error, 2)
		for range 2 {
			go func() { ended <- s.fetch("/") }()
		}
		return <-ended // the other waits for its response until the test ends
	}, rpc: secondRequest},
	"port_connections_per_principal": {set: func(c *config.Config) { c.PortConnections, c.PortsAllow = 1, []string{"loopback"} }, grpc: func(s *limitFixture) error {
		target, err := url.Parse(s.url)
		if err != nil {
			return err
		}
		port, err := strconv.ParseUint(target.Port(), 10, 16)
		if err != nil {
			return err
		}
		for range 2 {
			stream, streamErr := execwirev1.NewPortServiceClient(s.Conn).ConnectPort(s.Ctx)
			if streamErr != nil {
				return streamErr
			}
			connect := &execwirev1.ConnectPortRequest_Connect{Connect: &execwirev1.PortConnect{Port: uint32(port)}}
			if err = stream.Send(&execwirev1.ConnectPortRequest{Message: connect}); err == nil {
				_, err = stream.Recv()
			}
		}
		return err
	}},
	"port_listeners_per_principal": {set: func(c *config.Config) { c.PortListeners = 1 }, grpc: func(s *limitFixture) (err error) {
		for range 2 {
			var stream grpc.ServerStreamingClient[execwirev1.ListenPortResponse]
			if stream, err = execwirev1.NewPortServiceClient(s.Conn).ListenPort(s.Ctx, &execwirev1.ListenPortRequest{}); err == nil {
				_, err = stream.Recv()
			}
		}
		return err
	}},
	"http_requests_per_connection": {set: func(c *config.Config) { c.HTTPConnectionRequests = 1 }, rpc: secondRequest},
	"http_head_bytes": {set: func(c *config.Config) { c.HTTPHead = 4 << 10 }, lasting: true,
		grpc: func(s *limitFixture) error { return s.fetch("/head") },
		rpc: func(s *limitFixture) *harness.RPCError {
			return s.rpc.Refused("http/request", harness.RPCParams{"method": "GET", "url": s.url + "/head", "requestId": "h"}, -32005)
		}},
	"watches_per_connection": {set: func(c *config.Config) { c.ConnectionWatches = 1 }, rpc: func(s *limitFixture) *harness.RPCError {
		s.rpc.Result("fs/watch", harness.RPCParams{"watchId": 1, "path": s.dir}, nil)
		return s.rpc.Refused("fs/watch", harness.RPCParams{"watchId": 2, "path": s.dir}, -32005)
	}},
	"requests_per_connection": {set: func(c *config.Config) { c.Requests = 1 }, rpc: func(s *limitFixture) *harness.RPCError {
		s.rpc.Start("silent", harness.Program("sleep"), nil)
		s.rpc.Post("process/read", harness.RPCParams{"processId": "silent", "waitMs": 600_000})
		return s.rpc.Refused("fs/getMetadata", harness.RPCParams{"path": s.dir}, -32005)
	}},
}

// reachedElsewhere are settings that limit requests, with the test that reaches each.
var reachedElsewhere = map[string]string{
	"failed_attempts":                    "server: TestLimitErrors_NameSettingAndRetryDelay",
	"file_workers_per_principal":         "server: TestLimitErrors_NameSettingAndRetryDelay",
	"file_workers_total":                 "server: TestLimitErrors_NameSettingAndRetryDelay",
	"recording_bytes_total":              "internal/recorder: TestTotalBytes_Refuses",
	"control_requests_per_connection":    "gateway: TestLimitRefusals_NameTheSettingAndWhenToRetry",
	"incoming_bytes_per_connection":      "gateway: TestLimitRefusals_NameTheSettingAndWhenToRetry",
	"incoming_bytes_total":               "gateway: TestLimitRefusals_NameTheSettingAndWhenToRetry",
	"http_buffered_bytes_per_connection": "gateway: TestLimitRefusals_NameTheSettingAndWhenToRetry",
}

// refuseNothing are numeric settings that fail no request, with their effect.
var refuseNothing = map[string]string{
	"relay_streams":                      "the stream is reset",
	"port_backlog":                       "the connection is reset",
	"retained_output_bytes_per_process":  "the oldest output gives way, or the process blocks",
	"output_file_bytes_per_process":      "the oldest output gives way",
	"output_file_bytes_total":            "the oldest output of the process gives way",
	"retained_events":                    "the oldest events give way, or the process blocks",
	"window_bytes":                       "the process blocks",
	"snapshot_bytes":                     "the middle is left out",
	"stdin_queue_bytes":                  "writes wait",
	"abandoned_uploads_per_principal":    "the oldest gives way",
	"watch_pending_bytes":                "the client is told to look again",
	"connections_per_listener":           "the connection is closed",
	"streams_per_connection":             "clients hold further calls back",
	"header_list_bytes":                  "the call fails in gRPC",
	"unseen_processes_per_principal":     "the oldest are kept for a shorter time",
	"frame_bytes":                        "the connection is closed with 1009",
	"request_bytes":                      "the connection is closed with 1009",
	"outgoing_bytes_per_connection":      "the connection is closed with 1008",
	"answer_bytes_total":                 "answers wait",
	"min_incoming_bytes_per_second":      "a rate",
	"reserved_processes":                 "what the server keeps for itself",
	"oom_score_adjust":                   "no limit",
	"audit_file_bytes":                   "the file is rotated",
	"audit_files":                        "the oldest file is removed",
	"recording_file_bytes":               "the recording goes on in another file",
	"unseen_process_bytes_per_principal": "the oldest are kept for a shorter time",
	"recorded_processes_per_principal":   "the oldest have no record in state_directory",
}

// Every setting that is a limit is in one of the tables. When it is reached, the error names it
// and has a retry delay, over gRPC and JSON-RPC.
func TestLimits_EverySettingReached_IsNamedWithWhenToRetry(t *testing.T) {
	harness.Slow(t)
	for _, setting := range config.Settings() {
		if setting.Unit == "duration" || setting.Min == "" {
			continue // no number
		}
		c, reached := reachedLimits[setting.Name]
		known := 0
		for _, is := range []bool{reached, reachedElsewhere[setting.Name] != "", refuseNothing[setting.Name] != ""} {
			if is {
				known++
			}
		}
		if known != 1 {
			t.Errorf("%s is in %d of the tables: reach it, or say what happens at the limit", setting.Name, known)
		}
		if c.grpc != nil {
			t.Run(setting.Name+"/grpc", func(t *testing.T) { expectLimitStatus(t, c.grpc(newLimitScene(t, c.set)), setting.Name, c.lasting) })
		}
		if c.rpc != nil {
			t.Run(setting.Name+"/jsonrpc", func(t *testing.T) { expectLimitData(t, c.rpc(newLimitScene(t, c.set)), setting.Name, c.lasting) })
		}
	}
}

func newLimitScene(t *testing.T, set func(*config.Config)) *limitFixture {
	server := harness.NewServer(t, set)
	s := harness.NewScenario(t, server, harness.TCPTransport)
	dir := t.TempDir()
	for _, name := range []string{"one", "two"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(dir+"/file", make([]byte, 65<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/head" {
			w.Header().Set("Large", strings.Repeat("x", 8<<10))
			return
		}
		select {
		case <-over:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() { close(over); web.Close() })
	fixture := &limitFixture{Scenario: s, files: execwirev1.NewFileSystemServiceClient(s.Conn), web: execwirev1.NewHttpServiceClient(s.Conn), dir: dir, url: web.URL}
	if !strings.HasSuffix(t.Name(), "/grpc") {
		fixture.rpc = harness.WebsocketClient(t, server.Address(harness.WebsocketTransport)).Initialize("")
	}
	return fixture
}

func (s *limitFixture) watchDirectory(recursive bool) error {
	stream, err := s.files.WatchDirectory(s.Ctx, &execwirev1.WatchDirectoryRequest{Path: s.dir, Recursive: recursive})
	if err == nil {
		_, err = stream.Recv()
	}
	return err
}

func (s *limitFixture) tryStart() error {
	_, err := s.Processes.StartProcess(s.Ctx, s.Request(harness.Program("sleep"), harness.WithID("further")).GetProcess())
	return err
}

func (s *limitFixture) fetch(path string) error {
	stream, err := s.web.Fetch(s.Ctx, &execwirev1.FetchRequest{Method: "GET", Url: s.url + path})
	if err == nil {
		_, err = stream.Recv()
	}
	return err
}

func tooManySessions(s *limitFixture) error {
	s.Lease()
	s.Session = ""
	second := &harness.Attached{Scenario: s.Scenario, Feeds: map[string]*harness.Feed{}}
	return second.TryAttach()
}

func secondStart(s *limitFixture) *harness.RPCError {
	s.rpc.Start("one", harness.Program("sleep"), nil)
	return s.rpc.Refused("process/start", harness.StartOf("two", harness.Program("sleep"), nil), -32005)
}

// secondRequest makes two requests, of which one fails and the other waits.
func secondRequest(s *limitFixture) *harness.RPCError {
	first := s.rpc.Post("http/request", harness.RPCParams{"method": "GET", "url": s.url + "/", "requestId": "a"})
	second := s.rpc.Post("http/request", harness.RPCParams{"method": "GET", "url": s.url + "/", "requestId": "b"})
	var refused *harness.RPCError
	s.rpc.Until("a request is refused", func(frames []harness.RPCFrame) bool {
		for _, id := range []int{first, second} {
			if i := harness.ReplyTo(frames, id); i >= 0 {
				refused = frames[i].Error
			}
		}
		return refused != nil
	})
	return refused
}

func expectLimitStatus(t *testing.T, err error, setting string, lasting bool) {
	t.Helper()
	var subject string
	var retry time.Duration
	for _, detail := range status.Convert(err).Details() {
		switch detail := detail.(type) {
		case *errdetails.QuotaFailure:
			subject = detail.GetViolations()[0].GetSubject()
		case *errdetails.RetryInfo:
			retry = detail.GetRetryDelay().AsDuration()
		}
	}
	if got := harness.MetadataOf(err)["setting"]; subject != setting || got != setting || !strings.Contains(status.Convert(err).Message(), setting) {
		t.Errorf("%v is about %q and %q, want %s", err, subject, got, setting)
	}
	if lasting != (retry == 0) {
		t.Errorf("%v has the retry delay %v", err, retry)
	}
}

func expectLimitData(t *testing.T, refused *harness.RPCError, setting string, lasting bool) {
	t.Helper()
	var data map[string]any
	if err := json.Unmarshal(refused.Data, &data); err != nil {
		t.Fatal(err)
	}
	if data["setting"] != setting || !strings.Contains(refused.Message, setting) {
		t.Errorf("%+v has the data %v, want %s", refused, data, setting)
	}
	if after := data["retryAfterMs"]; lasting && after != nil || !lasting && !reflect.DeepEqual(after, 1000.0) {
		t.Errorf("%+v has the retry delay %v ms", refused, after)
	}
}
