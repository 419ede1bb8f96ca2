package daemon_test

import (
	"context"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/execwire/execwire/daemon"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/internal/metrics"
	"github.com/execwire/execwire/internal/testcert"
)

// metered is a server with a token.
type metered struct {
	*opened
	token     string
	processes execwirev1.ProcessServiceClient
	files     execwirev1.FileSystemServiceClient
}

func openMetered(t *testing.T) *metered {
	m := &metered{token: strings.Repeat("t", 40)}
	m.opened = open(t, func(cfg *config.Config) {
		onOnePort(cfg)
		cfg.Processes = 2
		dir := t.TempDir()
		testcert.WriteFile(t, filepath.Join(dir, "token"), []byte(m.token))
		cfg.Principals = testcert.WriteFile(t, filepath.Join(dir, "principals.toml"),
			[]byte("[[principal]]\nname = \"viewer\"\nallow = [\"all\"]\ntoken_file = \""+filepath.Join(dir, "token")+"\"\n"))
	})
	m.processes = execwirev1.NewProcessServiceClient(m.daemon.Conn())
	m.files = execwirev1.NewFileSystemServiceClient(m.daemon.Conn())
	return m
}

// start starts a process, and returns the error's code.
func (m *metered) start(id string, argv ...string) codes.Code {
	_, err := m.processes.StartProcess(m.ctx, &execwirev1.StartProcessRequest{ProcessId: id,
		Io: &execwirev1.ProcessIo{Io: &execwirev1.ProcessIo_Pipes{Pipes: &execwirev1.PipeIo{Stdin: execwirev1.StdinMode_STDIN_MODE_PIPE}}},
		Command: &execwirev1.ProcessCommand{Command: &execwirev1.ProcessCommand_Direct{Direct: &execwirev1.DirectCommand{
			Argv: argv, WorkingDirectory: "/"}}}})
	return status.Code(err)
}

func (m *metered) wait(id string) {
	m.t.Helper()
	_, err := m.processes.WaitProcess(m.ctx, &execwirev1.WaitProcessRequest{ProcessId: id})
	if err != nil {
		m.t.Fatal(err)
	}
}

// terminate kills a process and waits until its log is closed.
func (m *metered) terminate(id string) {
	m.t.Helper()
	_, err := m.processes.TerminateProcess(m.ctx, &execwirev1.TerminateProcessRequest{ProcessId: id,
		Termination: &execwirev1.Termination{Mode: &execwirev1.Termination_Force{Force: &execwirev1.ForcedTermination{}}}})
	if err != nil {
		m.t.Fatal(err)
	}
	if read := m.readToEnd(id); !read.GetClosed() {
		m.t.Fatalf("%s has not closed", id)
	}
}

// readToEnd reads the output until the log is closed, and returns the last answer.
func (m *metered) readToEnd(id string) *execwirev1.ReadOutputResponse {
	m.t.Helper()
	stream, err := m.processes.WatchProcess(m.ctx, &execwirev1.WatchProcessRequest{ProcessId: id})
	for err == nil {
		_, err = stream.Recv()
	}
	if err != io.EOF {
		m.t.Fatal(err)
	}
	read, err := m.processes.ReadOutput(m.ctx, &execwirev1.ReadOutputRequest{ProcessId: id})
	if err != nil {
		m.t.Fatal(err)
	}
	return read
}

// scrape returns the text of /metrics, which is valid, and its values.
func (m *metered) scrape() (text string, values map[string]float64) {
	m.t.Helper()
	response, text := m.exchange(http.MethodGet, "/metrics", bearerHeader(m.token), "")
	if response.StatusCode != http.StatusOK {
		m.t.Fatalf("%s: %s", response.Status, text)
	}
	if problems, err := promlint.New(strings.NewReader(text)).Lint(); err != nil || len(problems) > 0 {
		m.t.Errorf("%v, %v", problems, err)
	}
	values = make(map[string]float64)
	for line := range strings.Lines(text) {
		if name, number, ok := strings.Cut(strings.TrimSpace(line), " "); ok && !strings.HasPrefix(line, "#") {
			values[name], _ = strconv.ParseFloat(number, 64)
		}
	}
	return text, values
}

func TestMetrics_Access(t *testing.T) {
	t.Parallel()
	m := openMetered(t)
	for _, test := range []struct {
		method, path string
		header       http.Header
		status       int
	}{
		{"GET", "/metrics", nil, 401}, {"GET", "/metrics", bearerHeader(strings.Repeat("x", 40)), 401},
		{"GET", "/metrics", bearerHeader(m.token), 200}, {"HEAD", "/metrics", bearerHeader(m.token), 200},
		{"POST", "/metrics", bearerHeader(m.token), 405}, {"GET", "/metrics/x", bearerHeader(m.token), 404}, {"GET", "/metricsx", bearerHeader(m.token), 404},
	} {
		if response, _ := m.exchange(test.method, test.path, test.header, ""); response.StatusCode != test.status {
			t.Errorf("%s %s with %v: %s, want %d", test.method, test.path, test.header, response.Status, test.status)
		}
	}
	if _, values := m.scrape(); values[`execwire_auth_failures_total{reason="credential_missing"}`] != 1 || values[`execwire_auth_failures_total{reason="token_invalid"}`] != 1 {
		t.Errorf("the failures are %v", values)
	}
}

