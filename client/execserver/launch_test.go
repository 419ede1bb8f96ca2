package execserver

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/jsonrpc"
)

// greeter shakes hands as a server of the protocol and then does as its script says.
const greeter = `read hello; echo '{"id":1,"result":{"sessionId":"s","environmentInfo":{}}}'; read initialized; `

func launch(ctx context.Context, options LaunchCommand) (*Conn, error) {
	return Dial(ctx, Options{Once: true, Open: func(ctx context.Context) (jsonrpc.Transport, error) {
		return Launch(ctx, options)
	}})
}

func TestLaunch_CommandExits_IsReported(t *testing.T) {
	var said bytes.Buffer
	conn, err := launch(t.Context(), LaunchCommand{Stderr: &said,
		Argv: []string{"sh", "-c", greeter + "read start; echo first >&2; echo last >&2; exit 3"}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = start(t, conn, script("p", "true"))
	var ended *CommandEndedError
	if !errors.As(err, &ended) || ended.Exit != "exit status 3" || ended.Stderr != "first; last" {
		t.Errorf("the call that was under way failed with %v", err)
	}
	_, err = start(t, conn, script("q", "true"))
	var lost *LostError
	if !errors.As(err, &lost) || !errors.As(err, &ended) {
		t.Errorf("a later call failed with %v", err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if said.String() != "first\nlast\n" {
		t.Errorf("it said %q", &said)
	}
}

func TestLaunch_NoServer_Fails(t *testing.T) {
	for _, tt := range []struct {
		script, says string
		patience     time.Duration
	}{
		{script: "echo no such option >&2; exit 2", says: "has exited (exit status 2): no such option"},
		{script: "echo hello; cat >/dev/null", says: "broke the protocol"},
		{script: "exec 1>&-; cat >/dev/null", says: "closed its standard output", patience: time.Millisecond},
		{script: `read hello; echo '{"id":1,"result":7}'; cat >/dev/null`, says: "broke the protocol"},
		{script: `read hello; echo '{"id":9,"result":null}'; cat >/dev/null`, says: "broke the protocol"},
	} {
		_, err := launch(t.Context(), LaunchCommand{Argv: []string{"sh", "-c", tt.script}, exitTimeout: tt.patience})
		if err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: got %v, want %q", tt.script, err, tt.says)
		}
	}
	if _, err := launch(t.Context(), LaunchCommand{Argv: []string{"/no/such"}}); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a missing command: %v", err)
	}
	if _, err := launch(t.Context(), LaunchCommand{}); err == nil {
		t.Error("no command was launched")
	}
}

// The error quotes the output of a program that is no server.
func TestLaunch_NoServer_QuotesStdout(t *testing.T) {
	long := strings.Repeat("x", keptStdout)
	for _, tt := range []struct{ script, output, says string }{
		{"cat", `{"`, "it repeats the messages"},
		{`printf 'usage: \033[1m\n'; cat >/dev/null`, "usage: \x1b[1m\n", `printed "usage: \x1b[1m\n"`},
		{"echo " + long + "yyy; cat >/dev/null", long, `x" instead of messages`},
		{"echo who >&2; exit 2", "", "(exit status 2): who; the command sh printed nothing"},
	} {
		_, err := launch(t.Context(), LaunchCommand{Argv: []string{"sh", "-c", tt.script}})
		var got *NoServerError
		if !errors.As(err, &got) || got.Command != "sh" || !strings.HasPrefix(got.Output, tt.output) || len(got.Output) > keptStdout || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: got %v, want that it said %q, and %q", tt.script, err, tt.output, tt.says)
		}
	}
	// One that answers is a server.
	refusing := `read hello; echo '{"id":1,"error":{"code":-32600,"message":"no more sessions"}}'; cat >/dev/null`
	var no *NoServerError
	if _, err := launch(t.Context(), LaunchCommand{Argv: []string{"sh", "-c", refusing}}); errors.As(err, &no) || !strings.Contains(err.Error(), "no more sessions") {
		t.Errorf("an answer: %v", err)
	}
}

// TestLaunch_CommandDoesNotExit_IsKilled has one that takes no notice of the end of its
// input, with another one in its group.
func TestLaunch_CommandDoesNotExit_IsKilled(t *testing.T) {
	conn, err := launch(t.Context(), LaunchCommand{exitTimeout: time.Millisecond,
		Argv: []string{"sh", "-c", greeter + "sleep 1000 & sleep 1000"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}

// Without Env a command has the environment of this program for its directory, and no token.
func TestLaunch_NoEnv_InheritsAllButToken(t *testing.T) {
	t.Setenv("EXECWIRE_TOKEN", "secret")
	t.Setenv("EXECWIRE_TOKEN_FILE", "/token")
	dir := t.TempDir()
	_, err := launch(t.Context(), LaunchCommand{Dir: dir, Argv: []string{"sh", "-c",
		"tr '\\0' '\\n' </proc/$$/environ | grep -E '^(PWD|EXECWIRE_TOKEN|EXECWIRE_TOKEN_FILE)=' | sort >&2; exit 3"}})
	if want := ": EXECWIRE_TOKEN_FILE=/token; PWD=" + dir; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}
