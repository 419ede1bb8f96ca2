package documents

import (
	"encoding/base64"
	"encoding/json"
	"github.com/execwire/execwire/integration/harness"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// tool is the path of a program that the Makefile builds from tools/go.mod.
func tool(t *testing.T, name string) string {
	dir := os.Getenv("EXECWIRE_TOOLS_DIR")
	if dir == "" {
		dir = filepath.Join(harness.Repository(t), ".cache", "tools")
	}
	return filepath.Join(dir, name)
}

// grpcurl calls a server with nothing but the reflection service.
func grpcurl(t *testing.T, server *harness.Command, d harness.Transport, args ...string) harness.Result {
	t.Helper()
	flags := []string{"-plaintext"}
	if d == harness.UnixTransport {
		flags = append(flags, "-unix")
	}
	c := &harness.Command{Cmd: exec.CommandContext(harness.Context(t), tool(t, "grpcurl"))}
	// Flags and data come before the address, what is called after it.
	at := len(args) - 1
	if len(args) > 1 && (args[at-1] == "list" || args[at-1] == "describe") {
		at--
	}
	c.Args = append(c.Args, flags...)
	c.Args = append(c.Args, args[:at]...)
	c.Args = append(append(c.Args, server.Address(d)), args[at:]...)
	c.Stderr, c.Waited = &c.Errors, c.Wait
	return c.Complete(t, nil)
}

func TestGrpcurl_Reflection(t *testing.T) {
	server := harness.Serve(t)
	for _, d := range harness.NetworkTransports {
		t.Run(string(d), func(t *testing.T) {
			call := func(args ...string) string {
				t.Helper()
				got := grpcurl(t, server, d, args...)
				if got.Code != 0 {
					t.Fatalf("grpcurl %q: %+v", args, got)
				}
				return got.Stdout
			}
			for _, service := range []string{"execwire.v1.ProcessService", "execwire.v1.EnvironmentService", "grpc.health.v1.Health"} {
				if list := call("list"); !strings.Contains(list, service+"\n") {
					t.Errorf("%s is not in %q", service, list)
				}
			}
			if text := call("describe", "execwire.v1.ProcessService"); !strings.Contains(text, "rpc WatchProcess") || !strings.Contains(text, "// ") {
				t.Errorf("the service is described as %q", text)
			}
			if text := call("grpc.health.v1.Health/Check"); !strings.Contains(text, "SERVING") {
				t.Errorf("health is %q", text)
			}
			call("-d", `{"process_id": "curled", "command": {"direct": {
				"argv": ["/bin/sh", "-c", "echo hello; exit 3"], "working_directory": "/"}}}`, "execwire.v1.ProcessService/StartProcess")
			watched := call("-d", `{"process_id": "curled"}`, "execwire.v1.ProcessService/WatchProcess")
			if kinds := eventKinds(t, watched); kinds != "1:output=hello\n 2:exited=3 3:closed" {
				t.Errorf("watching prints %q: %s", kinds, watched)
			}
			rest := call("-d", `{"process_id": "curled", "after_seq": 1}`, "execwire.v1.ProcessService/WatchProcess")
			if kinds := eventKinds(t, rest); kinds != "2:exited=3 3:closed" {
				t.Errorf("watching from a cursor prints %q: %s", kinds, rest)
			}
		})
	}
}

// eventKinds summarizes the output of WatchProcess.
func eventKinds(t *testing.T, text string) string {
	t.Helper()
	var kinds []string
	for decoder := json.NewDecoder(strings.NewReader(text)); decoder.More(); {
		var response struct {
			Events []struct {
				Seq    string
				Output *struct{ Data string }
				Exited *struct {
					Exit struct{ ExitCode json.Number }
				}
				Closed any
			}
		}
		if err := decoder.Decode(&response); err != nil {
			t.Fatal(err)
		}
		for _, event := range response.Events {
			kind := event.Seq
			switch {
			case event.Output != nil:
				data, err := base64.StdEncoding.DecodeString(event.Output.Data)
				if err != nil {
					t.Fatal(err)
				}
				kind += ":output=" + string(data)
			case event.Exited != nil:
				kind += ":exited=" + event.Exited.Exit.ExitCode.String()
			case event.Closed != nil:
				kind += ":closed"
			}
			kinds = append(kinds, kind)
		}
	}
	return strings.Join(kinds, " ")
}

// The reason of a failure is visible without our own client.
func TestGrpcurl_ShowsErrorDetails(t *testing.T) {
	server := harness.Serve(t)
	for _, d := range harness.NetworkTransports {
		got := grpcurl(t, server, d, "-d", `{"process_id": "nobody"}`, "execwire.v1.ProcessService/GetProcess")
		for _, want := range []string{"NotFound", "google.rpc.ErrorInfo", "PROCESS_NOT_FOUND", "execwire.v1"} {
			if got.Code == 0 || !strings.Contains(got.Stdout+got.Stderr, want) {
				t.Errorf("through %s %q is not in %+v", d, want, got)
			}
		}
	}
}

// One port serves buf curl by every protocol, with the details of errors.
func TestBufCurl_EveryProtocol(t *testing.T) {
	server := harness.NewCommand("serve", "--listen", "tcp://127.0.0.1:0")
	server.Listen(t, 1)
	method := "http://" + server.Address(harness.TCPTransport) + "/execwire.v1.ProcessService/"
	for protocol, flags := range map[string][]string{"connect": nil, "grpcweb": nil, "grpc": {"--http2-prior-knowledge"}} {
		call := func(method, data string) (string, error) {
			args := append([]string{"curl", "--schema", "../../proto/baseline.binpb", "--protocol", protocol, "-d", data}, flags...)
			output, err := exec.CommandContext(harness.Context(t), tool(t, "buf"), append(args, method)...).CombinedOutput()
			return strings.TrimSpace(string(output)), err
		}
		if output, err := call(method+"ListProcesses", "{}"); err != nil || output != "{}" {
			t.Errorf("%s: ListProcesses answers %s, %v", protocol, output, err)
		}
		// Of the reason, buf shows the encoding: by gRPC it does not know the type.
		if output, err := call(method+"GetProcess", `{"processId": "none"}`); err == nil || !strings.Contains(output, `"not_found"`) || !strings.Contains(output, "google.rpc.ErrorInfo") {
			t.Errorf("%s: GetProcess answers %s, %v", protocol, output, err)
		}
	}
}
