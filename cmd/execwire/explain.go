package main

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/client/execserver"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/config"
	"github.com/execwire/execwire/relay/harness"
)

// reasonHints are the hints of a command by the reasons of errors.
type reasonHints map[execwirev1.ErrorReason]string

// explain adds a hint to an error of a server, or for a file: that of hints, else the one
// of any command. Explained errors are unchanged.
func explain(err error, hints reasonHints) *exitError {
	if exit, ok := errors.AsType[*exitError](err); ok {
		return exit
	}
	err = nameFlags(client.FromRPC(err), nil)
	if refused, ok := errors.AsType[*refusedFile](err); ok {
		return &exitError{code: codeFailed, err: err, hint: refused.hint}
	}
	return &exitError{code: codeFailed, err: err, hint: cmp.Or(hints[client.Reason(err)], reasonHint(err))}
}

// flagNames are the flags and arguments that set the fields of requests.
var flagNames = map[string]string{
	"process_id": "ID", "session_id": "--session", "grace": "--grace", "working_directory": "--cwd", "env": "--env", "environment_policy.inherit": "--env-inherit",
	"user": "--user", "limits.timeout": "--timeout", "limits.no_output_timeout": "--no-output-timeout", "limits.nice": "--nice", "limits.resource_limits": "--limit", "sandbox": "--sandbox",
	"pattern.regular_expression": "--pattern", "pattern.stream": "--stream", "port.port": "--port", "idle.silence": "--idle", "wait": "--timeout", "termination.graceful.timeout": "--timeout",
	"after_seq": "--since-seq", "pattern.after_seq": "--since-seq", "settle": "--settle", "ignore": "--ignore", "offset": "--offset", "length": "--length", "permissions": "--mode",
	"path": "PATH", "raw_path": "PATH", "source_path": "SOURCE", "raw_source_path": "SOURCE", "destination_path": "DEST", "raw_destination_path": "DEST",
}

// requestField matches the path of a field: its name and its index or key.
var requestField = regexp.MustCompile(`^(?:(?:start|resume|process|command\.direct|head)\.)*([a-z0-9_.]+)(?:\[("?[^"\]]*"?)\])?(.*)$`)

// flagName returns what sets a field: a name of own, else of [flagNames]; empty if it is not
// known.
func flagName(field string, own map[string]string) string {
	parts := requestField.FindStringSubmatch(field)
	if parts == nil {
		return ""
	}
	name, index := parts[1], strings.Trim(parts[2], `"`)
	if inPolicy, ok := strings.CutPrefix(name, "sandbox."); ok {
		return "--sandbox, " + inPolicy + field[strings.Index(field, name)+len(name):]
	}
	if index == "" {
		return cmp.Or(own[name], flagNames[name])
	}
	if name == "argv" {
		return "argument " + index
	}
	known := cmp.Or(own[name+"["+index+"]"], own[name], flagNames[name])
	if known == "--env" {
		known += " " + index
	}
	return known
}

// renamedError is an error with another text.
type renamedError struct {
	text string
	err  error
}

func (e *renamedError) Error() string { return e.text }

func (e *renamedError) Unwrap() error { return e.err }

// nameFlags names the flags and arguments of the command line in an error about fields of
// a request, whose paths mean nothing there. own are names of a command beside those of
// [flagNames].
func nameFlags(err error, own map[string]string) error {
	var typed *client.Error
	var renamed *renamedError
	if errors.As(err, &renamed) || !errors.As(err, &typed) {
		return err
	}
	text := err.Error()
	for _, f := range typed.Fields {
		if name := flagName(f.Field, own); name != "" {
			isField := regexp.MustCompile(`(^|[^\w.-])` + regexp.QuoteMeta(f.Field) + `($|[^\w])`)
			if at := isField.FindStringSubmatchIndex(text); at != nil { // a short name may be a word of the text too
				text = text[:at[3]] + name + text[at[4]:]
			}
		}
	}
	return &renamedError{text: text, err: err}
}

