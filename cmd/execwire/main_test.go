package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/execwire/execwire/cmd/execwire/internal/complete"
	"github.com/execwire/execwire/daemon"
	"github.com/execwire/execwire/internal/leakcheck"
)

// runCommandVariable in the environment makes the test binary run the command.
const runCommandVariable = "EXECWIRE_TEST_BE_COMMAND"

func TestMain(m *testing.M) {
	daemon.Main()
	if pid := os.Getenv(traceVariable); pid != "" {
		trace(pid)
		return
	}
	if os.Getenv(runCommandVariable) != "" {
		if limit, err := time.ParseDuration(os.Getenv(completionTimeoutVariable)); err == nil {
			complete.Timeout = limit
		}
		os.Exit(execute(os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
	}
	leakcheck.Main(m)
}

// command returns execwire with arguments, in a directory and environment of its own.
func command(t *testing.T, arguments ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, arguments...)
	c.Dir = t.TempDir()
	c.Env = []string{runCommandVariable + "=1", "PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/of/test", "SECRET_KEY=local",
		// Otherwise the race detector waits for a second at the end of each command.
		"GORACE=atexit_sleep_ms=0"}
	return c
}

// result is the result of a command.
type result struct {
	code        int
	out, errOut string
}

func runCommand(t *testing.T, c *exec.Cmd) result {
	t.Helper()
	var out, errOut bytes.Buffer
	c.Stdout, c.Stderr = &out, &errOut
	if err := c.Run(); c.ProcessState == nil {
		t.Fatal(err)
	}
	return result{code: c.ProcessState.ExitCode(), out: out.String(), errOut: errOut.String()}
}

// runHere runs a command line that is refused in this process, which is cheaper than a start.
func runHere(t *testing.T, arguments ...string) result {
	t.Helper()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir()) // without contexts
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "EXECWIRE_") {
			t.Setenv(name, "") // which restores it
			_ = os.Unsetenv(name)
		}
	}
	errOut, err := os.CreateTemp(t.TempDir(), "stderr")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errOut.Close() }()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	code := execute(arguments, streams{in: null, out: null, err: errOut})
	said, err := os.ReadFile(errOut.Name())
	if err != nil {
		t.Fatal(err)
	}
	return result{code: code, errOut: string(said)}
}

// server is a running `execwire serve`.
type server struct {
	command *exec.Cmd
	stdout  *bufio.Reader
	urls    []string
}

// startServer serves at each URL and waits until all are open.
func startServer(t *testing.T, listen ...string) *server {
	t.Helper()
	return startServerWith(t, nil, listen...)
}

// startServerWith is startServer with environment variables.
func startServerWith(t *testing.T, variables []string, listen ...string) *server {
	t.Helper()
	arguments := []string{"serve", "--log-level", "error"}
	for _, url := range listen {
		arguments = append(arguments, "--listen", url)
	}
	c := command(t, arguments...)
	c.Env = append(c.Env, variables...)
	return startListening(t, c, len(listen))
}

// startListening starts a command that listens, and waits until so many listeners are open.
func startListening(t *testing.T, c *exec.Cmd, listeners int) *server {
	t.Helper()
	pipe, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errOut bytes.Buffer
	c.Stderr = &errOut
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	s := &server{command: c, stdout: bufio.NewReader(pipe)}
	t.Cleanup(func() {
		s.stop(t, syscall.SIGTERM)
		if t.Failed() {
			t.Logf("%q wrote %s", c.Args[1:], &errOut)
		}
	})
	for range listeners {
		line, err := s.stdout.ReadString('\n')
		if err != nil {
			t.Fatalf("failed to read the URL of a listener: %v", err)
		}
		s.urls = append(s.urls, strings.TrimSuffix(line, "\n"))
	}
	return s
}

// stop ends the server by signals and requires exit code 0. Calling it again does
// nothing.
func (s *server) stop(t *testing.T, signals ...os.Signal) {
	t.Helper()
	if s.command.ProcessState != nil {
		return
	}
	for _, sig := range signals {
		_ = s.command.Process.Signal(sig)
	}
	rest, _ := io.ReadAll(s.stdout)
	if err := s.command.Wait(); err != nil || len(rest) > 0 {
		t.Errorf("the server ended with %v and wrote %q", err, rest)
	}
}