// A download over HTTP whose client goes away has failed, although the server had passed the
// file on.
func TestMetrics_InterruptedDownload_HasFailed(t *testing.T) {
	t.Parallel()
	m := openMetered(t)
	path := filepath.Join(t.TempDir(), "large")
	testcert.WriteFile(t, path, nil)
	if err := os.Truncate(path, 1<<30); err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(m.ctx)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.address()+"/v1/files"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header = bearerHeader(m.token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(response.Body, make([]byte, 1)); err != nil {
		t.Error(err)
	}
	leave()
	_ = response.Body.Close()
	eventually(t, "the download has failed", func() bool {
		_, values := m.scrape()
		return values[`execwire_file_transfers_total{api="http",direction="download",result="failed"}`] == 1
	})
}

// TestMetrics_Work does a little of everything, and compares what has changed.
func TestMetrics_Work(t *testing.T) {
	t.Parallel()
	m := openMetered(t)
	_, before := m.scrape()

	if code := m.start("writer", "/bin/sh", "-c", "cat; printf error >&2"); code != codes.OK {
		t.Fatal(code)
	}
	if code := m.start("sleeper", "/bin/sleep", "1000"); code != codes.OK {
		t.Fatal(code)
	}
	if code := m.start("third", "/bin/true"); code != codes.ResourceExhausted {
		t.Errorf("a third process: %v", code)
	}
	if _, err := m.processes.WriteStdin(m.ctx, &execwirev1.WriteStdinRequest{ProcessId: "writer", Data: []byte("hello, world")}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.processes.CloseStdin(m.ctx, &execwirev1.CloseStdinRequest{ProcessId: "writer"}); err != nil {
		t.Fatal(err)
	}
	m.wait("writer")
	m.readToEnd("writer")
	if code := m.start("nothing", "/no/such/program"); code != codes.NotFound {
		t.Errorf("a program that is not there: %v", code)
	}
	m.terminate("sleeper")
	m.transfer(filepath.Join(t.TempDir(), "file"), make([]byte, 1000))
	if response, text := m.exchange(http.MethodPost, "/execwire.v1.EnvironmentService/GetEnvironment",
		http.Header{"Authorization": {"Bearer " + m.token}, "Content-Type": {"application/json"}}, "{}"); response.StatusCode != http.StatusOK {
		t.Errorf("%s: %s", response.Status, text)
	}

	text, after := m.scrape()
	delta := make(map[string]float64)
	for name, value := range after {
		if strings.HasPrefix(name, "execwire_") && value != before[name] {
			delta[name] = value - before[name]
		}
	}
	killed := 0.0
	for name, change := range delta {
		if strings.HasPrefix(name, "execwire_process_kills_total{") {
			killed += change
		}
	}
	if killed < 1 { // what is left of a process that exits is killed, too
		t.Errorf("%v kills, want at least 1", killed)
	}
	// Which method is used, and how long something takes, depends on the machine, and when
	// the server notices that a response has arrived.
	maps.DeleteFunc(delta, func(name string, _ float64) bool {
		return regexp.MustCompile(`^execwire_(process_kills_total|.*_(bucket|sum)\{|retained_bytes|http_clients)`).MatchString(name)
	})
	want := map[string]float64{
		`execwire_process_starts_total{sandbox="none"}`:                                            2,
		`execwire_process_start_duration_seconds_count{sandbox="none"}`:                            2,
		`execwire_process_start_failures_total{reason="program_not_found"}`:                        1,
		`execwire_process_exits_total{cause="exited"}`:                                             1,
		`execwire_process_exits_total{cause="terminated"}`:                                         1,
		`execwire_processes{state="closed"}`:                                                       2,
		`execwire_sessions{state="default"}`:                                                       1,
		`execwire_limits_hit_total{limit="processes_per_session"}`:                                 1,
		`execwire_output_bytes_total{api="local",stream="stdout"}`:                                 2 * 12, // watched and read
		`execwire_output_bytes_total{api="local",stream="stderr"}`:                                 2 * 5,
		`execwire_input_bytes_total{api="local"}`:                                                  12,
		`execwire_file_bytes_total{api="local",direction="upload"}`:                                1000,
		`execwire_file_bytes_total{api="local",direction="download"}`:                              1000,
		`execwire_file_bytes_total{api="http",direction="download"}`:                               1000,
		`execwire_file_transfers_total{api="local",direction="upload",result="complete"}`:          1,
		`execwire_file_transfers_total{api="local",direction="download",result="complete"}`:        1,
		`execwire_file_transfers_total{api="http",direction="download",result="complete"}`:         1,
		`execwire_file_transfers_total{api="local",direction="download",result="failed"}`:          1,
		`execwire_rpcs_total{api="http",code="OK",method="` + fileMethod + `DownloadFile"}`:        2,
		`execwire_rpcs_total{api="local",code="OK",method="` + fileMethod + `DownloadFile"}`:       1,
		`execwire_rpcs_total{api="local",code="NotFound",method="` + fileMethod + `DownloadFile"}`: 1,
		`execwire_rpcs_total{api="local",code="OK",method="` + fileMethod + `UploadFile"}`:         1,
	}
	for call, n := range map[string]float64{"StartProcess OK": 2, "StartProcess ResourceExhausted": 1, "StartProcess NotFound": 1, "WriteStdin OK": 1,
		"CloseStdin OK": 1, "WaitProcess OK": 1, "WatchProcess OK": 2, "ReadOutput OK": 2, "TerminateProcess OK": 1} {
		method, code, _ := strings.Cut(call, " ")
		want[`execwire_rpcs_total{api="local",code="`+code+`",method="execwire.v1.ProcessService/`+method+`"}`] = n
		if method != "WatchProcess" {
			want[`execwire_rpc_duration_seconds_count{api="local",method="execwire.v1.ProcessService/`+method+`"}`] += n
		}
	}
	const environment = `method="execwire.v1.EnvironmentService/GetEnvironment"}`
	want[`execwire_rpcs_total{api="connect",code="OK",`+environment] = 1
	want[`execwire_rpc_duration_seconds_count{api="connect",`+environment] = 1
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if delta[name] != want[name] {
			t.Errorf("%s has changed by %v, want %v", name, delta[name], want[name])
		}
		delete(delta, name)
	}
	if len(delta) > 0 {
		t.Errorf("unexpected changes: %v", delta)
	}
	// What has not happened has no sample, unless its labels are known.
	unseen := []string{"execwire_auth_failures_total", "execwire_sandbox_refusals_total", "execwire_relay_connected", "execwire_relay_streams"}
	for _, listed := range metrics.Server {
		if served := strings.Contains(text, "\n# TYPE "+listed.Name+" "+string(listed.Type)+"\n"); served == slices.Contains(unseen, listed.Name) {
			t.Errorf("%s is served: %v", listed.Name, served)
		}
	}
}

const fileMethod = "execwire.v1.FileSystemService/"

// transfer uploads a file, and downloads it by gRPC and HTTP. A download of another fails.
func (m *metered) transfer(path string, content []byte) {
	m.t.Helper()
	upload, err := m.files.UploadFile(m.ctx)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, part := range []*execwirev1.UploadFileRequest{
		{Message: &execwirev1.UploadFileRequest_Head{Head: &execwirev1.UploadHead{Path: path, Mode: execwirev1.UploadMode_UPLOAD_MODE_REPLACE}}},
		{Message: &execwirev1.UploadFileRequest_Data{Data: content}}, {Message: &execwirev1.UploadFileRequest_End{End: &execwirev1.UploadEnd{}}},
	} {
		if err := upload.Send(part); err != nil {
			m.t.Fatal(err)
		}
	}
	if _, err := upload.CloseAndRecv(); err != nil {
		m.t.Fatal(err)
	}
	if saved, err := os.ReadFile(path); err != nil || len(saved) != len(content) {
		m.t.Fatalf("%d bytes were saved, %v", len(saved), err)
	}
	for _, file := range []string{path, path + ".none"} {
		download, err := m.files.DownloadFile(m.ctx, &execwirev1.DownloadFileRequest{Path: file})
		for err == nil {
			_, err = download.Recv()
		}
		if err != io.EOF && status.Code(err) != codes.NotFound {
			m.t.Fatal(err)
		}
	}
	if response, text := m.exchange(http.MethodGet, "/v1/files"+path, bearerHeader(m.token), ""); len(text) != len(content) {
		m.t.Fatalf("%s: %d bytes", response.Status, len(text))
	}
	if response, _ := m.exchange(http.MethodHead, "/v1/files"+path, bearerHeader(m.token), ""); response.StatusCode != http.StatusOK { // is no transfer
		m.t.Fatal(response.Status)
	}
}

// The alert of slow calls leaves out the calls that the console does.
func TestAlerts_LeaveOutWaitingCalls(t *testing.T) {
	rules, err := os.ReadFile("../deploy/monitoring/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if want := `{method!~".*/(` + strings.Join(daemon.WaitingCalls, "|") + `)"}`; !strings.Contains(string(rules), want) {
		t.Errorf("no alert rule has %s", want)
	}
}