// reasonHint returns the hint for a reason that any command may get; empty for others.
func reasonHint(err error) string {
	var typed *client.Error
	if !errors.As(err, &typed) {
		return ""
	}
	switch typed.Reason {
	case execwirev1.ErrorReason_ERROR_REASON_PROCESS_NOT_FOUND:
		return "list what is there with: execwire ps -a"
	case execwirev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND:
		return "list what is there with: execwire sessions"
	case execwirev1.ErrorReason_ERROR_REASON_PORT_CONNECTION_REFUSED:
		return "list what listens with: execwire ports"
	case execwirev1.ErrorReason_ERROR_REASON_PORT_IN_USE:
		return "take a free port with port 0: -R 0:[HOST:]LOCAL"
	case execwirev1.ErrorReason_ERROR_REASON_PORT_LISTEN_DENIED:
		return "listen on loopback, on a port from 1024, or change ports_listen of the server"
	case execwirev1.ErrorReason_ERROR_REASON_UNAUTHENTICATED:
		return "use a token with --token-file, or a certificate with --tls-cert and --tls-key"
	case execwirev1.ErrorReason_ERROR_REASON_PEER_REFUSED:
		return "use a token of the server with --token-file, or run this as the server's user"
	case execwirev1.ErrorReason_ERROR_REASON_CALL_NOT_ALLOWED:
		return fmt.Sprintf("add %q to what the server's principals_file allows", typed.Metadata["permission"])
	case execwirev1.ErrorReason_ERROR_REASON_COMMAND_FORM_DISABLED:
		return fmt.Sprintf("start the server with %s%s=on, or name another one with --server",
			config.EnvironmentPrefix, strings.ToUpper(typed.Metadata["setting"]))
	case execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_FAILED_ATTEMPTS:
		return fmt.Sprintf("try again in %v, with a valid token or certificate", typed.RetryAfter.Round(time.Millisecond))
	}
	return ""
}

// refusedFile is the error for a file that a command rejects.
type refusedFile struct {
	path, why, hint string
}

func (e *refusedFile) Error() string { return printable(e.path) + ": " + e.why }

// explainDial explains why no server or hub was reached, with a hint.
func explainDial(err error) error {
	var dial *client.DialError
	isDial := errors.As(err, &dial)
	if isDial {
		err = dial.Err
	}
	if hint, ok := relayHint(err); ok || !isDial {
		return &exitError{code: codeFailed, err: err, hint: hint}
	}
	if locked, ok := errors.AsType[*client.TLSError](err); ok {
		hint := locked.Fix
		if errors.As(locked, new(x509.UnknownAuthorityError)) {
			hint += ": --tls-ca FILE"
		}
		return &exitError{code: codeFailed, err: fmt.Errorf("cannot reach %s: %w", dial.URL, locked.Err), hint: hint}
	}
	failed := func(why, hint string) error {
		return &exitError{code: codeFailed, err: fmt.Errorf("cannot reach %s: %s", dial.URL, why), hint: hint}
	}
	const commandHint = "name a command that serves the protocol on stdio: --server 'stdio:execwire serve --listen stdio'"
	if _, ok := errors.AsType[*execserver.NoServerError](err); ok {
		return failed(err.Error(), commandHint)
	}
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return failed(err.Error(), "") // a server answered
	}
	if strings.HasPrefix(dial.URL, "relay+") || strings.HasPrefix(dial.URL, "http") {
		return failed(errno.Error(), "start a hub with: execwire-hub")
	}
	if strings.HasPrefix(dial.URL, launchScheme+":") {
		return failed(errno.Error(), "name a command that is in PATH, or give its path: --server 'stdio:execwire serve --listen stdio'")
	}
	if runtime.GOOS != "linux" {
		return failed(errno.Error(), otherServerHint)
	}
	hint := "start a server with: execwire serve"
	if dial.URL != defaultServer {
		hint += " --listen " + dial.URL
	}
	return failed(errno.Error(), hint)
}

// otherServerHint is for systems on which no server runs.
const otherServerHint = "servers need Linux: name one with --server, or with --hub and --executor, or run execwire serve in WSL or a container"

// relayHint returns a hint for a rejection by a rendezvous or an executor; false for
// other errors.
func relayHint(err error) (hint string, ok bool) {
	if errors.Is(err, harness.ErrPlainExecutor) {
		return "start it with: execwire serve --remote", true
	}
	if errors.Is(err, harness.ErrStreamLimit) {
		return "", true
	}
	refused, ok := errors.AsType[*harness.RefusedError](err)
	if !ok {
		return "", false
	}
	switch refused.Status {
	case http.StatusUnauthorized:
		return "use a token of the hub with --token-file", true
	case http.StatusForbidden:
		return "allow it in the hub's table of principals, or use another token with --token-file", true
	case http.StatusNotFound:
		if strings.HasPrefix(refused.Code, "preview") {
			return "", true
		}
		return "list connected executors with: execwire executors", true
	}
	return "", true
}