func TestRun_ExitCodesAndMessages(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	tests := map[string]struct {
		arguments []string
		code      int
		errOut    []string // required parts; none requires empty output
	}{
		"success":             {[]string{"run", "true"}, 0, nil},
		"code passed":         {[]string{"run", "--", "sh", "-c", "exit 42"}, 42, nil},
		"signal":              {[]string{"run", "--", "sh", "-c", "kill -TERM $$"}, 143, nil},
		"flags of program":    {[]string{"run", "sh", "-c", "exit 3"}, 3, nil},
		"program not found":   {[]string{"run", "no-such-program"}, 127, []string{"execwire: ", "no-such-program"}},
		"not executable":      {[]string{"run", "/etc/passwd"}, 126, []string{"/etc/passwd"}},
		"bad directory":       {[]string{"run", "--cwd", missing, "true"}, 125, []string{missing, "--cwd"}},
		"timeout":             {[]string{"run", "--timeout", "50ms", "--", "sleep", "60"}, 124, []string{"timeout"}},
		"no server":           {[]string{"run", "--server", "unix://" + missing, "true"}, 125, []string{"cannot reach unix://" + missing, "no such file", "execwire serve --listen unix://" + missing}},
		"no server at all":    {[]string{"run", "--server", "stdio:cat", "--", "true"}, 125, []string{"cannot reach stdio:cat", "repeats", "the command cat printed \"{", "exec-server protocol", "stdio:execwire serve --listen stdio"}},
		"bad server URL":      {[]string{"run", "--server", "http://x", "true"}, 125, []string{"tcp://HOST:PORT"}},
		"no such sandbox":     {[]string{"run", "--sandbox", "readonly", "true"}, 2, []string{`"readonly"`, "read-only, workspace-write or a file"}},
		"writable nowhere":    {[]string{"run", "--writable", "/x", "true"}, 2, []string{"--sandbox workspace-write"}},
		"network, no sandbox": {[]string{"run", "--network", "true"}, 2, []string{"--sandbox workspace-write"}},
		"read-only to write":  {[]string{"run", "--sandbox", "read-only", "--writable", "/x", "true"}, 2, []string{"--writable is not for"}},
		"a file and more":     {[]string{"run", "--sandbox", "/etc/passwd", "--network", "true"}, 2, []string{"cannot be combined with a policy file"}},
		"no policy":           {[]string{"run", "--sandbox", "/etc/passwd", "true"}, 2, []string{"/etc/passwd is not a SandboxPolicy"}},
		"require what":        {[]string{"doctor", "--require", "luck"}, 2, []string{`"luck"`, "use one of sandbox, bubblewrap"}},
		"doctor of none":      {[]string{"doctor", "--server", "unix://" + missing}, 125, []string{"cannot reach", "execwire serve"}},
		"no program":          {[]string{"run"}, 2, []string{"name a program", "execwire run --help"}},
		"unknown flag":        {[]string{"run", "--bogus", "true"}, 2, []string{"--bogus", "execwire run --help"}},
		"bad inherit":         {[]string{"run", "--env-inherit", "some", "true"}, 2, []string{"none, core or all"}},
		"bad env":             {[]string{"run", "--env", "=x", "true"}, 2, []string{"NAME=VALUE"}},
		"inside":              {[]string{"run", "--server", "local:", "--", "sh", "-c", "exit 42"}, 42, nil},
		"detach inside":       {[]string{"run", "--server", "local:", "--detach", "true"}, 2, []string{"--server", "EXECWIRE_SERVER"}},
		"detach to nowhere":   {[]string{"run", "--detach", "true"}, 2, []string{"--server", "EXECWIRE_SERVER"}},
		"daemon left nowhere": {[]string{"run", "--leave-descendants", "true"}, 2, []string{"--server", "EXECWIRE_SERVER"}},
		"detach with a grace": {[]string{"run", "--server", "unix:///nowhere", "--detach", "--grace", "1s", "true"}, 2, []string{"--grace"}},
		"ps of two kinds":     {[]string{"ps", "-q", "--json"}, 2, []string{"--quiet and --json"}},
		"no default server":   {[]string{"ps", "--server", "unix://" + missing}, 125, []string{"cannot reach", "execwire serve"}},
		"logs without id":     {[]string{"logs"}, 2, []string{"name a process", "execwire logs --help"}},
		"logs of two":         {[]string{"logs", "a", "b"}, 2, []string{`"b"`}},
		"logs of no stream":   {[]string{"logs", "--stdout", "--stderr", "a"}, 2, []string{"exclude each other"}},
		"a negative tail":     {[]string{"logs", "--tail", "-1", "a"}, 2, []string{"negative"}},
		"no such key":         {[]string{"attach", "--detach-keys", "ctrl-1", "a"}, 2, []string{"ctrl-1", "ctrl-a to ctrl-z"}},
		"no such signal":      {[]string{"kill", "-s", "NOPE", "a"}, 2, []string{"NOPE", "1 to 64"}},
		"signal 65":           {[]string{"kill", "-s", "65", "a"}, 2, []string{"1 to 64"}},
		"two ways to kill":    {[]string{"kill", "-s", "TERM", "--force", "a"}, 2, []string{"exclude each other"}},
		"two conditions":      {[]string{"wait", "--exit", "--port", "80", "a"}, 2, []string{"exclude each other"}},
		"port 0":              {[]string{"wait", "--port", "0", "a"}, 2, []string{"1 to 65535"}},
		"no silence":          {[]string{"wait", "--idle", "0s", "a"}, 2, []string{"more than 0"}},
		"stream, no pattern":  {[]string{"wait", "--stream", "stdout", "a"}, 2, []string{"--pattern"}},
		"no such stream":      {[]string{"wait", "--pattern", "x", "--stream", "both", "a"}, 2, []string{"stdout, stderr or terminal"}},
		"a negative timeout":  {[]string{"wait", "--timeout", "-1s", "a"}, 2, []string{"negative"}},
		"close without id":    {[]string{"sessions", "close"}, 2, []string{"name a session"}},
		"grant everything":    {[]string{"sessions", "grant", "a", "b", "all"}, 2, []string{"view, write or none"}},
		"bad sessions":        {[]string{"sessions", "bogus"}, 2, []string{`"bogus"`}},
		"zero timeout":        {[]string{"run", "--timeout", "0s", "true"}, 2, []string{"more than 0"}},
		"cat without path":    {[]string{"cat"}, 2, []string{"name a path", "execwire cat --help"}},
		"cat before a file":   {[]string{"cat", "--offset", "-1", "/x"}, 2, []string{"--offset is -1"}},
		"put of a bad mode":   {[]string{"put", "-m", "8", "/x"}, 2, []string{"octal"}},
		"put of two kinds":    {[]string{"put", "--in-place", "-n", "/x"}, 2, []string{"--no-clobber: it is not for --in-place"}},
		"put if what":         {[]string{"put", "--if-match", "abc", "/x"}, 2, []string{"64 hexadecimal digits"}},
		"find of no type":     {[]string{"find", "-type", "x"}, 2, []string{`-type is "x"`, "execwire find --help"}},
		"find a bad pattern":  {[]string{"find", "/", "-name", "["}, 2, []string{`-name is "["`}},
		"find in two":         {[]string{"find", "/a", "/b"}, 2, []string{`"/b"`}},
		"find of two kinds":   {[]string{"find", "-print0", "-json"}, 2, []string{"exclude each other"}},
		"watch of two":        {[]string{"watch", "/a", "/b"}, 2, []string{`"/b"`}},
		"watch before":        {[]string{"watch", "-n", "-1"}, 2, []string{"--number is -1"}},
		"cp of one":           {[]string{"cp", "a"}, 2, []string{"name where to copy"}},
		"cp, both local":      {[]string{"cp", "a", "b"}, 2, []string{":PATH"}},
		"cp from both":        {[]string{"cp", "a", ":b", ":c"}, 2, []string{"all on the server or all local"}},
		"cp --delete":         {[]string{"cp", "--delete", "a", ":b"}, 2, []string{"--delete is for -r"}},
		"cp --ignore":         {[]string{"cp", "--ignore", "x", "a", ":b"}, 2, []string{"--ignore is for -r"}},
		"cp --ignore !x":      {[]string{"cp", "-r", "--ignore", "!x", "a", ":b"}, 2, []string{"--ignore", "!x"}},
		"cp two ways":         {[]string{"cp", "--update", "-n", "a", ":b"}, 2, []string{"exclude each other"}},
		"cp on the server":    {[]string{"cp", "-p", ":a", ":b"}, 2, []string{"--preserve", "only -r and -T", "execwire run cp -a"}},
		"cp in place":         {[]string{"cp", "--in-place", "-p", "a", ":b"}, 2, []string{"--preserve: it is not for --in-place"}},
		"cp here in place":    {[]string{"cp", "--in-place", ":a", "b"}, 2, []string{"--in-place is for copies to a server"}},
		"cp of several":       {[]string{"cp", "-T", "a", "b", ":c"}, 2, []string{"-T"}},
		"mv of one":           {[]string{"mv", "a"}, 2, []string{"name where to move"}},
		"mkdir of a bad mode": {[]string{"mkdir", "-m", "9", "/x"}, 2, []string{"octal"}},
		"an empty path":       {[]string{"rm", ""}, 2, []string{"a path is empty"}},
		"rm of here":          {[]string{"rm", "-r", "--server", "unix://" + missing, "a", "."}, 2, []string{`. is not removed`, "by its name"}},
		"rm of the directory": {[]string{"rm", "-rf", "--server", "unix://" + missing, ":"}, 2, []string{"relative paths begin", "write its path"}},
		"rm of above":         {[]string{"rm", "-rf", "--server", "unix://" + missing, "a/..//"}, 2, []string{`ends with ".."`, "by its name"}},
		"rm of the root":      {[]string{"rm", "--server", "unix://" + missing, "//"}, 2, []string{"// is not removed", "the root"}},
		"rm of the root, too": {[]string{"rm", "--server", "unix://" + missing, ":/"}, 2, []string{"the root"}},
		"ls of two kinds":     {[]string{"ls", "-l", "--json"}, 2, []string{"--long and --json"}},
		"no server of files":  {[]string{"ls", "--server", "unix://" + missing}, 125, []string{"cannot reach", "execwire serve"}},
		"unknown command":     {[]string{"bogus"}, 2, []string{`"bogus"`, "execwire --help"}},
		"a client at stdin":   {[]string{"serve", "--listen", "stdio", "--until-stdin-closes"}, 2, []string{"not for stdio", "execwire serve --help"}},
		"argument of serve":   {[]string{"serve", "x"}, 2, []string{`"x"`, "execwire serve --help"}},
		"bad log format":      {[]string{"serve", "--log-format", "xml"}, 2, []string{"text or json"}},
		"bad log lines":       {[]string{"serve", "--log-lines", "-1"}, 2, []string{"0 for all"}},
		"bad listener":        {[]string{"serve", "--listen", "http://x"}, 125, []string{"http://x"}},
		"missing config":      {[]string{"serve", "--config", missing}, 125, []string{missing}},
		"remote without id":   {[]string{"serve", "--remote", "https://hub.example.org"}, 2, []string{"--executor-id is needed when --remote is set", "execwire serve --help"}},
		"remote as websocket": {[]string{"serve", "--remote", "wss://hub.example.org", "--executor-id", "a"}, 2, []string{"--remote is no address", "https://HOST"}},
		"identity of none":    {[]string{"serve", "--use-agent-identity-auth"}, 2, []string{"--agent-identity needs --remote"}},
		"identity, otherwise": {[]string{"serve", "--allow-agent-identity-auth"}, 2, []string{"--agent-identity needs --remote"}},
		"identity and token":  {[]string{"serve", "--remote", "https://hub.example.org", "--executor-id", "a", "--use-agent-identity-auth", "--remote-token-file", "/x"}, 2, []string{"--remote-token-file and --agent-identity exclude each other"}},
		"label without =":     {[]string{"serve", "--remote", "https://hub.example.org", "--executor-id", "a", "--executor-labels", "x"}, 2, []string{`--executor-labels cannot have "x"`, "KEY=VALUE"}},
		"detach keys":         {[]string{"run", "--detach-keys", "ctrl-p", "true"}, 2, []string{"--detach-keys is for -t and -i"}},
		"no such keys":        {[]string{"run", "-ti", "--detach-keys", "ctl-p", "true"}, 2, []string{`--detach-keys: "ctl-p" is not a key`}},
		"no such ws-auth":     {[]string{"serve", "--ws-auth", "basic"}, 2, []string{`"--ws-auth" flag: cannot be "basic": write capability-token`}},
		"no credentials":      {[]string{"serve", "--remote", "https://hub.example.org", "--executor-id", "a"}, 1, []string{"codex login", "--remote-token-file"}},
		"no remote token":     {[]string{"serve", "--remote", "https://hub.example.org", "--executor-id", "a", "--remote-token-file", missing}, 1, []string{missing}},
		"no id of executors":  {[]string{"serve", "--remote", "http://127.0.0.1:1", "--executor-id", "a/b"}, 1, []string{"--executor-id", `"a/b"`}},
		"executors of none":   {[]string{"executors"}, 2, []string{"--hub", "EXECWIRE_HUB"}},
		"executors of a ws":   {[]string{"executors", "--hub", "ws://x"}, 125, []string{"https://HOST"}},
		"hub unreachable":     {[]string{"executors", "--hub", "http://127.0.0.1:1"}, 125, []string{"cannot reach http://127.0.0.1:1", "refused", "execwire-hub"}},
		"a token in the air":  {[]string{"executors", "--hub", "http://192.0.2.1", "--token-file", missing}, 125, []string{"plain text", "https://"}},
		"hub and server":      {[]string{"ps", "--hub", "http://127.0.0.1:1", "--executor", "a", "--server", "unix:///x"}, 2, []string{"--server and --hub exclude each other"}},
		"executor and server": {[]string{"ps", "--executor", "a", "--server", "unix:///x"}, 2, []string{"--server and --executor exclude each other"}},
		"hub, no executor":    {[]string{"ps", "--hub", "http://127.0.0.1:1"}, 2, []string{"--executor", "execwire executors"}},
		"executor nowhere":    {[]string{"run", "--executor", "a", "true"}, 2, []string{"--hub, EXECWIRE_HUB or a context"}},
		"executor, no hub":    {[]string{"ps", "--executor", "a", "--hub", "http://127.0.0.1:1"}, 125, []string{"cannot reach relay+ws://127.0.0.1:1/executor/a?role=harness", "refused", "execwire-hub"}},
		"no such executor":    {[]string{"ps", "--executor", "a b", "--hub", "http://127.0.0.1:1"}, 2, []string{`"a b"`, "letters, digits"}},
		"argument of version": {[]string{"version", "x"}, 2, []string{`"x"`}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got result
			if test.code == codeUsage {
				got = runHere(t, test.arguments...)
			} else {
				got = runCommand(t, command(t, test.arguments...))
			}
			if got.code != test.code {
				t.Errorf("exit code %d, want %d; stderr %q", got.code, test.code, got.errOut)
			}
			if len(test.errOut) == 0 && got.errOut != "" {
				t.Errorf("stderr is %q", got.errOut)
			}
			for _, piece := range test.errOut {
				if !strings.Contains(got.errOut, piece) {
					t.Errorf("stderr %q does not contain %q", got.errOut, piece)
				}
			}
		})
	}
}

func TestHelp_HasExamples(t *testing.T) {
	for _, c := range allCommands(newRootCommand(streams{})) {
		arguments := append(strings.Fields(c.CommandPath())[1:], "--help")
		got := runCommand(t, command(t, arguments...))
		if got.code != 0 || !strings.Contains(got.out, "Examples:\n  execwire") {
			t.Errorf("%v: exit code %d, no example in %q", arguments, got.code, got.out)
		}
	}
}

func TestVersion(t *testing.T) {
	if got := runCommand(t, command(t, "version")); !strings.HasPrefix(got.out, "execwire ") {
		t.Errorf("got %q", got.out)
	}
	if got := runCommand(t, command(t, "--version")); !strings.HasPrefix(got.out, "execwire version ") {
		t.Errorf("got %q", got.out)
	}
	if got := runCommand(t, command(t, "version", "--json")); !strings.Contains(got.out, `"version":`) {
		t.Errorf("got %q", got.out)
	}
}
